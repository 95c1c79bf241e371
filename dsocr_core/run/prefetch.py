"""Pages made ready ahead of their turn: found, rendered, hashed, opened and preprocessed on other threads.

Decoding and resizing an image leave Python to other threads. How many are ready is bounded, so what is held
does not grow with their number.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from PIL import Image

from dsocr_core.engine.page import PreparedPage
from dsocr_core.engine.source import Work
from dsocr_core.errors import DsocrError
from dsocr_core.inputs.documents import Pages
from dsocr_core.records import BackendName, OcrRequest
from dsocr_core.run.pipeline import Pipeline

AHEAD = 2
"""Pages that are prepared while one is read."""

MOST_WORKERS = 8
"""Threads that prepare pages for a batch: one prepares about ten large pages a second."""

KEPT_PICTURE_BYTES = 2**24
"""A page in a batch keeps its picture for the artifacts up to this size; a larger one is opened again."""


@dataclass(frozen=True)
class ReadyPage:
    """A page that may be read now, or why not."""

    source: str
    request: OcrRequest | None = None
    keys: dict[BackendName, str] | None = None
    prepared: PreparedPage | None = None
    done: bool = False
    error: str | None = None
    picture: Image.Image | None = None
    """Of a page in a batch, when it is small enough to be kept."""

    def without_pixels(self) -> ReadyPage:
        """What a page in a batch needs when it ends."""
        assert self.prepared is not None
        picture = self.prepared.picture
        size = picture.width * picture.height * len(picture.getbands())
        return replace(self, prepared=None, picture=picture if size <= KEPT_PICTURE_BYTES else None)


class PageReader:
    """Finds, renders, hashes and prepares pages; safe to call from other threads."""

    def __init__(
        self,
        pipeline: Pipeline,
        pages: Pages,
        backends: tuple[BackendName, ...],
        done: Collection[tuple[str, str, str]],
    ) -> None:
        self._pipeline, self._pages, self._backends, self._done = pipeline, pages, backends, done
        self._rendering = threading.Lock()

    def read(self, number: int) -> ReadyPage:
        """One page. Its errors are in it, not raised."""
        source, request = self._pages.name(number), None
        try:
            with self._rendering:  # the PDF library takes one caller at a time
                page = self._pages[number]
            request = self._pipeline.settings.request(page.path, page.source)
            keys = {backend: self._pipeline.results.key(backend, request) for backend in self._backends}
            if all((backend, source, key) in self._done for backend, key in keys.items()):
                return ReadyPage(source, done=True)
            # Beside the vendor backend ours keeps its preprocessing, so that both times mean the same.
            prepared = self._pipeline.prepare(request) if len(self._backends) == 1 else None
        except DsocrError as error:
            return ReadyPage(source, request, error=str(error))
        return ReadyPage(source, request, keys, prepared)


def in_order(read: Callable[[int], ReadyPage], count: int, ahead: int = AHEAD) -> Iterator[ReadyPage]:
    """Pages in order, at most `ahead` of them read before they are asked for, on a thread of their own."""
    waiting: deque[Future[ReadyPage]] = deque()
    with ThreadPoolExecutor(1, "prepare") as pool:
        try:
            for number in range(count):
                waiting.append(pool.submit(read, number))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


class PreparedPages:
    """The source of a batch: pages in order, read by several threads, two a thread ready at most.

    `on_other` hears, on the thread that takes, of pages that are not to be read: done before, or at fault.
    """

    def __init__(
        self,
        read: Callable[[int], ReadyPage],
        count: int,
        on_other: Callable[[ReadyPage], None],
        workers: int | None = None,
    ) -> None:
        workers = workers or max(1, min(MOST_WORKERS, (os.cpu_count() or 2) - 1))
        self._read, self._count, self._on_other, self._ahead = read, count, on_other, 2 * workers
        self._pool = ThreadPoolExecutor(workers, "prepare")
        self._waiting: deque[Future[ReadyPage]] = deque()
        self._next = 0

    def __enter__(self) -> PreparedPages:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    @property
    def exhausted(self) -> bool:
        return self._next == self._count and not self._waiting

    def take(self, timeout_s: float) -> Work | None:
        """The next page; None when none is ready within that time, or none comes any more."""
        while True:
            while self._next < self._count and len(self._waiting) < self._ahead:
                self._waiting.append(self._pool.submit(self._read, self._next))
                self._next += 1
            if not self._waiting:
                return None
            try:
                page = self._waiting[0].result(timeout_s)
            except TimeoutError:
                return None
            self._waiting.popleft()
            if page.request is not None and page.prepared is not None:
                return Work(page.without_pixels(), page.request, page.prepared)
            self._on_other(page)
