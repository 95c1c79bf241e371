"""From a checked request to a page that is read, and what waits for its turn."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from dsocr_core.backends.on_device import EngineBackend
from dsocr_core.base.error_log import Unforeseen, page_error
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.base.temporary import Temporary
from dsocr_core.reading.records import OcrRequest, OcrResult, SilentObserver
from dsocr_core.serve.readers import Job, OneByOne, PageReader, Together
from dsocr_core.serve.requests import BadRequest, ChatRequest

MOST_WAITING = 64
MOST_WAITING_BYTES = 512 * 1024 * 1024
"""Bytes of images that wait, as files."""
MOST_ARRIVING_BYTES = 128 * 1024 * 1024
"""Bytes of bodies that are not read to their end, in memory."""


class Overloaded(BadRequest):
    """Too much waits already; another attempt may go through."""

    def __init__(self) -> None:
        super().__init__("too many requests wait; try again in a moment", 503)


class _Texts(SilentObserver):
    """Passes text on to the loop that serves."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pieces: asyncio.Queue[object]) -> None:
        self._loop, self._pieces = loop, pieces

    def text(self, delta: str) -> None:
        if delta:
            self._loop.call_soon_threadsafe(self._pieces.put_nowait, delta)


class Service:
    """One engine and those who wait for it. Used from one event loop."""

    def __init__(
        self, backend: EngineBackend, name: str, reader: PageReader | None = None, slots: int = 64
    ) -> None:
        """Loads the model, unless a `reader` is given. Raises DsocrError."""
        self.name, self.metrics = name, Metrics()
        self._backend = backend
        self.engine = backend.settings.engine
        if reader is None:
            backend.load()  # the first page finds it loaded
            reader = Together(backend, slots) if self.engine == "fast" else OneByOne(backend)
        self._reader = reader
        self._directory = Temporary("serve")
        self._count = self._bytes = self._running = self._arriving = 0
        self._closing = False
        self.parsing = asyncio.Semaphore()
        """One body at a time is taken apart, which needs its size four times."""

    @property
    def waiting(self) -> int:
        return self._count - self._running

    def close(self) -> None:
        """End what is read; who waits, and who comes, hears that it was cancelled."""
        self._closing = True
        self._reader.close()

    def clear(self) -> None:
        """Remove the images, once nobody asks any more."""
        self._directory.cleanup()

    @contextlib.contextmanager
    def arriving(self) -> Iterator[Callable[[int], None]]:
        """Yield what counts bytes of a body that arrives, until the block ends. Raises Overloaded."""
        taken = 0

        def count(size: int) -> None:
            nonlocal taken
            if self._closing or self._arriving + size > MOST_ARRIVING_BYTES:
                self.metrics.requests.labels("refused").inc()
                raise Overloaded
            taken += size
            self._arriving += size

        try:
            yield count
        finally:
            self._arriving -= taken

    async def read(self, asked: ChatRequest) -> AsyncGenerator[str | OcrResult]:
        """Pieces of text as they come, then the result. Left early, the page is no longer read.

        Raises BadRequest, DsocrError for a page that cannot be read.
        """
        if asked.model not in ("", self.name):
            raise BadRequest(f"model '{asked.model[:80]}' is not served here; it is {self.name}", 404)
        size = len(asked.image)
        if self._closing or self._count >= MOST_WAITING or self._bytes + size > MOST_WAITING_BYTES:
            self.metrics.requests.labels("refused").inc()
            raise Overloaded
        self._count += 1
        self._bytes += size
        file = Path(self._directory.name) / f"{secrets.token_hex(8)}.png"
        began, outcome = time.monotonic(), "cancelled"
        self._show()
        try:
            try:
                await asyncio.to_thread(file.write_bytes, asked.image)
            except OSError as error:  # a full disk
                raise BadRequest(f"the image cannot be stored here ({error.strerror})", 503) from error
            asked = replace(asked, image=b"")  # it waits on the disk
            async with contextlib.aclosing(self._pieces(self._request(asked, file), began)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, OcrResult):
                        outcome = "read"
                    yield piece
        except DsocrError:
            outcome = "failed"
            raise
        finally:
            self._count -= 1
            self._bytes -= size
            file.unlink(missing_ok=True)
            self._show()
            self.metrics.requests.labels(outcome).inc()
            self.metrics.seconds.observe(time.monotonic() - began)

    async def _pieces(self, request: OcrRequest, began: float) -> AsyncGenerator[str | OcrResult]:
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[object] = asyncio.Queue()
        began_reading = asyncio.Event()

        def on_end(outcome: OcrResult | BaseException) -> None:
            loop.call_soon_threadsafe(pieces.put_nowait, outcome)

        def on_begin() -> None:
            loop.call_soon_threadsafe(self._begin, began_reading)

        job = Job(request, _Texts(loop, pieces), on_begin, on_end)
        self._reader.submit(job)
        first = True
        try:
            while True:
                piece = await pieces.get()
                if first:
                    self.metrics.first_seconds.observe(time.monotonic() - began)
                    first = False
                if isinstance(piece, str):
                    yield piece
                elif isinstance(piece, OcrResult):
                    self.metrics.read(piece)
                    yield piece
                    return
                else:
                    assert isinstance(piece, BaseException)
                    raise _told(piece, request.name)
        finally:
            job.cancel.set()
            if began_reading.is_set():
                self._running -= 1

    def _begin(self, event: asyncio.Event) -> None:
        event.set()
        self._running += 1
        self._show()

    def _show(self) -> None:
        self.metrics.running.set(self._running)
        self.metrics.waiting.set(self.waiting)

    def _request(self, asked: ChatRequest, file: Path) -> OcrRequest:
        request = self._backend.settings.request(file, f"request {file.stem}")
        given = {"max_new_tokens": asked.max_tokens, "preset": asked.preset, **asked.policy}
        if asked.exempt_ids is not None:
            given["ngram_whitelist"] = tuple(map(self._token_text, asked.exempt_ids))
        chosen = {name: value for name, value in given.items() if value is not None}
        return replace(request, prompt=asked.prompt, **chosen)

    def _token_text(self, token: int) -> str:
        """The text of one token: a request names tokens by it. Raises BadRequest."""
        tokenizer = self._backend.engine.checkpoint.tokenizer
        try:
            text = tokenizer.decode((token,))
            found = tokenizer.encode(text) == [token]
        except (IndexError, KeyError, ValueError, OverflowError, TypeError):
            found = False
        if not found:
            raise BadRequest(
                f"vllm_xargs: whitelist_token_ids: {token} is no token of {self.name} with a text of its "
                "own; name them by text in ngram_whitelist"
            )
        return text


