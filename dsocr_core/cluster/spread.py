"""One call a shard on any executor, a bounded number at a time: a million shards are no million futures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Executor, Future, wait
from typing import Any, TypeVar

from dsocr_core.errors import Cancelled, DsocrError, one_line
from dsocr_core.records import CancelToken

T = TypeVar("T")
_POLL_S = 0.5


def spread(
    do: Callable[..., T],
    calls: Iterable[tuple[Any, ...]],
    executor: Executor,
    in_flight: int,
    cancel: CancelToken | None = None,
) -> Iterator[T]:
    """What `do` gives for each of `calls`, as they end. Raises what it raises, Cancelled, DsocrError."""
    waiting: set[Future[T]] = set()

    def ended(most: int) -> Iterator[T]:
        """Until no more than so many are in flight."""
        while len(waiting) > most:
            if cancel is not None and cancel.is_set():
                raise Cancelled
            done, _ = wait(waiting, timeout=_POLL_S, return_when=FIRST_COMPLETED)
            for future in done:
                waiting.discard(future)
                yield future.result()

    try:
        for arguments in calls:
            yield from ended(in_flight - 1)
            waiting.add(executor.submit(do, *arguments))
        yield from ended(0)
    except (BrokenExecutor, CancelledError) as error:
        raise DsocrError(f"a worker has ended ({one_line(error)}); give the same command again") from error
    finally:
        for future in waiting:
            future.cancel()
