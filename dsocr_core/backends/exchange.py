"""One request to a server, bounded in time and size. Its answer is not trusted.

httpx runs on an event loop of the calling thread, so that a cancelled wait ends at once. Proxies, redirects
and `.netrc` are off: only the address that was named is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any

import httpx

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.base.errors import Cancelled, DsocrError, one_line
from dsocr_core.base.sanitise import without_surrogates
from dsocr_core.reading.records import CancelToken, FinishReason

MOST_TEXT, MOST_TOKENS = 4_000_000, 1_000_000
"""Most characters and tokens of a page: the published limit of 8,192 tokens is some 40,000 characters."""
MOST_ANSWER_BYTES = 64 * 2**20
CONNECT_S, POLL_S = 10.0, 0.05
_NO_KEY, _BUSY = (
    "; name the variable of its key with key_variable",
    "; try later, or with a smaller concurrency",
)
_ADDRESS = "; is the address right? It usually ends with /v1"
_HINTS = {401: _NO_KEY, 403: _NO_KEY, 404: _ADDRESS, 429: _BUSY, 503: _BUSY}
_ENDED = "the connection ended before the answer did"
_CAUSES: dict[type[httpx.HTTPError], str] = {
    httpx.ConnectTimeout: f"no connection within {CONNECT_S:g} s; does a server run there?",
    httpx.ConnectError: "no connection; does a server run there?",
    httpx.RemoteProtocolError: _ENDED,
    httpx.ReadError: _ENDED,
}
_TOO_MANY = re.compile(r"max_(completion_|new_)?tokens|context length|output tokens", re.IGNORECASE)
_FEWER = "ask for fewer tokens: --infer.max-new-tokens N, or of this server alone --b.body.max_tokens N"
_ENDS: dict[str, FinishReason] = {
    "stop": "eos", "eos": "eos", "eos_token": "eos", "length": "length", "max_tokens": "length",
}  # fmt: skip
_CUT = (
    "abort", "aborted", "error", "content_filter", "load", "unload", "timeout", "cancelled", "canceled",
    "disconnected", "overloaded",
)  # fmt: skip
"""Finish reasons after which a page counts as not read."""
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""Fields in which servers return a model's reasoning."""
_OLLAMA_COUNTS = {"prompt_eval_count": "prompt_tokens", "eval_count": "completion_tokens"}


class EndpointError(DsocrError):
    """A request to a server that failed; the message that is shown names the server's address."""


def document(content: bytes) -> dict[str, Any]:
    """Parse a JSON object. Raises EndpointError."""
    try:
        return parse_json(content, any_number=True)
    except InvalidFile as refused:
        words = "HTML instead of JSON" if content.lstrip()[:1] == b"<" else f"no answer in JSON: {refused}"
        raise EndpointError(f"{words} ({shown(content)})") from None


def shown(content: bytes | str, most: int = 80) -> str:
    """Shorten a server's text to its beginning, on one line."""
    text = content[: most * 4].decode(errors="replace") if isinstance(content, bytes) else content
    return " ".join(text.split())[:most] or "nothing"


def _refused(error: Any) -> str:
    """Words of a server's refusal; where it is about too many tokens, with the option that lowers them."""
    words = shown(str(error.get("message", error) if isinstance(error, dict) else error), 2000)
    return f"{words}; {_FEWER}" if _TOO_MANY.search(words) else words


# --- what it says of a page -----------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """Answer of a server about one page. None is not known."""

    text: str
    token_ids: list[int] | None
    finish_reason: FinishReason | None
    finish_words: str | None  # the server's own word for any other end
    model: str | None
    usage: dict[str, int]


