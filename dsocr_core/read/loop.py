"""Pages to results: the one loop of every run, of A, of A and B, and of A and several B.

Pages are prefetched on threads; how many are read at once is their backends' number. What is in memory does
not grow with their number. What comes out is given to `on_page` on the caller's thread.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.engine.source import Prefetch
from dsocr_core.read.prefetch import PageReader, PageToRead, PreparedPages, ReadyPage
from dsocr_core.read.session import Sides
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import CancelToken, OcrResult

PREFETCHED = 2
"""Pages that are prepared before their turn, and results that wait to be recorded."""
MOST_WAITING = 64
"""Results of a batch that wait to be recorded."""


@dataclass(frozen=True)
class PageOutcome:
    """Outcome of a page: a comparison with each B, or of A alone; none where it was not read."""

    page: ReadyPage
    comparisons: tuple[Comparison, ...] = ()
    cancelled: bool = False  # True where only its first sides were through


OnPage = Callable[[PageOutcome], object]


def read_pages(
    sides: Sides, pages: PageReader, on_page: OnPage, in_flight: int = 1, cancel: CancelToken | None = None
) -> None:
    """Read all pages, `in_flight` at a time: in order, or as they end where A reads them in a batch.

    One at a time is read on the caller's thread: while a page is timed nothing else of the run is recorded.

    Raises what concerns all pages, and Cancelled when `cancel` is set, after the pages that were through by
    then; of one that was not, what its first sides gave comes too.
    """
    read = _read_in_batch if sides.reads_many and in_flight > 1 else _read_in_order
    read(sides, pages, on_page, in_flight, cancel or CancelToken())


def _read_in_order(
    sides: Sides, pages: PageReader, on_page: OnPage, in_flight: int, stop: CancelToken
) -> None:
    waiting: deque[Callable[[], PageOutcome | None]] = deque()
    cancelled = False

    def read(taken: Future[ReadyPage]) -> PageOutcome | None:
        page = taken.result()
        if stop.is_set() or not isinstance(page, PageToRead):
            return None if stop.is_set() else PageOutcome(page)
        try:
            comparisons, cut = sides.read(page.request, page.prepared, stop)
        except Cancelled:
            stop.set()
            return None
        if cut:
            stop.set()
        return PageOutcome(page.without_pixels(), tuple(comparisons), cut)

    def record(most: int) -> None:
        nonlocal cancelled
        while len(waiting) > most:
            outcome = waiting.popleft()()
            cancelled |= outcome is None or outcome.cancelled
            if outcome is not None:
                on_page(outcome)

    with ThreadPoolExecutor(in_flight, "take") as taking, ThreadPoolExecutor(in_flight, "read") as reading:
        try:
            for number in range(len(pages)):
                if cancelled := cancelled or stop.is_set():
                    break
                taken = taking.submit(pages.read, number)
                waiting.append(reading.submit(read, taken).result if in_flight > 1 else partial(read, taken))
                record(in_flight + PREFETCHED - 1)
            record(0)
        except BaseException:
            stop.set()  # what is in flight is not wanted any more
            raise
    if cancelled:
        raise Cancelled


def _read_in_batch(sides: Sides, pages: PageReader, on_page: OnPage, slots: int, stop: CancelToken) -> None:
    came: queue.Queue[PageOutcome | BaseException | None] = queue.Queue(MOST_WAITING)

    def on_result(page: object, result: OcrResult | DsocrError) -> None:
        assert isinstance(page, PageToRead)
        if isinstance(result, DsocrError):
            came.put(PageOutcome(page.failed(str(result))))
        else:
            came.put(PageOutcome(page, (Comparison(page.request, result),)))

    def work() -> None:
        try:
            with Prefetch(pages.read, pages.largest_first) as taken:
                sides.first.read_many(
                    "a",
                    PreparedPages(taken, lambda page: came.put(PageOutcome(page))),
                    on_result,
                    slots,
                    stop,
                )
            came.put(None)
        except BaseException as error:  # noqa: BLE001 - raised where the pages are recorded
            came.put(error)

    thread = threading.Thread(target=work, name="read", daemon=True)
    thread.start()
    try:
        while (one := came.get()) is not None:
            if isinstance(one, BaseException):
                raise one
            on_page(one)
    except BaseException:
        stop.set()
        raise
    finally:
        while thread.is_alive():
            with contextlib.suppress(queue.Empty):  # it may wait for room
                came.get(timeout=0.05)
