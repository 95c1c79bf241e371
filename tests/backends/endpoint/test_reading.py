"""What a server answers: the result of a good answer, one line for everything else."""

import asyncio
import gzip
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dsocr_core.backends.endpoint.answers import EndpointError
from dsocr_core.backends.endpoint.backend import Endpoint
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.base.specs.kinds import EndpointSpec
from dsocr_core.reading.records import CancelToken, OcrResult, SilentObserver
from dsocr_core.settings import Settings
from tests.support.scripted_server import (
    PIECES,
    TEXT,
    Script,
    ScriptedServer,
    busy,
    chunk_of,
    cut_off,
    endless,
    endless_line,
    native,
    raw,
    scripted_server,
    silent,
    stalls,
    streamed,
    unfinished,
    whole,
)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.png"
    Image.new("RGB", (40, 30), "white").save(path)
    return path


class Waits:
    """Time that passes at once, and how much of it."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


class Heard(SilentObserver):
    def __init__(self) -> None:
        self.pieces: list[str] = []

    def text(self, delta: str) -> None:
        self.pieces.append(delta)


def backend_of(server: ScriptedServer, waits: Waits | None = None, **settings: Any) -> Endpoint:
    choice = {"spec": f"endpoint:{server.address}", "model": "m", **settings}
    run = Settings(device="cpu", b=choice)
    spec = run.spec("b")
    assert isinstance(spec, EndpointSpec)
    return Endpoint(spec, run.of_side("b"), waits or Waits())


def read(server: ScriptedServer, page: Path, waits: Waits | None = None, **settings: Any) -> OcrResult:
    backend = backend_of(server, waits, **settings)
    return backend.read(backend.settings.request(page))


def test_a_stream_is_passed_on_as_it_comes_and_makes_the_result(page: Path) -> None:
    heard = Heard()
    with scripted_server(streamed(ids=True)) as server:
        backend = backend_of(server)
        result = backend.read(backend.settings.request(page), heard)
    assert tuple(heard.pieces) == PIECES
    assert (result.backend, result.text_raw, result.image_size) == ("endpoint", TEXT, (40, 30))
    assert (result.token_ids, result.finish_reason) == ((0, 1, 2, 3, 4, 5), "eos")
    assert (result.inputs, result.timings) == (None, ())
    environment = result.environment
    assert (environment["model"], environment["prompt_ids"]) == ("said-model", "0 9 9 7")
    assert (environment["prompt_tokens"], environment["completion_tokens"]) == ("4", "6")


def test_half_surrogates_of_an_answer_are_mended_where_they_come_in(page: Path) -> None:
    pieces = ["a \ud83d", "\ude00 b ", "\ud800 c"]
    heard = Heard()
    with scripted_server(streamed(pieces)) as server:
        backend = backend_of(server)
        result = backend.read(backend.settings.request(page), heard)
    assert result.text_raw == "a \U0001f600 b ? c"
    "".join(heard.pieces).encode()


def test_what_a_server_does_not_tell_is_not_known(page: Path) -> None:
    with scripted_server(streamed()) as server:
        result = read(server, page)
    assert (result.token_ids, result.token_texts, result.top_two) == (None, (), ())


@pytest.mark.parametrize(
    ("finish", "reason", "words"),
    [
        ("stop", "eos", None), ("length", "length", None), ("repetition", None, "repetition"),
        ({"type": "length", "length": 9}, "length", None), ("max_tokens", "length", None),
        ("", None, None), ("null", None, None), (None, None, None),
    ],
)  # fmt: skip
def test_why_it_ended_is_the_server_s_word(
    page: Path, finish: Any, reason: str | None, words: str | None
) -> None:
    with scripted_server(whole(finish=finish)) as server:
        result = read(server, page, stream=False)
    assert (result.text_raw, result.finish_reason) == (TEXT, reason)
    assert server.bodies[0]["stream"] is False
    assert result.environment.get("finish_reason") == words


@pytest.mark.parametrize("cut", ["abort", "error", "content_filter", "Timeout", {"type": "abort"}])
@pytest.mark.parametrize("stream", [False, True])
def test_an_end_that_is_none_is_an_error(page: Path, cut: Any, stream: bool) -> None:
    script = (
        events(chunk_of("# Hel"), chunk_of(None, cut), b"[DONE]") if stream else whole("# Hel", finish=cut)
    )
    with scripted_server(script) as server, pytest.raises(EndpointError, match="cut off after 5 characters"):
        read(server, page, stream=stream)


def test_a_server_that_has_only_loaded_its_model_has_read_nothing(page: Path) -> None:
    with scripted_server(native(reason="load")) as server, pytest.raises(EndpointError, match=r"\(load\)"):
        read(server, page, flavour="ollama")


def events(*data: Any) -> Script:
    def script(reply: Any, sent: Any) -> None:
        reply.begin()
        for each in data:
            reply.event(each)
        reply.end()

    return script


@pytest.mark.parametrize("word", ["", "null", "None", None])
@pytest.mark.parametrize("done", [False, True])
def test_a_stream_without_a_word_of_its_end_is_whole_where_nothing_follows(
    page: Path, word: str | None, done: bool
) -> None:
    script = events(chunk_of("# Hel", word), chunk_of("lo", word), *([b"[DONE]"] if done else []))
    with scripted_server(script) as server:
        if done:
            assert (read(server, page).text_raw, read(server, page).finish_reason) == ("# Hello", None)
        else:
            with pytest.raises(EndpointError, match="ended after 7 characters without saying"):
                read(server, page)


@pytest.mark.parametrize(
    "more",
    [{"choices": None, "usage": {"prompt_tokens": 4}}, {"usage": {"prompt_tokens": 4}}, {"type": "ping"}],
)
def test_a_chunk_without_choices_takes_nothing_away(page: Path, more: Any) -> None:
    script = events(more, chunk_of("# Hello"), more, chunk_of(None, "stop"), more, b"[DONE]")
    with scripted_server(script) as server:
        result = read(server, page)
    assert (result.text_raw, result.finish_reason) == ("# Hello", "eos")
    assert result.environment.get("prompt_tokens") == ("4" if "usage" in more else None)


@pytest.mark.parametrize("name", ["reasoning_content", "thinking", "reasoning"])
def test_a_text_that_a_server_takes_for_thoughts_is_the_text(page: Path, name: str) -> None:
    deltas = [{"delta": {name: "# Hel"}}, {"delta": {name: "lo", "content": ""}}]
    ends = {"delta": {}, "finish_reason": "stop"}
    with scripted_server(events(*({"choices": [each]} for each in (*deltas, ends)))) as server:
        result = read(server, page)
    assert (result.text_raw, result.environment["text_from"]) == ("# Hello", name)
    both = {"choices": [{"delta": {name: "I think"}}]}
    with scripted_server(events(both, chunk_of("# Hello", "stop"))) as server:
        result = read(server, page)
    assert (result.text_raw, result.environment["left_out"]) == ("# Hello", name)


def test_token_ids_are_read_from_log_probabilities_that_name_them(page: Path) -> None:
    steps = [{"token": f"token_id:{token}", "logprob": -0.5} for token in (7, 8, 1)]
    with scripted_server(whole(logprobs={"content": steps})) as server:
        result = read(server, page)
    assert result.token_ids == (7, 8, 1)


def test_texts_of_tokens_are_taken_where_each_id_has_one(page: Path) -> None:
    steps = [{"token": text, "logprob": -0.25} for text in ("# ", "Hello")]
    with scripted_server(whole("# Hello", token_ids=[5, 6], logprobs={"content": steps})) as server:
        assert read(server, page).token_texts == ("# ", "Hello")
    with scripted_server(whole("# Hello", token_ids=[5], logprobs={"content": steps})) as server:
        assert read(server, page).token_texts == ()


@pytest.mark.parametrize("status", [429, 503])
def test_a_busy_server_is_asked_again_later_and_later(page: Path, status: int) -> None:
    waits = Waits()
    with scripted_server(busy(status), busy(status), busy(status, Retry_After="7"), streamed()) as server:
        assert read(server, page, waits).text_raw == TEXT
        assert len(server.bodies) == 4
    assert waits.seconds == [1.0, 2.0, 7.0]


def test_a_wait_is_never_longer_than_half_a_minute(page: Path) -> None:
    waits = Waits()
    with scripted_server(busy(503, Retry_After="86400"), streamed()) as server:
        read(server, page, waits)
    assert waits.seconds == [30.0]


FAULTS: dict[str, tuple[Script, str]] = {
    "429": (busy(429), r"answered 429 3 times \(overloaded\); try later"),
    "503": (busy(503), r"answered 503 3 times \(overloaded\)"),
    "400": (busy(400), r"answered 400 \(overloaded\)"),
    "401": (busy(401), "name the variable of its key"),
    "404": (busy(404), "is the address right"),
    "500 in HTML": (raw(b"<html>oops</html>", "text/html", 500), "answered 500 .<html>oops"),
    "a redirect": (raw(b"", "text/plain", 302, Location="http://elsewhere/"), "leads elsewhere"),
    "HTML": (raw(b"<html><body>login</body>", "text/html"), "HTML instead of JSON"),
    "HTML called JSON": (raw(b"<html>login", "application/json"), "HTML instead of JSON"),
    "another content type": (raw(b"hello", "text/plain"), "content type 'text/plain' instead of JSON"),
    "no content": (raw(b"", "application/json"), r"not valid JSON"),
    "half a document": (raw(b'{"choices": [', "application/json"), "not valid JSON"),
    "a list": (raw(b"[]", "application/json"), "not a JSON object"),
    "no choices": (raw(b'{"ok": true}', "application/json"), "has no choices"),
    "no text": (raw(b'{"choices": [{"message": {"content": 3}}]}', "application/json"), "content is no text"),
    "deep": (raw(b"[" * 100_000, "application/json"), "nested too deeply"),
    "negative ids": (whole(token_ids=[-1]), "token ids that are none"),
    "packed": (raw(gzip.compress(b"{}"), "application/json", Content_Encoding="gzip"), "packed .gzip."),
    "cut off": (cut_off, "connection ended before the answer did"),
    "unfinished": (unfinished, "ended after 5 characters without saying that it is complete"),
    "a gigabyte of tokens": (endless, "text is longer than 4,000,000 characters"),
    "a gigabyte on a line": (endless_line, "a line of the answer is longer than 8 MB"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_one_line_that_names_the_server(page: Path, fault: str) -> None:
    script, says = FAULTS[fault]
    with scripted_server(script) as server:
        with pytest.raises(EndpointError, match=says) as error:
            read(server, page, attempts=3)
        assert str(error.value).startswith(server.address)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


def test_an_error_within_a_stream_is_told(page: Path) -> None:
    def script(reply: Any, sent: Any) -> None:
        reply.begin()
        reply.event(chunk_of("# Hel"))
        reply.event({"error": {"message": "the engine died"}})
        reply.end()

    with scripted_server(script) as server, pytest.raises(EndpointError, match="the engine died"):
        read(server, page)


def test_the_faults_of_lines_of_json_are_told(page: Path) -> None:
    error = raw(b'{"error": "no such model"}\n', "application/x-ndjson")
    with scripted_server(error) as server, pytest.raises(EndpointError, match="no such model"):
        read(server, page, flavour="ollama")
    with scripted_server(native(reason="length")) as server:
        assert read(server, page, flavour="ollama").finish_reason == "length"


def test_a_key_that_a_server_sends_back_is_hidden(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    said = json.dumps({"error": "bad key sk-very-secret"}).encode()
    refuses = raw(said, "application/json", 403)
    with scripted_server(refuses) as server, pytest.raises(EndpointError, match=r"bad key \*\*\*"):
        read(server, page, key_variable="MY_KEY")


@pytest.mark.parametrize("script", [silent, stalls])
def test_a_page_takes_no_longer_than_it_may(page: Path, script: Script) -> None:
    says = r"no complete answer within 0\.3 s; raise timeout_s"
    with scripted_server(script) as server, pytest.raises(EndpointError, match=says):
        read(server, page, timeout_s=0.3)


def test_nobody_there_is_one_line(page: Path) -> None:
    with scripted_server() as server:
        pass
    with pytest.raises(EndpointError, match="no connection; does a server run there"):
        read(server, page)


@pytest.mark.parametrize("script", [silent, stalls])
def test_cancelled_it_stops_in_the_middle_of_a_wait(page: Path, script: Script) -> None:
    with scripted_server(script) as server:
        backend, cancel = backend_of(server), CancelToken()
        ended: list[type[BaseException]] = []

        def run() -> None:
            try:
                backend.read(backend.settings.request(page), None, cancel)
            except DsocrError as error:
                ended.append(type(error))

        thread = threading.Thread(target=run)
        thread.start()
        while not server.bodies:
            thread.join(0.01)
        cancel.set()
        thread.join(10)
    assert ended == [Cancelled]


@pytest.mark.parametrize(
    "models", [{}, {"data": []}, {"data": [3]}, {"data": [{"id": 3}]}, {"data": [{"id": "a\nb"}]}]
)
def test_a_server_that_lists_no_model_wants_one_named(page: Path, models: Any) -> None:
    with scripted_server(models=models) as server, pytest.raises(EndpointError, match="name one with model"):
        read(server, page, model="")


def test_what_decides_a_result_is_in_its_key(page: Path, tmp_path: Path) -> None:
    with scripted_server() as server:
        settings: list[dict[str, Any]] = [
            {},
            {"flavour": "vllm"},
            {"model": "other"},
            {"body": {"seed": 1}},
            {"prompt": "free_ocr"},
            {"infer.max_new_tokens": 5},
        ]
        keys = []
        for given in settings:
            backend = backend_of(server, **given)
            keys.append(backend.key(backend.settings.request(page)))
        assert len(set(keys)) == len(keys)
        same = backend_of(server, concurrency=9, timeout_s=5, attempts=1)
        assert same.key(same.settings.request(page)) == keys[0]
