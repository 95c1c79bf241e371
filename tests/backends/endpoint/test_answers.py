"""What a server answers: the result of a good answer, one line for everything else."""

from __future__ import annotations

import gzip
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.backends.exchange import EndpointError
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.reading.records import CancelToken
from tests.backends.endpoint.conftest import Ask, Heard, Waits, endpoint_of
from tests.support.scripted_server import (
    PIECES,
    TEXT,
    Script,
    busy,
    chunk_of,
    cut_off,
    endless,
    endless_line,
    events,
    native,
    raw,
    scripted_server,
    silent,
    stalls,
    streamed,
    unfinished,
    whole,
)


def test_a_stream_is_passed_on_as_it_comes_and_makes_the_result(ask: Ask) -> None:
    heard = Heard()
    result, _ = ask(streamed(ids=True), heard=heard)
    assert tuple(heard.pieces) == PIECES
    assert (result.backend, result.text_raw, result.image_size) == ("endpoint", TEXT, (40, 30))
    assert (result.token_ids, result.finish_reason) == ((0, 1, 2, 3, 4, 5), "eos")
    assert (result.inputs, result.timings) == (None, ())
    environment = result.environment
    assert (environment["model"], environment["prompt_ids"]) == ("said-model", "0 9 9 7")
    assert (environment["prompt_tokens"], environment["completion_tokens"]) == ("4", "6")
    less, _ = ask(streamed())  # what a server does not tell is not known
    assert (less.token_ids, less.token_texts, less.top_two) == (None, (), ())


def test_half_surrogates_of_an_answer_are_mended_where_they_come_in(ask: Ask) -> None:
    heard = Heard()
    result, _ = ask(streamed(["a \ud83d", "\ude00 b ", "\ud800 c"]), heard=heard)
    assert result.text_raw == "a \U0001f600 b ? c"
    "".join(heard.pieces).encode()


@pytest.mark.parametrize(
    ("finish", "reason", "words"),
    [
        ("stop", "eos", None), ("length", "length", None), ("repetition", None, "repetition"),
        ({"type": "length", "length": 9}, "length", None), ("max_tokens", "length", None),
        ("", None, None), ("null", None, None), (None, None, None),
    ],
)  # fmt: skip
def test_why_it_ended_is_the_server_s_word(
    ask: Ask, finish: Any, reason: str | None, words: str | None
) -> None:
    result, server = ask(whole(finish=finish), stream=False)
    assert (result.text_raw, result.finish_reason) == (TEXT, reason)
    assert server.bodies[0]["stream"] is False
    assert result.environment.get("finish_reason") == words


@pytest.mark.parametrize("cut", ["abort", "content_filter", "Timeout", {"type": "abort"}])
def test_an_end_that_is_none_is_an_error(ask: Ask, cut: Any) -> None:
    pieces = events(chunk_of("# Hel"), chunk_of(None, cut), b"[DONE]")
    for script, stream in ((pieces, True), (whole("# Hel", finish=cut), False)):
        with pytest.raises(EndpointError, match="cut off after 5 characters"):
            ask(script, stream=stream)


def test_a_stream_without_a_word_of_its_end_is_whole_where_nothing_follows(ask: Ask) -> None:
    for word in ("", "null", "None", None):
        pieces = (chunk_of("# Hel", word), chunk_of("lo", word))
        result, _ = ask(events(*pieces, b"[DONE]"))
        assert (result.text_raw, result.finish_reason) == ("# Hello", None)
        with pytest.raises(EndpointError, match="ended after 7 characters without saying"):
            ask(events(*pieces))


@pytest.mark.parametrize(
    "more",
    [{"choices": None, "usage": {"prompt_tokens": 4}}, {"usage": {"prompt_tokens": 4}}, {"type": "ping"}],
)
def test_a_chunk_without_choices_takes_nothing_away(ask: Ask, more: Any) -> None:
    result, _ = ask(events(more, chunk_of("# Hello"), more, chunk_of(None, "stop"), more, b"[DONE]"))
    assert (result.text_raw, result.finish_reason) == ("# Hello", "eos")
    assert result.environment.get("prompt_tokens") == ("4" if "usage" in more else None)


@pytest.mark.parametrize("name", ["reasoning_content", "thinking", "reasoning"])
def test_a_text_that_a_server_takes_for_thoughts_is_the_text(ask: Ask, name: str) -> None:
    deltas = [{"delta": {name: "# Hel"}}, {"delta": {name: "lo", "content": ""}}]
    ends = {"delta": {}, "finish_reason": "stop"}
    result, _ = ask(events(*({"choices": [each]} for each in (*deltas, ends))))
    assert (result.text_raw, result.environment["text_from"]) == ("# Hello", name)
    result, _ = ask(events({"choices": [{"delta": {name: "I think"}}]}, chunk_of("# Hello", "stop")))
    assert (result.text_raw, result.environment["left_out"]) == ("# Hello", name)


