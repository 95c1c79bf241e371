"""Pages to results: the one loop of every run.

Pages are taken up on threads before their turn; how many are read at once is their backends' number. What is
held does not grow with their number. What comes out is recorded by one thread, the caller's.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.engine.source import OnResult, Prefetch, Source
from dsocr_core.read.prefetch import (
    PageDone,
    PageFailed,
    PageToRead,
    PreparedPages,
    ReadyPage,
)
from dsocr_core.read.session import PageCancelled
from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.records import CancelToken, OcrResult

PREFETCHED = 2
"""Pages that are taken up before their turn, and results that wait to be recorded."""
MOST_WAITING = 64
"""Results of pages read together that wait to be recorded."""

T = TypeVar("T")
Take = Callable[[int], ReadyPage]
ReadMany = Callable[[Source, OnResult, int, CancelToken], None]
Outcome = tuple[ReadyPage, T | None]
"""A page, and what came of it: None where it was not read."""


def read_each(
    take: Take,
    count: int,
    read: Callable[[PageToRead, CancelToken], T],
    concurrency: int = 1,
    cancel: CancelToken | None = None,
    beside: bool = False,
) -> Generator[Outcome[T]]:
    """Read pages 0 to `count` - 1 in order, `concurrency` at a time.

    Several at a time are read on threads. One at a time is read when it is asked for, on the caller's thread:
    while a page is timed nothing else of the run is recorded. With `beside` it is recorded while the next one
    is read, as where the time is another processor's.

    Raises what `take` and `read` raise, and Cancelled when `cancel` is set, after the pages that were through
    by then; of one that was not, what it had finished (`PageCancelled`) comes too. Left early, it stops.
    """
    stop = cancel or CancelToken()
    waiting: deque[Callable[[], tuple[ReadyPage, T | None, bool]]] = deque()
    cancelled = False

    def one(taking: Future[ReadyPage]) -> tuple[ReadyPage, T | None, bool]:
        page = taking.result()
        if stop.is_set():
            raise Cancelled
        if not isinstance(page, PageToRead):
            return page, None, False
        try:
            outcome, cut = read(page, stop), False
        except PageCancelled as end:
            stop.set()
            outcome, cut = end.finished, True  # type: ignore[assignment]
        except Cancelled:
            stop.set()
            raise
        return page.without_pixels(), outcome, cut

    def ended(most: int) -> Iterator[Outcome[T]]:
        nonlocal cancelled
        while len(waiting) > most:
            try:
                page, outcome, cut = waiting.popleft()()
            except Cancelled:
                cancelled = True
            else:
                cancelled = cancelled or cut
                yield page, outcome

    with (
        ThreadPoolExecutor(concurrency, "take") as taking,
        ThreadPoolExecutor(concurrency, "read") as reading,
    ):
        try:
            threads = beside or concurrency > 1
            for number in range(count):
                if stop.is_set():
                    cancelled = True
                    break
                taken = taking.submit(take, number)
                waiting.append(reading.submit(one, taken).result if threads else partial(one, taken))
                yield from ended(concurrency + PREFETCHED - 1)
            yield from ended(0)
        except BaseException:
            stop.set()  # what is in flight is of no use to anybody
            raise
    if cancelled:
        raise Cancelled


def read_together(
    take: Take, pages: Iterable[int], read_many: ReadMany, slots: int, cancel: CancelToken | None = None
) -> Generator[Outcome[Comparison]]:
    """Read these in a backend's slots; they come as they end. Raises as `read_each`."""
    stop = cancel or CancelToken()
    came: queue.Queue[Outcome[Comparison] | BaseException | None] = queue.Queue(MOST_WAITING)

    def on_other(page: PageDone | PageFailed) -> None:
        came.put((page, None))

    def on_result(page: object, outcome: OcrResult | DsocrError) -> None:
        assert isinstance(page, PageToRead)
        if isinstance(outcome, DsocrError):
            came.put((page.failed(str(outcome)), None))
        else:
            came.put((page, Comparison(page.request, outcome)))

    def work() -> None:
        try:
            with Prefetch(take, pages) as taken:
                read_many(PreparedPages(taken, on_other), on_result, slots, stop)
            came.put(None)
        except BaseException as error:  # noqa: BLE001 - raised where the pages are recorded
            came.put(error)

    thread = threading.Thread(target=work, name="read", daemon=True)
    thread.start()
    try:
        while (one := came.get()) is not None:
            if isinstance(one, BaseException):
                raise one
            yield one
    except BaseException:
        stop.set()
        raise
    finally:
        while thread.is_alive():
            with contextlib.suppress(queue.Empty):  # it may wait for room
                came.get(timeout=0.05)
