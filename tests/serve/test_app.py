"""The server over HTTP, on a reader that the test holds."""

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.serve import app as app_module
from dsocr_core.serve import server as server_module
from dsocr_core.serve import service as service_module
from dsocr_core.settings import Settings
from tests.support.served import TEXT, Answering, HeldReader, Served, body_for, result_of, served


def events(response: httpx.Response) -> list[dict[str, object]]:
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


@pytest.fixture(scope="module")
def answering() -> Iterator[Served]:
    """A server that answers at once, for what asks and counts nothing."""
    with served(Settings(device="cpu"), Answering()) as server:
        yield server


def test_an_answer_has_the_form_that_clients_know(answering: Served) -> None:
    answer = answering.post(body_for(b"x", return_token_ids=True)).json()
    assert answer["object"] == "chat.completion" and answer["model"] == "mini"
    (choice,) = answer["choices"]
    assert choice == {
        "index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop",
        "token_ids": [5, 6, 1],
    }  # fmt: skip
    assert answer["usage"] == {"prompt_tokens": 5, "completion_tokens": 3, "total_tokens": 8}
    assert answer["prompt_token_ids"] == [0, 5, 5, 5, 7]


def test_a_stream_adds_up_to_the_answer(answering: Served) -> None:
    asked = body_for(b"x", stream=True, stream_options={"include_usage": True}, return_token_ids=True)
    response = answering.post(asked)
    assert response.headers["content-type"].startswith("text/event-stream")
    chunks = events(response)
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]  # type: ignore[index]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == TEXT
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"  # type: ignore[index]
    assert chunks[-2]["choices"][0]["token_ids"] == [5, 6, 1]  # type: ignore[index]
    assert chunks[-1]["usage"]["completion_tokens"] == 3  # type: ignore[index]
    assert len({chunk["id"] for chunk in chunks}) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_special_tokens_are_left_out_where_that_is_asked_for(answering: Served, stream: bool) -> None:
    response = answering.post(body_for(b"x", stream=stream, skip_special_tokens=True))
    if stream:
        chunks = events(response)
        text = "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)  # type: ignore[index]
    else:
        text = response.json()["choices"][0]["message"]["content"]
    assert text == "title[[1, 2, 3, 4]]\n# Hello"


def test_a_page_is_read_as_it_is_asked_for() -> None:
    reader = Answering()
    with served(Settings(device="cpu", preset="tiny"), reader) as server:
        server.post(body_for(b"pixels"))
        server.post(body_for(b"x", max_tokens=9, preset="base", vllm_xargs={"ngram_size": 35}))
    first, second = (job.request for job in reader.jobs)
    assert (first.preset, first.max_new_tokens, first.no_repeat_ngram_size) == ("tiny", 8192, 20)
    assert (second.preset, second.max_new_tokens, second.no_repeat_ngram_size) == ("base", 9, 35)
    assert first.prompt == "<image>\nFree OCR."


def test_models_health_and_metrics() -> None:
    with served(Settings(device="cpu"), Answering()) as server:
        server.post(body_for(b"x"))
        (model,) = server.get("/v1/models").json()["data"]
        assert (model["id"], model["object"]) == ("mini", "model")
        assert server.get("/health").json() == {"status": "ok", "engine": "eager", "waiting": 0}
        metrics = server.get("/metrics").text
    assert 'dsocr_requests_total{outcome="read"} 1.0' in metrics
    assert "dsocr_generated_tokens_total 3.0" in metrics and "dsocr_prompt_tokens_total 5.0" in metrics
    assert "dsocr_requests_waiting 0.0" in metrics and "dsocr_request_seconds_count 1.0" in metrics


def refused(server: Served, body: object, **more: object) -> tuple[int, str]:
    response = server.post(body, **more)
    error = response.json()["error"]
    assert error["code"] == response.status_code and "\n" not in error["message"]
    return response.status_code, error["message"]


def test_what_is_refused_is_one_line_with_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app_module, "MOST_BODY_BYTES", 10_000)
    with served(Settings(device="cpu"), Answering()) as server:
        assert refused(server, body_for(b"x", temperature=1)) == (
            400,
            "temperature is 1: decoding is greedy; give 0 or leave it out",
        )
        assert refused(server, body_for(b"x") | {"model": "other"}) == (
            404,
            "model 'other' is not served here; it is mini",
        )
        assert refused(server, body_for(b"x" * 20_000))[0] == 413
        as_text = {"content-type": "text/plain"}
        assert refused(server, None, content=b"{}", headers=as_text)[0] == 415
        as_json = {"content-type": "application/json"}
        assert refused(server, None, content=b"[1", headers=as_json)[0] == 400
        assert refused(server, None, content=b"[" * 5000, headers=as_json)[0] == 400
        assert server.client.get("/chat/completions").status_code == 405


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/v1/chat/completions"])
def test_it_answers_to_its_own_name_and_origin_only(answering: Served, path: str) -> None:
    for headers, status in (({"Host": "evil.example"}, 400), ({"Origin": "http://evil.example"}, 403)):
        for method in ("GET", "POST", "OPTIONS"):
            url = answering.address.removesuffix("/v1") + path
            assert answering.client.request(method, url, headers=headers).status_code == status


def test_half_a_character_in_any_text_is_refused_by_the_field_s_name(answering: Served) -> None:
    half, parts = "\ud800", body_for(b"x")["messages"][0]["content"]
    for change, name in (
        ({"model": half}, "model"), ({half: 1}, "a field's name"), ({"preset": half}, "preset"),
        ({"template": half}, "template"), ({"temperature": half}, "temperature"),
        ({"max_tokens": half}, "max_tokens"), ({"vllm_xargs": {half: 1}}, "vllm_xargs"),
        ({"vllm_xargs": {"ngram_size": half}}, "vllm_xargs.ngram_size"),
        ({"ngram_whitelist": [half]}, "ngram_whitelist"),
        ({"messages": [{"role": "user", "content": [parts[0], {"type": "text", "text": half}]}]},
         "messages.content.text"),
    ):  # fmt: skip
        content = json.dumps(body_for(b"x") | change).encode()
        as_json = {"content-type": "application/json"}
        status, message = refused(answering, None, content=content, headers=as_json)
        assert status == 400 and message.startswith(name)


