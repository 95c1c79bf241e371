"""One exchange with a server, with bounds on everything: time, size, attempts.

httpx on an event loop of the calling thread: a wait ends at once when it is cancelled, which a blocking
socket does not. No proxy, no redirect and no `.netrc`: the address that was named is the one that is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import httpx

from dsocr_core.backends.endpoint.answers import EndpointError, document, refusal, shown
from dsocr_core.base.errors import Cancelled, one_line
from dsocr_core.reading.records import CancelToken

MOST_ANSWER_BYTES = 64 * 1024 * 1024
MOST_LINE_BYTES = 8 * 1024 * 1024
_MOST_REFUSAL_BYTES = 64 * 1024
BUSY = (429, 503)
FIRST_WAIT_S, LONGEST_WAIT_S = 1.0, 30.0
CONNECT_S = 10.0
POLL_S = 0.05
_NO_KEY = "; name the variable of its key with key_variable"
_HINTS = {401: _NO_KEY, 403: _NO_KEY, 404: "; is the address right? It usually ends with /v1"}
_CAUSES: dict[type[httpx.HTTPError], str] = {
    httpx.ConnectTimeout: f"no connection within {CONNECT_S:g} s; does a server run there?",
    httpx.ConnectError: "no connection; does a server run there?",
    httpx.RemoteProtocolError: "the connection ended before the answer did",
    httpx.ReadError: "the connection ended before the answer did",
}

OnDocument = Callable[[dict[str, Any] | None], object]
"""Called with each document of an answer as it comes, and with None for the word that nothing follows."""
Sleep = Callable[[float], Awaitable[None]]


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
        method, said = "GET" if body is None else "POST", ""
        async with httpx.AsyncClient(timeout=timeout, trust_env=False, headers=headers) as client:
            for attempt in range(self.attempts):
                async with client.stream(method, self.address + path, content=body) as response:
                    if response.status_code == 200:
                        await _documents(response, on_document)
                        return shown(response.headers.get("server", ""), 60)
                    said = await _refusal(response)
                    after = response.headers.get("retry-after", "")
                if attempt + 1 < self.attempts:
                    if on_wait is not None:
                        on_wait(f"the server, which answered {response.status_code}")
                    after_s = float(after) if after.isascii() and after.isdigit() else 0.0
                    await self.sleep(min(LONGEST_WAIT_S, max(after_s, FIRST_WAIT_S * 2.0**attempt)))
        often = "once" if self.attempts == 1 else f"{self.attempts} times"
        raise EndpointError(
            f"answered {response.status_code} {often} ({said}); try later, or with a smaller concurrency"
        )


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
    status = response.status_code
    if 300 <= status < 400:
        raise EndpointError(f"answered {status}, which leads elsewhere; give the final address")
    content = b""
    async for chunk in response.aiter_raw():
        content += chunk
        if len(content) > _MOST_REFUSAL_BYTES:
            break
    try:
        data = document(content)
        error = data.get("error", data.get("detail", data.get("message", data)))
        said = refusal(str(error.get("message", error) if isinstance(error, dict) else error))
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
