"""One exchange with a server, with bounds on everything: time, size, attempts; nothing of it is trusted.

httpx on an event loop of the calling thread: a wait ends at once when it is cancelled, which a blocking
socket does not. No proxy, no redirect and no `.netrc`: the address that was named is the one that is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import httpx

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.base.errors import Cancelled, DsocrError, one_line
from dsocr_core.base.sanitise import paired
from dsocr_core.reading.records import CancelToken, FinishReason

MOST_TEXT, MOST_TOKENS = 4_000_000, 1_000_000
"""Characters and tokens of one page: the published limit of 8,192 tokens makes some 40,000 characters."""
MOST_ANSWER_BYTES, MOST_LINE_BYTES, _MOST_REFUSAL_BYTES = 64 * 2**20, 8 * 2**20, 64 * 2**10
BUSY = (429, 503)
FIRST_WAIT_S, LONGEST_WAIT_S, CONNECT_S, POLL_S = 1.0, 30.0, 10.0, 0.05
_NO_KEY = "; name the variable of its key with key_variable"
_HINTS = {401: _NO_KEY, 403: _NO_KEY, 404: "; is the address right? It usually ends with /v1"}
_CAUSES: dict[type[httpx.HTTPError], str] = {
    httpx.ConnectTimeout: f"no connection within {CONNECT_S:g} s; does a server run there?",
    httpx.ConnectError: "no connection; does a server run there?",
    httpx.RemoteProtocolError: "the connection ended before the answer did",
    httpx.ReadError: "the connection ended before the answer did",
}
_TOO_MANY = re.compile(r"max_(completion_|new_)?tokens|context length|output tokens", re.IGNORECASE)
_FEWER = "ask for fewer tokens: --infer.max-new-tokens N, or of this server alone --b.body.max_tokens N"
_TOKEN_ID = re.compile(r"token_id:(\d{1,9})")
_ENDS: dict[str, FinishReason] = {
    **dict.fromkeys(("stop", "eos", "eos_token", "end_turn"), "eos"),
    **dict.fromkeys(("length", "max_tokens"), "length"),
}
_NO_WORD = ("", "null", "none")
"""Ends that some servers write on every piece."""
_CUT = (
    "abort", "aborted", "error", "content_filter", "load", "unload", "timeout", "cancelled", "canceled",
    "disconnected", "overloaded",
)  # fmt: skip
"""Ends at which the page is not read to its own."""
_THOUGHTS = ("reasoning_content", "reasoning", "thinking")
"""Fields into which a server puts text that it takes for thoughts."""
_OLLAMA_COUNTS = {"prompt_eval_count": "prompt_tokens", "eval_count": "completion_tokens"}

OnDocument = Callable[[dict[str, Any] | None], object]
"""Called with each document of an answer as it comes, and with None for the word that nothing follows."""


class EndpointError(DsocrError):
    """Failure of a server to answer; the client puts its address before it."""


def document(content: bytes) -> dict[str, Any]:
    """A JSON object. Raises EndpointError."""
    try:
        return parse_json(content, any_number=True)
    except InvalidFile as refused:
        words = f"HTML instead of JSON ({shown(content)})" if content.lstrip()[:1] == b"<" else str(refused)
        raise EndpointError(words if "JSON" in words else f"no JSON: {words}") from None


def shown(content: bytes | str, most: int = 80) -> str:
    """The beginning of what a server said, on one line."""
    text = content[: most * 4].decode(errors="replace") if isinstance(content, bytes) else content
    return " ".join(text.split())[:most] or "nothing"


def _refused(error: Any) -> str:
    """The words of a server that refuses, whole, and the option that mends too many tokens."""
    words = shown(str(error.get("message", error) if isinstance(error, dict) else error), 2000)
    return f"{words}; {_FEWER}" if _TOO_MANY.search(words) else words


# --- what it says of a page -----------------------------------------------------------------------


@dataclass
class Reading:
    """Text and tokens read so far of a page; grows while an answer comes. Nothing is filled in."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    thoughts_field: str = ""
    characters: int = 0
    token_ids: list[int] | None = None
    token_texts: list[str] = field(default_factory=list)
    prompt_ids: list[int] | None = None
    finish_reason: FinishReason | None = None
    finish_words: str | None = None
    """The server's word for its end, where it is another."""
    model: str | None = None
    usage: dict[str, int] = field(default_factory=dict)
    ended: bool = False
    """True once the answer says that it is complete."""
    answered: bool = False
    """True once there was any choice or message."""

    @property
    def text(self) -> str:
        """The text; what a server took for thoughts where there is no other."""
        return paired("".join(self.texts) or "".join(self.thoughts))

    def add(self, data: dict[str, Any] | None) -> str:
        """Add one document or chunk; returns the text that it adds. Raises EndpointError.

        None is the word of a stream that nothing follows. Ollama's own form has one message and its end
        beside it; chat completions have a list of choices.
        """
        if data is None:
            self.ended = self.ended or self.answered
            return ""
        if error := data.get("error"):
            raise EndpointError(f"the server says: {_refused(error)}")
        choices = data.get("choices") or []
        if isinstance(data.get("message"), dict):
            choices = [{"delta": data["message"], "finish_reason": data.get("done_reason")}]
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            raise EndpointError(f"the choices are no list of objects ({shown(str(choices))})")
        self.model = data["model"] if isinstance(data.get("model"), str) else self.model
        counts = {name: data.get(key) for key, name in _OLLAMA_COUNTS.items()}
        counts |= data["usage"] if isinstance(data.get("usage"), dict) else {}
        self.usage |= {name: value for name, value in counts.items() if type(value) is int}
        self.prompt_ids = _ids(data.get("prompt_token_ids"), self.prompt_ids)
        if not choices:
            return ""  # the chunk of the usage, or a sign of life
        choice, self.answered = choices[0], True
        piece = choice.get("delta")
        if piece is None:
            piece = choice.get("message")
            self.ended = isinstance(piece, dict)  # a document that came whole
        self._add_tokens(choice.get("token_ids"), choice.get("logprobs"))
        text = self._add_text(piece) if isinstance(piece, dict) else ""
        self._end(choice.get("finish_reason"))
        self.ended = self.ended or data.get("done") is True
        return text

    def _add_text(self, piece: dict[str, Any]) -> str:
        # Some servers give one text by two names.
        name = next((name for name in _THOUGHTS if isinstance(piece.get(name), str)), "")
        thought, content = piece[name] if name else "", piece.get("content") or ""
        if not isinstance(content, str):
            raise EndpointError("the content is no text")
        self.thoughts_field = name if thought else self.thoughts_field
        self.thoughts.append(thought)
        self.texts.append(content)
        self.characters += len(thought) + len(content)
        if self.characters > MOST_TEXT:
            raise EndpointError(f"the text is longer than {MOST_TEXT:,} characters")
        return content

    def _add_tokens(self, ids: Any, log_probabilities: Any) -> None:
        """Add token ids, and the tokens that stand with their log probabilities."""
        if (found := _ids(ids)) is not None:
            self.token_ids = (self.token_ids or []) + found
        steps = log_probabilities.get("content") if isinstance(log_probabilities, dict) else None
        for step in steps if isinstance(steps, list) else []:
            if not isinstance(step, dict) or not isinstance(step.get("token"), str):
                raise EndpointError("a step of logprobs has no token")
            self.token_texts.append(step["token"])
        if max(len(self.token_ids or ()), len(self.token_texts)) > MOST_TOKENS:
            raise EndpointError(f"more than {MOST_TOKENS:,} tokens")

    def _end(self, reason: Any) -> None:
        if isinstance(reason, dict):  # as SGLang's own
            reason = reason.get("type", reason.get("reason"))
        if not isinstance(reason, str) or (word := reason.strip().lower()) in _NO_WORD:
            return
        if word in _CUT:
            count = f"{self.characters:,} characters"
            raise EndpointError(f"the page was cut off after {count} ({shown(word, 40)})")
        self.ended, self.finish_reason = True, _ENDS.get(word)
        self.finish_words = None if self.finish_reason else shown(reason, 40)

    def ids_of_steps(self) -> list[int] | None:
        """The token ids: as they were given, or as the steps of logprobs name them; None where neither."""
        if self.token_ids is not None:
            return self.token_ids
        found = [_TOKEN_ID.fullmatch(text) for text in self.token_texts]
        return [int(match[1]) for match in found if match] if found and all(found) else None