def begun_body(server: Served, size: int) -> socket.socket:
    """A connection whose body of `size` bytes lacks its last one."""
    client = socket.create_connection(("127.0.0.1", httpx.URL(server.address).port), timeout=30)  # type: ignore[arg-type]
    client.sendall(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n" % size + b" " * (size - 1)
    )
    return client


def test_bodies_count_while_they_arrive_and_have_to_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service_module, "MOST_ARRIVING_BYTES", 2500)
    monkeypatch.setattr(app_module, "BODY_S", 2)
    with served(Settings(device="cpu"), Answering()) as server:
        first, second, third = (begun_body(server, 1000) for _ in range(3))
        assert third.recv(100).split()[1] == b"503"
        second.close()  # leaves: no traceback, and room again
        assert first.recv(100).split()[1] == b"408"
        assert server.service._arriving == 0
        assert server.post(body_for(b"x")).status_code == 200
        first.close()
        third.close()
    assert not caplog.records


def test_a_connection_that_asks_for_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "REQUEST_S", 0.2)
    monkeypatch.setattr(server_module, "MOST_CONNECTIONS", 4)
    with served(Settings(device="cpu"), Answering()) as server:
        place = ("127.0.0.1", httpx.URL(server.address).port)
        held = [socket.create_connection(place, timeout=30) for _ in range(4)]  # type: ignore[arg-type]
        for client, start in zip(held, (b"", b"GET", b"GET / HTTP/1.1\r\nHost: x", b"POST /v1"), strict=True):
            client.sendall(start)
        assert [client.recv(1) for client in held] == [b""] * 4
        assert server.post(body_for(b"x")).status_code == 200


def test_a_path_or_method_that_is_not_there_is_answered_as_json(answering: Served) -> None:
    for method, path, status in (
        ("GET", "/v1/completions", 404), ("POST", "/v1/embeddings", 404), ("DELETE", "/v1/models", 405)
    ):  # fmt: skip
        response = answering.client.request(method, answering.address.removesuffix("/v1") + path)
        assert response.status_code == response.json()["error"]["code"] == status


def test_an_end_of_the_server_is_told_to_those_who_wait() -> None:
    answers: list[int] = []
    reader = HeldReader()

    def close() -> None:
        for job in reader.jobs:
            job.on_end(Cancelled())

    reader.close = close  # type: ignore[method-assign]
    with served(Settings(device="cpu"), reader) as server:
        thread = threading.Thread(target=lambda: answers.append(server.post(body_for(b"x")).status_code))
        thread.start()
        reader.next()
    thread.join(30)
    assert answers == [503]


def test_a_page_that_cannot_be_read_is_told_without_a_path() -> None:
    reader = HeldReader()
    with served(Settings(device="cpu"), reader) as server:
        for error, expected in (
            (DsocrError("/tmp/x/1.png: not an image of a known format"), (400, "the image: not an image")),
            (ValueError("/secret/path"), (500, "unforeseen ValueError, number")),
            (Cancelled(), (503, "too many requests wait")),
        ):
            answers: list[tuple[int, str]] = []
            thread = threading.Thread(target=lambda: answers.append(refused(server, body_for(b"x"))))  # noqa: B023
            thread.start()
            reader.next().on_end(error)
            thread.join(30)
            assert answers[0][0] == expected[0] and answers[0][1].startswith(expected[1])
            assert "/tmp" not in answers[0][1] and "secret" not in answers[0][1]


def test_too_many_requests_are_sent_away_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_module, "MOST_WAITING", 1)
    reader = HeldReader()
    with served(Settings(device="cpu"), reader) as server:
        thread = threading.Thread(target=lambda: server.post(body_for(b"x")))
        thread.start()
        job = reader.next()
        response = server.post(body_for(b"y"))
        assert response.status_code == 503 and response.headers["retry-after"] == "1"
        assert server.get("/health").json()["waiting"] == 1
        job.on_end(result_of(job))
        thread.join(30)
        assert server.get("/health").json()["waiting"] == 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("begun", [False, True])
def test_a_client_that_goes_away_ends_its_page(stream: bool, begun: bool) -> None:
    reader = HeldReader()
    content = json.dumps(body_for(b"x", stream=stream)).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(content)}\r\n\r\n"
    )
    with served(Settings(device="cpu"), reader) as server:
        port = int(server.address.rpartition(":")[2].removesuffix("/v1"))
        with socket.create_connection(("127.0.0.1", port), timeout=30) as client:
            client.sendall(head.encode() + content)
            job = reader.next()
            if begun:
                job.on_begin()
            if begun and stream:
                job.observer.text("first words")
                received = b""
                while b"first words" not in received:
                    received += client.recv(65536)
        # What it writes meanwhile finds nobody.
        while not job.cancel.wait(0.05):
            job.observer.text("b")
        job.on_end(Cancelled())
        assert server.get("/health").json()["waiting"] == 0


def test_nothing_is_left_of_an_image(tmp_path: Path) -> None:
    reader = Answering()
    with served(Settings(device="cpu"), reader) as server:
        server.post(body_for(b"pixels"))
        assert not reader.jobs[0].request.image.exists()
        folder = reader.jobs[0].request.image.parent
        assert folder.is_dir()
    assert not folder.exists()