def answer_of(data: dict[str, Any]) -> Answer:
    """Take the answer out of a chat completion, or of Ollama's own form. Raises EndpointError."""
    if error := data.get("error"):
        raise EndpointError(f"the server says: {_refused(error)}")
    choices = data.get("choices")
    if isinstance(data.get("message"), dict):
        choices = [{"message": data["message"], "finish_reason": data.get("done_reason")}]
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise EndpointError(f"the answer has no choices ({shown(str(choices))})")
    choice, message = choices[0], choices[0].get("message")
    # Some servers put all of the text into a field for reasoning.
    fields = [message.get(name) for name in ("content", *_THOUGHTS)] if isinstance(message, dict) else [3]
    if not all(isinstance(each, str) or each is None for each in fields):
        raise EndpointError("the content is no text")
    text = next(filter(None, fields), "")
    ids = choice.get("token_ids")
    if ids is not None and not (
        type(ids) is list and all(type(each) is int and 0 <= each < 2**31 for each in ids)
    ):
        raise EndpointError("token ids that are none")
    if len(text) > MOST_TEXT or len(ids or ()) > MOST_TOKENS:
        raise EndpointError(f"the text is longer than {MOST_TEXT:,} characters or {MOST_TOKENS:,} tokens")
    reason = choice.get("finish_reason")
    if isinstance(reason, dict):  # as SGLang's own
        reason = reason.get("type", reason.get("reason"))
    word = reason.strip().lower() if isinstance(reason, str) else ""
    if word in _CUT:
        raise EndpointError(f"the page was cut off after {len(text):,} characters ({word})")
    other = None if word in ("", "null", "none", *_ENDS) else shown(word, 40)
    counts = {name: data.get(key) for key, name in _OLLAMA_COUNTS.items()}
    counts |= data["usage"] if isinstance(data.get("usage"), dict) else {}
    usage = {name: value for name, value in counts.items() if type(value) is int}
    model = data["model"] if isinstance(data.get("model"), str) else None
    return Answer(without_surrogates(text), ids, _ENDS.get(word), other, model, usage)


# --- the connection -------------------------------------------------------------------------------


@dataclass
class Client:
    """Address of a server, with the key and the time limit of its requests."""

    address: str
    key: str = ""
    timeout_s: float = 600.0

    def hidden(self, text: str) -> str:
        """Replace the key in a text that the server may have sent back."""
        return text.replace(self.key, "***") if self.key else text

    def ask(
        self, path: str, body: bytes | None = None, cancel: CancelToken | None = None
    ) -> tuple[dict[str, Any], str]:
        """GET a path, or POST a body to it. Returns the JSON document and the name of the server's software.

        Raises EndpointError or Cancelled.
        """
        within_s = self.timeout_s if body is not None else min(self.timeout_s, 30.0)
        logging.getLogger("httpx").setLevel(logging.WARNING)  # it logs a line for each request
        try:
            work = self._answer(self.address + path, body)
            content, server = asyncio.run(_watched(work, within_s, cancel))
            return document(content), server
        except TimeoutError:
            words = f"no complete answer within {within_s:g} s; raise timeout_s"
        except httpx.HTTPError as error:
            words = _CAUSES.get(type(error), f"{type(error).__name__} ({one_line(error, 120)})")
        except EndpointError as error:
            words = str(error)
        raise EndpointError(self.hidden(f"{self.address}: {words}"))

    async def _answer(self, url: str, body: bytes | None) -> tuple[bytes, str]:
        headers = {"Accept-Encoding": "identity", "User-Agent": "dsocr", "Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        timeout, method = httpx.Timeout(None, connect=CONNECT_S), "GET" if body is None else "POST"
        async with (
            httpx.AsyncClient(timeout=timeout, trust_env=False, headers=headers) as client,
            client.stream(method, url, content=body) as response,
        ):
            content, status = await _content(response), response.status_code
        if status != 200:
            raise EndpointError(f"answered {status} ({_words(content)}){_HINTS.get(status, '')}")
        return content, shown(response.headers.get("server", ""), 60)


async def _watched(
    work: Coroutine[Any, Any, tuple[bytes, str]], within_s: float, cancel: CancelToken | None
) -> tuple[bytes, str]:
    """Result of some work, within a time and until it is cancelled. Raises TimeoutError, Cancelled."""
    task = asyncio.ensure_future(work)
    try:
        async with asyncio.timeout(within_s):
            while not task.done():
                if cancel is not None and cancel.is_set():
                    raise Cancelled
                await asyncio.wait([task], timeout=POLL_S)
        return task.result()
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await task


async def _content(response: httpx.Response) -> bytes:
    """The bytes of an answer. Raises EndpointError for a redirect, and for what is packed or has no end."""
    if 300 <= (status := response.status_code) < 400:
        raise EndpointError(f"answered {status}, which leads elsewhere; give the final address")
    if (packed := response.headers.get("content-encoding", "identity")) != "identity":
        raise EndpointError(f"the answer is packed ({shown(packed, 20)}) though that was not asked for")
    content = bytearray()
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > MOST_ANSWER_BYTES:
            raise EndpointError(f"the answer is longer than {MOST_ANSWER_BYTES // 2**20} MB")
    return bytes(content)


def _words(content: bytes) -> str:
    try:
        data = document(content)
    except EndpointError:
        return shown(content)
    return _refused(data.get("error", data.get("detail", data.get("message", data))))