@pytest.mark.parametrize(
    ("tokens", "ids", "expected"),
    [
        (["token_id:7", "token_id:1"], None, ((7, 1), ("token_id:7", "token_id:1"))),
        (["# ", "Hello"], [5, 6], ((5, 6), ("# ", "Hello"))),
        (["# ", "Hello"], [5], ((5,), ())),  # not a text for each id
        (["# ", "Hello"], None, (None, ())),
    ],
)  # fmt: skip
def test_tokens_are_read_where_the_answer_names_them(
    ask: Ask, tokens: list[str], ids: list[int] | None, expected: tuple[Any, Any]
) -> None:
    more = {} if ids is None else {"token_ids": ids}
    steps = [{"token": token, "logprob": -0.5} for token in tokens]
    result, _ = ask(whole("# Hello", logprobs={"content": steps}, **more))
    assert (result.token_ids, result.token_texts) == expected


def test_a_busy_server_is_asked_again_later_and_later(ask: Ask) -> None:
    for answers, seconds in (
        ((busy(429), busy(503), busy(429, Retry_After="7")), [1.0, 2.0, 7.0]),
        ((busy(503, Retry_After="86400"),), [30.0]),  # never longer than half a minute
    ):
        waits = Waits()
        result, server = ask(*answers, streamed(), waits=waits)
        assert result.text_raw == TEXT and len(server.bodies) == len(answers) + 1
        assert waits.seconds == seconds


JSON = "application/json"
FAULTS: dict[str, tuple[Script, str]] = {
    "429": (busy(429), r"answered 429 3 times \(overloaded\); try later"),
    "503": (busy(503), r"answered 503 3 times \(overloaded\)"),
    "400": (busy(400), r"answered 400 \(overloaded\)"),
    "401": (busy(401), "name the variable of its key"),
    "404": (busy(404), "is the address right"),
    "500 in HTML": (raw(b"<html>oops</html>", "text/html", 500), "answered 500 .<html>oops"),
    "a redirect": (raw(b"", "text/plain", 302, Location="http://elsewhere/"), "leads elsewhere"),
    "HTML": (raw(b"<html><body>login</body>", "text/html"), "HTML instead of JSON"),
    "HTML called JSON": (raw(b"<html>login", JSON), "HTML instead of JSON"),
    "another content type": (raw(b"hello", "text/plain"), "content type 'text/plain' instead of JSON"),
    "no content": (raw(b"", JSON), r"not valid JSON"),
    "half a document": (raw(b'{"choices": [', JSON), "not valid JSON"),
    "a list": (raw(b"[]", JSON), "not a JSON object"),
    "no choices": (raw(b'{"ok": true}', JSON), "has no choices"),
    "other choices": (raw(b'{"choices": [3]}', JSON), "the choices are no list of objects"),
    "no text": (raw(b'{"choices": [{"message": {"content": 3}}]}', JSON), "content is no text"),
    "deep": (raw(b"[" * 100_000, JSON), "nested too deeply"),
    "negative ids": (whole(token_ids=[-1]), "token ids that are none"),
    "packed": (raw(gzip.compress(b"{}"), JSON, Content_Encoding="gzip"), "packed .gzip."),
    "an error in a stream": (events(chunk_of("# Hel"), {"error": {"message": "it died"}}), "it died"),
    "an error in lines": (raw(b'{"error": "no such model"}\n', "application/x-ndjson"), "no such model"),
    "cut off": (cut_off, "connection ended before the answer did"),
    "unfinished": (unfinished, "ended after 5 characters without saying that it is complete"),
    "a gigabyte of tokens": (endless, "text is longer than 4,000,000 characters"),
    "a gigabyte on a line": (endless_line, "a line of the answer is longer than 8 MB"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_one_line_that_names_the_server(ask: Ask, fault: str) -> None:
    script, says = FAULTS[fault]
    with pytest.raises(EndpointError, match=rf"^http://127\.0\.0\.1:\d+/v1: .*{says}") as error:
        ask(script, attempts=3)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


def test_ollamas_ends_are_read_and_a_model_that_was_only_loaded_has_read_nothing(ask: Ask) -> None:
    result, _ = ask(native(reason="length"), flavour="ollama")
    assert result.finish_reason == "length"
    with pytest.raises(EndpointError, match=r"\(load\)"):
        ask(native(reason="load"), flavour="ollama")


def test_a_key_that_a_server_sends_back_is_hidden(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "sk-very-secret")
    refuses = raw(json.dumps({"error": "bad key sk-very-secret"}).encode(), JSON, 403)
    with pytest.raises(EndpointError, match=r"bad key \*\*\*"):
        ask(refuses, key_variable="MY_KEY")


@pytest.mark.parametrize("script", [silent, stalls])
def test_a_page_takes_no_longer_than_it_may(ask: Ask, script: Script) -> None:
    with pytest.raises(EndpointError, match=r"no complete answer within 0\.3 s; raise timeout_s"):
        ask(script, timeout_s=0.3)


def test_nobody_there_is_one_line(page: Path) -> None:
    with scripted_server() as server:
        pass
    backend = endpoint_of(server, model="m")
    with pytest.raises(EndpointError, match="no connection; does a server run there"):
        backend.read(backend.settings.request(page))


@pytest.mark.parametrize("script", [silent, stalls])
def test_cancelled_it_stops_in_the_middle_of_a_wait(page: Path, script: Script) -> None:
    with scripted_server(script) as server:
        backend, cancel = endpoint_of(server, model="m"), CancelToken()
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
def test_a_server_that_lists_no_model_wants_one_named(ask: Ask, models: Any) -> None:
    with pytest.raises(EndpointError, match="name one with model"):
        ask(models=models, model="")