def _told(error: BaseException, page: str) -> DsocrError:
    """Say what a client hears: never where a file lies on this machine."""
    if isinstance(error, Cancelled):
        return Overloaded()
    told = page_error(error, page)
    if isinstance(told, Unforeseen):
        return BadRequest(str(told).partition(":")[0], 500)
    _, colon, rest = str(told).partition(".png: ")
    return BadRequest(f"the image: {rest}" if colon else str(told))


_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500)


class Metrics:
    """The figures of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        registry = self._registry
        self.requests = Counter(
            "dsocr_requests", "Chat completions by how they ended", ["outcome"], registry=registry
        )
        self._prompt = Counter("dsocr_prompt_tokens", "Tokens of prompts, images included", registry=registry)
        self._new = Counter("dsocr_generated_tokens", "New tokens", registry=registry)
        self.waiting = Gauge("dsocr_requests_waiting", "Requests that wait for their turn", registry=registry)
        self.running = Gauge("dsocr_requests_running", "Requests that are being read", registry=registry)
        self.seconds = Histogram(
            "dsocr_request_seconds",
            "From a request's arrival to its end",
            registry=registry,
            buckets=_SECONDS,
        )
        self.first_seconds = Histogram(
            "dsocr_time_to_first_token_seconds", "From a request's arrival to its first text",
            registry=registry, buckets=_SECONDS,
        )  # fmt: skip

    def read(self, result: OcrResult) -> None:
        """A page was read."""
        self._prompt.inc(len(result.inputs.prompt_ids) if result.inputs else 0)
        self._new.inc(result.new_tokens or 0)

    def text(self) -> bytes:
        """The exposition format."""
        return bytes(generate_latest(self._registry))
