"""Several pages on their way at once, recorded in order: a server takes many, an engine of ours one."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

from dsocr_core.errors import Cancelled
from dsocr_core.records import CancelToken

Record = Callable[[], None]
"""Records what became of a page; called on one thread, in the order of the pages."""


def read_in_flight(
    read: Callable[[int, CancelToken], Record], count: int, in_flight: int, cancel: CancelToken | None
) -> None:
    """Read pages 0 to `count` - 1, at most `in_flight` at once, each on a thread.

    What `read` returns is called, in order. Raises what `read` or a record raises, after the pages in flight
    were told to stop.
    """
    stop = cancel or CancelToken()
    waiting: deque[Future[Record]] = deque()
    with ThreadPoolExecutor(in_flight, "page") as pool:
        try:
            for number in range(count):
                if stop.is_set():
                    raise Cancelled
                waiting.append(pool.submit(read, number, stop))
                if len(waiting) >= in_flight:
                    waiting.popleft().result()()
            while waiting:
                waiting.popleft().result()()
        except BaseException:
            stop.set()  # what is in flight is of no use to anybody
            pool.shutdown(cancel_futures=True)
            raise
