"""Prefetch: pages are found, rendered, hashed, opened and preprocessed on other threads before their turn.

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
from pathlib import Path

from PIL import Image

from dsocr_core.engine.page import PreparedPage
from dsocr_core.engine.source import Work
from dsocr_core.error_log import unforeseen
from dsocr_core.errors import DsocrError
from dsocr_core.inputs.documents import Pages, load_image
from dsocr_core.outside.visible import encodable
from dsocr_core.records import SIDES, BackendName, OcrRequest
from dsocr_core.run.pipeline import Pipeline

PREFETCHED = 2
"""Pages that are prepared while one is read."""

MOST_WORKERS = 8
"""Threads that prepare pages for a batch: one prepares about ten large pages a second."""

PICTURE_BYTES = 2**24
"""Up to this size the picture of a page in a batch stays in memory for the artifacts; a larger one is opened
again."""


@dataclass(frozen=True)
class PageToRead:
    """A page that may be read now."""

    source: str
    """What the page is called: a file name, or `paper.pdf#3`."""
    request: OcrRequest
    keys: dict[BackendName, str]
    """Of each backend a name for all that decides its result."""
    prepared: PreparedPage | None = None
    """Its preprocessing; None where each backend does its own."""
    picture: Image.Image | None = None
    """Opened before its turn, where no preprocessing holds it and it is small enough to stay in memory."""

    def without_pixels(self) -> PageToRead:
        """What a page in a batch needs when it ends."""
        assert self.prepared is not None
        picture = self.prepared.picture
        size = picture.width * picture.height * len(picture.getbands())
        return replace(self, prepared=None, picture=picture if size <= PICTURE_BYTES else None)

    def load_picture(self, max_pixels: int) -> Image.Image:
        """The page in RGB, opened again where it did not stay in memory. Raises DsocrError."""
        if self.prepared is not None:
            return self.prepared.picture
        return self.picture or load_image(self.request.image, max_pixels)

    def failed(self, error: str) -> PageFailed:
        """The page when that went wrong."""
        return PageFailed(self.source, encodable(error), self.request.image)


@dataclass(frozen=True)
class PageDone:
    """A page that an earlier run has read from the same file under the same settings."""

    source: str


@dataclass(frozen=True)
class PageFailed:
    """A page that cannot be read, and why."""

    source: str
    error: str
    image: Path | None = None
    """Its file, where it got as far as that."""


ReadyPage = PageToRead | PageDone | PageFailed


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
        """One page. What goes wrong with it is returned, not raised."""
        source, image = self._pages.name(number), None
        try:
            with self._rendering:  # the PDF library takes one caller at a time
                page = self._pages[number]
            image = page.path
            request = self._pipeline.settings.request(image, page.source)
            sides = zip(SIDES, self._backends, strict=False)
            keys = {backend: self._pipeline.key(side, request) for side, backend in sides}
            if all((backend, source, key) in self._done for backend, key in keys.items()):
                return PageDone(source)
            if len(self._backends) == 1 and (prepared := self._pipeline.prepared(request)) is not None:
                return PageToRead(source, request, keys, prepared)
            # Beside the vendor backend each does its own preprocessing, so that both times mean the same.
            # What cannot be opened is no matter for either.
            picture = load_image(image, self._pipeline.settings.max_pixels)
        except DsocrError as error:
            return PageFailed(source, encodable(str(error)), image)
        except Exception as error:  # noqa: BLE001 - whatever a page does to us, the others are read
            return PageFailed(source, unforeseen(error, source), image)
        return PageToRead(source, request, keys, picture=picture)


def unreadable(pages: Pages, max_pixels: int) -> list[PageFailed]:
    """All pages with their reasons where none of them can be opened; empty as soon as one can."""
    failed = []
    for number in range(len(pages)):
        image = None
        try:
            image = pages[number].path
            load_image(image, max_pixels)
        except DsocrError as error:
            failed.append(PageFailed(pages.name(number), encodable(str(error)), image))
        else:
            return []
    return failed


def in_order(
    read: Callable[[int], ReadyPage], count: int, prefetched: int = PREFETCHED
) -> Iterator[ReadyPage]:
    """Pages in order, at most `prefetched` of them before they are asked for, on a thread of their own."""
    waiting: deque[Future[ReadyPage]] = deque()
    with ThreadPoolExecutor(1, "prepare") as pool:
        try:
            for number in range(count):
                waiting.append(pool.submit(read, number))
                if len(waiting) > prefetched:
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
        on_other: Callable[[PageDone | PageFailed], None],
        workers: int | None = None,
    ) -> None:
        workers = workers or max(1, min(MOST_WORKERS, (os.cpu_count() or 2) - 1))
        self._read, self._count, self._on_other, self._prefetched = read, count, on_other, 2 * workers
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
            while self._next < self._count and len(self._waiting) < self._prefetched:
                self._waiting.append(self._pool.submit(self._read, self._next))
                self._next += 1
            if not self._waiting:
                return None
            try:
                page = self._waiting[0].result(timeout_s)
            except TimeoutError:
                return None
            self._waiting.popleft()
            if isinstance(page, PageToRead):
                assert page.prepared is not None
                return Work(page.without_pixels(), page.request, page.prepared)
            self._on_other(page)