def _ids(value: Any, missing: list[int] | None = None) -> list[int] | None:
    if value is None:
        return missing
    if not isinstance(value, list) or not all(type(each) is int and 0 <= each < 2**31 for each in value):
        raise EndpointError("token ids that are none")
    return value


# --- the connection -------------------------------------------------------------------------------


@dataclass
class Client:
    """An address with what every request to it needs."""

    address: str
    key: str = ""
    timeout_s: float = 600.0
    attempts: int = 4
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    """Function that waits before another attempt; tests give their own."""

    def hidden(self, text: str) -> str:
        """A text without the key, should a server send it back."""
        return text.replace(self.key, "***") if self.key else text

    def ask(
        self,
        path: str,
        on_document: OnDocument,
        body: bytes | None = None,
        cancel: CancelToken | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> str:
        """Get a path, or post a body to it; returns the server's name.

        Raises EndpointError, for what `on_document` raises of an answer too, or Cancelled.
        """
        within_s = self.timeout_s if body is not None else min(self.timeout_s, 30.0)
        logging.getLogger("httpx").setLevel(logging.WARNING)  # a line a request says nothing to a person
        try:
            return asyncio.run(_watched(self._attempts(path, on_document, body, on_wait), within_s, cancel))
        except TimeoutError:
            words = f"no complete answer within {within_s:g} s; raise timeout_s"
        except httpx.HTTPError as error:
            words = _CAUSES.get(type(error), f"{type(error).__name__} ({one_line(error, 120)})")
        except EndpointError as error:
            words = str(error)
        raise EndpointError(self.hidden(f"{self.address}: {words}"))

    async def _attempts(
        self, path: str, on_document: OnDocument, body: bytes | None, on_wait: Callable[[str], None] | None
    ) -> str:
        """Ask again, later and later, while the server is busy: at most half a minute, as it says."""
        timeout = httpx.Timeout(None, connect=CONNECT_S)
        headers = {"Accept-Encoding": "identity", "User-Agent": "dsocr", "Content-Type": "application/json"}
        if self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        method, said, status = "GET" if body is None else "POST", "", 0
        async with httpx.AsyncClient(timeout=timeout, trust_env=False, headers=headers) as client:
            for attempt in range(self.attempts):
                async with client.stream(method, self.address + path, content=body) as response:
                    if (status := response.status_code) == 200:
                        await _documents(response, on_document)
                        return shown(response.headers.get("server", ""), 60)
                    said = await _refusal(response)
                    after = response.headers.get("retry-after", "")
                if attempt + 1 < self.attempts:
                    if on_wait is not None:
                        on_wait(f"the server, which answered {status}")
                    after_s = float(after) if after.isascii() and after.isdigit() else 0.0
                    await self.sleep(min(LONGEST_WAIT_S, max(after_s, FIRST_WAIT_S * 2.0**attempt)))
        often = "once" if self.attempts == 1 else f"{self.attempts} times"
        raise EndpointError(f"answered {status} {often} ({said}); try later, or with a smaller concurrency")


async def _watched(work: Coroutine[Any, Any, str], within_s: float, cancel: CancelToken | None) -> str:
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


async def _refusal(response: httpx.Response) -> str:
    """The words of a server that is busy. Raises EndpointError for one that refuses."""
    if 300 <= (status := response.status_code) < 400:
        raise EndpointError(f"answered {status}, which leads elsewhere; give the final address")
    content = b""
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > _MOST_REFUSAL_BYTES:
            break
    try:
        data = document(content)
        said = _refused(data.get("error", data.get("detail", data.get("message", data))))
    except EndpointError:
        said = shown(content)
    if status not in BUSY:
        raise EndpointError(f"answered {status} ({said}){_HINTS.get(status, '')}")
    return said


async def _documents(response: httpx.Response, on_document: OnDocument) -> None:
    """One document, lines that are documents, or Server-Sent Events, as the answer's header says."""
    if (packed := response.headers.get("content-encoding", "identity")) != "identity":
        raise EndpointError(f"the answer is packed ({shown(packed, 20)}) though that was not asked for")
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
    lines = _lines(response)
    if kind == "text/event-stream":
        async for line in lines:
            name, _, value = line.partition(b":")  # else a comment, an event's name, or a blank line
            if name == b"data" and (value := value.strip()):
                on_document(None if value == b"[DONE]" else document(value))
                if value == b"[DONE]":
                    return
    elif kind == "application/x-ndjson":
        async for line in lines:
            if line.strip():
                on_document(document(line))
    else:
        content = b"\n".join([line async for line in lines])
        if kind != "application/json" and content.lstrip()[:1] not in (b"<", b"{"):
            raise EndpointError(f"content type '{shown(kind, 40)}' instead of JSON ({shown(content)})")
        on_document(document(content))


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Lines as their bytes come. Raises EndpointError for a line, or an answer, that has no end."""
    rest, count = b"", 0
    async for chunk in response.aiter_raw():
        count += len(chunk)
        if count > MOST_ANSWER_BYTES:
            raise EndpointError(f"the answer is longer than {MOST_ANSWER_BYTES // 2**20} MB")
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MOST_LINE_BYTES:
            raise EndpointError(f"a line of the answer is longer than {MOST_LINE_BYTES // 2**20} MB")
        for line in lines:
            yield line
    yield rest
