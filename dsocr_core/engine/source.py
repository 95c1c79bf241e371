"""Protocols for reading many pages. No torch, no triton."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.records import OcrRequest, OcrResult

if TYPE_CHECKING:
    from dsocr_core.engine.page import PreparedPage


P = TypeVar("P")
MOST_TOGETHER = 512
"""Pages that are read together where no number is given, if the device's memory holds them."""
MOST_THREADS = 14
"""Most threads that prepare pages. One prepares about ten large pages a second."""


@dataclass(frozen=True)
class Work:
    """A prepared page with the key of its result."""

    key: object
    request: OcrRequest
    prepared: PreparedPage


class Source(Protocol):
    """Queue of prepared pages."""

    def take(self, timeout_s: float) -> Work | None:
        """Next page; None when none is ready within that time, or there are no more."""
        ...

    @property
    def exhausted(self) -> bool:
        """True when no more pages follow."""
        ...


OnResult = Callable[[object, OcrResult | DsocrError], None]
"""Callback with a page's key and its result or error, on a thread of the reader, page by page."""


class Prefetch(Generic[P]):
    """Prepares pages in order on threads, two a thread ahead. Takes `pages`, or those that are `put`."""

    def __init__(
        self, prepare: Callable[[Any], P], pages: Iterable[Any] | None = None, threads: int | None = None
    ) -> None:
        threads = threads or max(1, min(MOST_THREADS, (os.cpu_count() or 2) - 1))
        self._prepare, self._most, self._endless = prepare, 2 * threads, pages is None
        self._pages = iter(pages or ())
        self._pool = ThreadPoolExecutor(threads, "prepare")
        self._came = threading.Condition()
        self._arrived: deque[Any] = deque()
        self._waiting: deque[Future[P]] = deque()
        self._fill()

    def __enter__(self) -> Prefetch[P]:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def put(self, page: Any) -> None:
        with self._came:
            self._arrived.append(page)
            self._came.notify()

    @property
    def exhausted(self) -> bool:
        return not self._endless and not self._waiting

    def next(self, timeout_s: float) -> P | None:
        """Next page; None when none is ready within that time, or there are no more."""
        with self._came:
            if self._endless and not self._arrived and not self._waiting:
                self._came.wait(timeout_s)
            self._fill()
            if not self._waiting:
                return None
        try:
            page = self._waiting[0].result(timeout_s)
        except TimeoutError:
            return None
        with self._came:
            self._waiting.popleft()
            self._fill()
        return page

    def _fill(self) -> None:
        while len(self._waiting) < self._most:
            if self._endless and self._arrived:
                page = self._arrived.popleft()
            elif self._endless or (page := next(self._pages, None)) is None:
                return
            self._waiting.append(self._pool.submit(self._prepare, page))
