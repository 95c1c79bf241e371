"""What a server answers: the result of a good answer, one line for everything else."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.backends.exchange import EndpointError
from dsocr_core.base.errors import Cancelled
from dsocr_core.reading.records import CancelToken, Observer
from tests.backends.endpoint.conftest import Ask, endpoint_of
from tests.backends.endpoint.scripted_server import (
    TEXT,
    Script,
    begins,
    busy,
    endless,
    native,
    raw,
    scripted_server,
    silent,
    whole,
)


class Heard(Observer):
    pieces = ""

    def text(self, delta: str) -> None:
        self.pieces += delta


def test_an_answer_makes_the_result_and_what_it_does_not_say_is_not_known(ask: Ask) -> None:
    heard = Heard()
    result, server = ask(whole(token_ids=[5, 6, 7]), heard=heard)
    assert (result.backend, result.text_raw, result.image_size) == ("endpoint", TEXT, (40, 30))
    assert (result.token_ids, result.finish_reason, heard.pieces) == ((5, 6, 7), "eos", TEXT)
    assert (result.inputs, result.timings, result.token_texts, result.top_two) == (None, (), (), ())
    facts = result.environment
    assert (facts["model"], facts["prompt_tokens"], facts["completion_tokens"]) == ("said-model", "4", "6")
    assert server.bodies[0]["stream"] is False
    less, _ = ask(whole("a \ud83d\ude00 b \ud800 c"))  # half surrogates are mended
    assert (less.token_ids, less.text_raw) == (None, "a \U0001f600 b \ufffd c")


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
    result, _ = ask(whole(finish=finish))
    assert (result.text_raw, result.finish_reason) == (TEXT, reason)
    assert result.environment.get("finish_reason") == words


@pytest.mark.parametrize("name", ["reasoning_content", "thinking", "reasoning"])
@pytest.mark.parametrize(("content", "text"), [("", "# Hello"), (None, "# Hello"), ("# Text", "# Text")])
def test_thoughts_are_the_text_where_there_is_no_other(
    ask: Ask, name: str, content: str | None, text: str
) -> None:
    data = {"choices": [{"message": {name: "# Hello", "content": content}, "finish_reason": "stop"}]}
    result, _ = ask(raw(json.dumps(data).encode()))
    assert result.text_raw == text


FAULTS: dict[str, tuple[Script, str, dict[str, Any]]] = {
    "429": (busy(429), r"answered 429 \(overloaded\); try later, or with a smaller concurrency", {}),
    "400": (busy(400), r"answered 400 \(overloaded\)", {}),
    "401": (busy(401), "name the variable of its key", {}),
    "404": (busy(404), "is the address right", {}),
    "500 in HTML": (raw(b"<html>oops</html>", "text/html", 500), "answered 500 .<html>oops", {}),
    "a redirect": (raw(b"", "text/plain", 302, Location="http://elsewhere/"), "leads elsewhere", {}),
    "HTML": (raw(b"<html>login"), "HTML instead of JSON", {}),
    "another content type": (raw(b"hello", "text/plain"), r"no answer in JSON: .*\(hello\)", {}),
    "half a document": (raw(b'{"choices": ['), "not valid JSON", {}),
    "a list": (raw(b"[]"), "not a JSON object", {}),
    "no choices": (raw(b'{"choices": [3]}'), "has no choices", {}),
    "no text": (raw(b'{"choices": [{"message": {"content": 3}}]}'), "content is no text", {}),
    "deep": (raw(b"[" * 100_000), "nested too deeply", {}),
    "negative ids": (whole(token_ids=[-1]), "token ids that are none", {}),
    "packed": (raw(gzip.compress(b"{}"), Content_Encoding="gzip"), "packed .gzip.", {}),
    "an error": (raw(b'{"error": {"message": "it died"}}'), "the server says: it died", {}),
    "a long text": (whole("x" * 4_000_001), "text is longer than 4,000,000 characters", {}),
    "cut off": (begins(), "connection ended before the answer did", {}),
    "a gigabyte": (endless, "the answer is longer than 64 MB", {}),
    "silent": (silent, r"no complete answer within 0\.3 s; raise timeout_s", {"timeout_s": 0.3}),
    "stalls": (begins(waits=True), r"no complete answer within 0\.3 s", {"timeout_s": 0.3}),
    "a model that was only loaded": (native(reason="load"), r"cut off after \d+", {"flavour": "ollama"}),
    **{f"ended by {cut}": (whole("# Hel", finish=cut), r"cut off after 5 characters", {})
       for cut in ("abort", "Timeout", {"type": "content_filter"})},
    **{f"a key sent back with {status}": (raw(b'{"error": "bad key sk-secret"}', status=status),
       r"bad key \*\*\*", {"key_variable": "MY_KEY"}) for status in (403, 200)},
    **{f"no model in {models}": (whole(), "name one with model", {"models": models, "model": ""})
       for models in ({}, {"data": []}, {"data": [3]}, {"data": [{"id": 3}]}, {"data": [{"id": "a\nb"}]})},
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_every_fault_is_one_line_that_names_the_server(
    ask: Ask, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MY_KEY", "sk-secret")
    script, says, given = FAULTS[fault]
    with pytest.raises(EndpointError, match=rf"^http://127\.0\.0\.1:\d+(/v1)?: .*{says}") as error:
        ask(script, **given)
    assert "\n" not in str(error.value) and len(str(error.value)) < 300


def test_a_server_that_is_not_there_is_one_line(page: Path) -> None:
    with scripted_server() as server:
        pass
    backend = endpoint_of(server, model="m")
    with pytest.raises(EndpointError, match="no connection; does a server run there"):
        backend.read(backend.settings.request(page))


@pytest.mark.parametrize("script", [silent, begins(waits=True)])
def test_cancelled_it_stops_in_the_middle_of_a_wait(page: Path, script: Script) -> None:
    class Cancel(CancelToken):
        def is_set(self) -> bool:
            return bool(server.bodies)

    with scripted_server(script) as server:
        backend = endpoint_of(server, model="m")
        with pytest.raises(Cancelled):
            backend.read(backend.settings.request(page), None, Cancel())
