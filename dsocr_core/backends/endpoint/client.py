"""One exchange with a server, with bounds on everything: time, size, attempts.

httpx on an event loop of the calling thread: a wait ends at once when it is cancelled, which a blocking
socket does not. No proxy, no redirect and no `.netrc`: the address that was named is the one that is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx

from dsocr_core.backends.endpoint.answers import AnswerError, document, refusal, shown
from dsocr_core.base.errors import Cancelled, DsocrError, one_line
from dsocr_core.reading.records import CancelToken

MOST_ANSWER_BYTES = 64 * 1024 * 1024
MOST_LINE_BYTES = 8 * 1024 * 1024
_MOST_REFUSAL_BYTES = 64 * 1024
BUSY = (429, 503)
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 30.0
CONNECT_S = 10.0
POLL_S = 0.05
_HINTS = {
    401: "; name the variable of its key with key_variable",
    403: "; name the variable of its key with key_variable",
    404: "; is the address right? It usually ends with /v1",
}

OnDocument = Callable[[dict[str, Any] | None], object]
"""Called with each document of an answer as it comes, and with None for the word that nothing follows."""
Sleep = Callable[[float], Awaitable[None]]


class EndpointError(DsocrError):
    """Failure of a server to answer; names its address."""


class _Busy(Exception):
    """The server asks for patience: its status, the seconds it names, and its words."""


@dataclass
class Client:
    """An address with what every request to it needs."""

    address: str
    key: str = ""
    timeout_s: float = 600.0
    attempts: int = 4
    sleep: Sleep = asyncio.sleep
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
        timeout_s: float | None = None,
    ) -> str:
        """Get a path, or post a body to it; returns the server's name.

        Raises EndpointError, for what `on_document` raises of an answer too, or Cancelled.
        """
        within_s = min(self.timeout_s, timeout_s or self.timeout_s)

        async def watched() -> str:
            task = asyncio.ensure_future(self._attempts(path, on_document, body, on_wait))
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

        logging.getLogger("httpx").setLevel(logging.WARNING)  # a line a request says nothing to a person
        try:
            return asyncio.run(watched())
        except TimeoutError:
            words = f"no complete answer within {within_s:g} s; raise timeout_s"
        except httpx.HTTPError as error:
            words = _cause(error)
        except AnswerError as error:
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
        async with httpx.AsyncClient(timeout=timeout, trust_env=False, headers=headers) as client:
            for attempt in range(self.attempts):
                try:
                    method, url = "GET" if body is None else "POST", self.address + path
                    async with client.stream(method, url, content=body) as response:
                        await _check(response)
                        await _documents(response, on_document)
                        return shown(response.headers.get("server", ""), 60)
                except _Busy as busy:
                    status, after_s, said = busy.args
                if attempt + 1 < self.attempts:
                    if on_wait is not None:
                        on_wait(f"the server, which answered {status}")
                    await self.sleep(min(LONGEST_WAIT_S, max(after_s, FIRST_WAIT_S * 2.0**attempt)))
        times = "once" if self.attempts == 1 else f"{self.attempts} times"
        raise AnswerError(f"answered {status} {times} ({said}); try later, or with a smaller concurrency")


async def _check(response: httpx.Response) -> None:
    """Raises _Busy, or AnswerError with what the server says."""
    status = response.status_code
    if status == 200:
        if (packed := response.headers.get("content-encoding", "identity")) != "identity":
            raise AnswerError(f"the answer is packed ({shown(packed, 20)}) though that was not asked for")
        return
    if 300 <= status < 400:
        raise AnswerError(f"answered {status}, which leads elsewhere; give the final address")
    content = b""
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > _MOST_REFUSAL_BYTES:
            break
    try:
        data = document(content)
        error = data.get("error", data.get("detail", data.get("message", data)))
        said = refusal(str(error.get("message", error) if isinstance(error, dict) else error))
    except AnswerError:
        said = shown(content)
    if status in BUSY:
        after = response.headers.get("retry-after", "")
        raise _Busy(status, float(after) if after.isascii() and after.isdigit() else 0.0, said)
    raise AnswerError(f"answered {status} ({said}){_HINTS.get(status, '')}")


async def _documents(response: httpx.Response, on_document: OnDocument) -> None:
    """One document, lines that are documents, or Server-Sent Events, as the answer's header says."""
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
            raise AnswerError(f"content type '{shown(kind, 40)}' instead of JSON ({shown(content)})")
        on_document(document(content))


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Lines as their bytes come. Raises AnswerError for a line, or an answer, that has no end."""
    rest, count = b"", 0
    async for chunk in response.aiter_raw():
        count += len(chunk)
        if count > MOST_ANSWER_BYTES:
            raise AnswerError(f"the answer is longer than {MOST_ANSWER_BYTES // 2**20} MB")
        *lines, rest = (rest + chunk).split(b"\n")
        if len(rest) > MOST_LINE_BYTES:
            raise AnswerError(f"a line of the answer is longer than {MOST_LINE_BYTES // 2**20} MB")
        for line in lines:
            yield line
    yield rest


def _cause(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.ConnectTimeout):
        return f"no connection within {CONNECT_S:g} s; does a server run there?"
    if isinstance(error, httpx.ConnectError):
        return "no connection; does a server run there?"
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return f"the connection ended before the answer did ({one_line(error, 80)})"
    return f"{type(error).__name__} ({one_line(error, 120)})"
