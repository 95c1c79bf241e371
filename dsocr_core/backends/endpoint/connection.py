"""One request to a server, with bounds on everything: time, size, attempts.

httpx on an event loop of the calling thread: a wait ends at once when it is cancelled, which a blocking
socket does not. No proxy, no redirect and no `.netrc`: the address that was named is the one that is asked.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import httpx

from dsocr_core.backends.endpoint.answers import (
    MOST_ANSWER_BYTES,
    AnswerError,
    Lines,
    document,
    refusal,
    shown,
)
from dsocr_core.base.errors import Cancelled, DsocrError, one_line
from dsocr_core.reading.records import CancelToken

T = TypeVar("T")

BUSY = (429, 503)
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0
CONNECT_S = 10.0
POLL_S = 0.05
_ERROR_BYTES = 64 * 1024

Sleep = Callable[[float], Awaitable[None]]


class EndpointError(DsocrError):
    """Failure of a server to answer; names its address."""


@dataclass
class Server:
    """An address with what every request to it needs."""

    address: str
    key: str = ""
    timeout_s: float = 600.0
    attempts: int = 4
    sleep: Sleep = asyncio.sleep
    """Function that waits before another attempt; tests give their own."""
    _headers: dict[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        logging.getLogger("httpx").setLevel(logging.WARNING)  # a line a request says nothing to a person
        self._headers = {"Accept-Encoding": "identity", "User-Agent": "dsocr"}
        if self.key:
            self._headers["Authorization"] = f"Bearer {self.key}"

    def hidden(self, text: str) -> str:
        """A text without the key, should a server send it back."""
        return text.replace(self.key, "***") if self.key else text

    # --- what is asked --------------------------------------------------------------------------

    def get(self, path: str, cancel: CancelToken | None = None) -> dict[str, Any]:
        """A JSON document of the server. Raises EndpointError or Cancelled."""

        async def ask(client: httpx.AsyncClient) -> dict[str, Any]:
            async with client.stream("GET", self.address + path, headers=self._headers) as response:
                await self._require_ok(response)
                return document(await self._whole(response))

        return self._run(lambda: self._asked(ask, lambda words: None), min(self.timeout_s, 30.0), cancel)

    def post(
        self,
        path: str,
        body: bytes,
        on_data: Callable[[dict[str, Any] | None], None],
        events: bool,
        on_wait: Callable[[str], None],
        cancel: CancelToken | None = None,
    ) -> str:
        """Post a body; `on_data` gets each document of the answer as it comes, None for the word that nothing
        follows. Returns the server's name.

        `events` is whether a stream has Server-Sent Events; otherwise each line of it is a document. Raises
        EndpointError, AnswerError of `on_data`, or Cancelled.
        """

        async def ask(client: httpx.AsyncClient) -> str:
            headers = {**self._headers, "Content-Type": "application/json"}
            async with client.stream("POST", self.address + path, content=body, headers=headers) as response:
                await self._require_ok(response)
                await self._documents(response, on_data, events)
                return shown(response.headers.get("server", ""), 60)

        return self._run(lambda: self._asked(ask, on_wait), self.timeout_s, cancel)

    # --- how ------------------------------------------------------------------------------------

    def _run(self, work: Callable[[], Awaitable[T]], timeout_s: float, cancel: CancelToken | None) -> T:
        async def watched() -> T:
            task = asyncio.ensure_future(work())
            try:
                async with asyncio.timeout(timeout_s):
                    while not task.done():
                        if cancel is not None and cancel.is_set():
                            raise Cancelled
                        await asyncio.wait([task], timeout=POLL_S)
                return task.result()
            except TimeoutError:
                raise EndpointError(
                    f"{self.address}: no complete answer within {timeout_s:g} s; raise timeout_s"
                ) from None
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await task

        try:
            return asyncio.run(watched())
        except AnswerError as error:
            raise EndpointError(self.hidden(f"{self.address}: {error}")) from None

    async def _asked(
        self, ask: Callable[[httpx.AsyncClient], Awaitable[T]], on_wait: Callable[[str], None]
    ) -> T:
        """With another attempt, later and later, while the server is busy."""
        timeout = httpx.Timeout(None, connect=CONNECT_S)
        async with httpx.AsyncClient(timeout=timeout, trust_env=False, follow_redirects=False) as client:
            for attempt in range(1, self.attempts + 1):
                try:
                    return await ask(client)
                except _Busy as busy:
                    if attempt == self.attempts:
                        raise EndpointError(self.hidden(f"{self.address}: {busy.words(attempt)}")) from None
                    wait = busy.wait_s(attempt)
                    on_wait(f"the server, which answered {busy.status}")
                    await self.sleep(wait)
                except httpx.HTTPError as error:
                    raise EndpointError(self.hidden(f"{self.address}: {_cause(error)}")) from None
        raise AssertionError("an attempt returns or raises")

    async def _require_ok(self, response: httpx.Response) -> None:
        """Raises _Busy, or EndpointError with what the server says."""
        status = response.status_code
        if status == 200:
            encoding = response.headers.get("content-encoding", "identity")
            if encoding != "identity":
                raise AnswerError(
                    f"the answer is packed ({shown(encoding, 20)}) though that was not asked for"
                )
            return
        if status in BUSY:
            raise _Busy(status, response.headers.get("retry-after", ""), await self._said(response))
        if 300 <= status < 400:
            raise AnswerError(f"answered {status}, which leads elsewhere; give the final address")
        hint = "; name the variable of its key with key_variable" if status in (401, 403) else ""
        hint = "; is the address right? It usually ends with /v1" if status == 404 else hint
        raise AnswerError(f"answered {status} ({await self._said(response)}){hint}")

    async def _said(self, response: httpx.Response) -> str:
        """Fields in which a server says what is wrong."""
        content = b""
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > _ERROR_BYTES:
                break
        try:
            data = document(content)
        except AnswerError:
            return shown(content)
        error = data.get("error", data.get("detail", data.get("message", data)))
        return refusal(str(error.get("message", error) if isinstance(error, dict) else error))

    async def _whole(self, response: httpx.Response) -> bytes:
        content = bytearray()
        async for chunk in response.aiter_raw():
            content += chunk
            if len(content) > MOST_ANSWER_BYTES:
                raise AnswerError(f"the answer is longer than {MOST_ANSWER_BYTES // 2**20} MB")
        return bytes(content)

    async def _documents(
        self, response: httpx.Response, on_data: Callable[[dict[str, Any] | None], None], events: bool
    ) -> None:
        kind = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/json":
            on_data(document(await self._whole(response)))
            return
        wanted = "text/event-stream" if events else "application/x-ndjson"
        if kind != wanted:
            start = await self._start(response)
            what = "HTML" if start.lstrip()[:1] == b"<" else f"content type '{shown(kind, 40)}'"
            raise AnswerError(f"{what} instead of JSON or {wanted} ({shown(start)})")
        lines = Lines()
        async for chunk in response.aiter_raw():
            for line in lines.push(chunk):
                if _take(line, on_data, events):
                    return
        _take(lines.rest(), on_data, events)

    async def _start(self, response: httpx.Response) -> bytes:
        async for chunk in response.aiter_raw():
            return chunk
        return b""


def _take(line: bytes, on_data: Callable[[dict[str, Any] | None], None], events: bool) -> bool:
    """One line of a stream; True where it says that nothing follows."""
    if not events:
        if line.strip():
            on_data(document(line))
        return False
    name, colon, value = line.partition(b":")
    if name != b"data" or not colon:
        return False  # a comment, an event's name, or the blank line after an event
    value = value.removeprefix(b" ")
    if value.strip() == b"[DONE]":
        on_data(None)
        return True
    if value.strip():
        on_data(document(value))
    return False


class _Busy(Exception):
    """The server asks for patience."""

    def __init__(self, status: int, retry_after: str, said: str) -> None:
        super().__init__(status)
        self.status, self.said = status, said
        self._after = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else None

    def wait_s(self, attempt: int) -> float:
        """Twice as long each time, or as the server asks; never longer than `LONGEST_WAIT_S`."""
        return min(LONGEST_WAIT_S, max(self._after or 0.0, FIRST_WAIT_S * 2.0 ** (attempt - 1)))

    def words(self, attempts: int) -> str:
        times = "once" if attempts == 1 else f"{attempts} times"
        return f"answered {self.status} {times} ({self.said}); try later, or with a smaller concurrency"


def _cause(error: httpx.HTTPError) -> str:
    if isinstance(error, httpx.ConnectTimeout):
        return f"no connection within {CONNECT_S:g} s; does a server run there?"
    if isinstance(error, httpx.ConnectError):
        return "no connection; does a server run there?"
    if isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
        return f"the connection ended before the answer did ({one_line(error, 80)})"
    return f"{type(error).__name__} ({one_line(error, 120)})"
