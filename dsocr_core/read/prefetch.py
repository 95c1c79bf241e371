"""Prefetch: pages are found, rendered, hashed, opened and preprocessed on other threads before their turn.

Decoding and resizing an image leave Python to other threads. How many are ready is bounded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import Image

from dsocr_core.base.errors import page_error
from dsocr_core.base.sanitise import encodable
from dsocr_core.engine.page import PreparedPage, open_page
from dsocr_core.engine.source import Prefetch, Work
from dsocr_core.page.documents import Pages, load_image
from dsocr_core.read.session import Sides
from dsocr_core.reading.fingerprints import required_files
from dsocr_core.reading.records import BackendName, OcrRequest

PICTURE_BYTES = 2**24
"""Up to this size the picture of a page in a batch stays in memory for the artifacts."""
IMAGES_AHEAD = 16
"""Images of a prompt up to which all are preprocessed before its turn: each takes 3 MB."""


@dataclass(frozen=True)
class PageToRead:
    """A page that may be read now."""

    source: str  # name of the page: a file name, or `paper.pdf#3`
    request: OcrRequest
    keys: dict[BackendName, str]  # by backend a name for all that decides its result
    prepared: PreparedPage | None = None
    """The page's picture, with A's preprocessing where A alone reads it; None once it is too large."""

    def without_pixels(self) -> PageToRead:
        """Keep what is still needed of a page when its backends are through with its pixels."""
        assert self.prepared is not None
        picture = self.prepared.picture
        size = picture.width * picture.height * len(picture.getbands())
        return replace(self, prepared=PreparedPage(picture) if size <= PICTURE_BYTES else None)

    def load_pictures(self, max_pixels: int) -> list[Image.Image]:
        """The pages in RGB, opened again where they did not stay in memory. Raises DsocrError."""
        first = [self.prepared.picture] if self.prepared else []
        return first + [load_image(image, max_pixels) for image in self.request.images[len(first) :]]

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
    image: Path | None = None  # its file, where it got as far as that


ReadyPage = PageToRead | PageDone | PageFailed


class PageReader:
    """Finds, renders, hashes, opens and prepares pages, each once. Thread-safe.

    The backends are loaded only when the first page is there that can be read.
    """

    def __init__(
        self, sides: Sides, pages: Pages, done: Collection[tuple[BackendName, str, str]] = ()
    ) -> None:
        """`done` are pages that were read before: backend, source and key."""
        self._sides, self._pages, self._done = sides, pages, done
        self._loading, self._loaded = threading.Lock(), False
        self._rendering = threading.Lock()

    def __len__(self) -> int:
        return len(self._pages)

    @property
    def largest_first(self) -> list[int]:
        """The order for a batch, whose slots the first page sizes: the one of most pages in a prompt."""
        return sorted(range(len(self)), key=lambda number: -len(self._pages.names(number)))

    def read(self, number: int) -> ReadyPage:
        """One page. What is wrong with it is returned; raises DsocrError for what is wrong with all pages."""
        session = self._sides.first
        source, image = self._pages.name(number), None
        try:
            with self._rendering:  # the PDF library takes one caller at a time
                page = self._pages[number]
            image = page.path
            request = session.settings.request(image, page.source, page.more)
            file, *more = required_files(request)
            request = replace(request, file=file, more_files=tuple(more))
            keys = self._sides.keys(request)
            if all((backend, source, key) in self._done for backend, key in keys.items()):
                return PageDone(source)
            opened = open_page(session.request_of("a", request), session.settings.max_pixels, session.marks)
        except Exception as error:  # noqa: BLE001 - whatever a page does to us, the others are read
            return PageFailed(source, encodable(str(page_error(error, source))), image)
        with self._loading:
            if not self._loaded:
                self._sides.load()
                self._loaded = True
        ready = PageToRead(source, request, keys, opened)
        if self._sides.compared or len(request.images) > IMAGES_AHEAD:
            # In a comparison each does its own preprocessing, so that both times mean the same.
            return ready
        try:
            return replace(ready, prepared=session.prepared(request, opened))
        except Exception as error:  # noqa: BLE001 - whatever a page does to us, the others are read
            return ready.failed(str(page_error(error, source)))


class PreparedPages:
    """The source of a batch: pages as they are prepared.

    `on_other` hears, on the thread that takes, of pages that are not to be read: done before, or at fault.
    """

    def __init__(self, pages: Prefetch[ReadyPage], on_other: Callable[[PageDone | PageFailed], None]) -> None:
        self._pages, self._on_other = pages, on_other

    @property
    def exhausted(self) -> bool:
        return self._pages.exhausted

    def take(self, timeout_s: float) -> Work | None:
        """The next page; None when none is ready within that time, or none comes any more."""
        while (page := self._pages.next(timeout_s)) is not None:
            if isinstance(page, PageToRead):
                assert page.prepared is not None
                return Work(page.without_pixels(), page.request, page.prepared)
            self._on_other(page)
        return None
