"""Owners that any thread may close while other threads use them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from dsocr_core.base.errors import Cancelled, DsocrError

_AGAIN_S = 0.02  # an interrupt that comes before the work has begun is lost, so it is repeated


class Closed(DsocrError):
    """A use of something that was closed."""


class Uses:
    """The uses of an owner that are in progress. After `end` there are none, and no other one begins."""

    def __init__(self, owner: str) -> None:
        self._owner, self._ended = owner, False
        self._change = threading.Condition()
        self._active: dict[object, tuple[int, Callable[[], object] | None]] = {}
        self._ending: set[int] = set()

    def check(self) -> None:
        """Raise Closed after the close."""
        if self._ended:
            raise Closed(f"{self._owner} is closed; open it anew")

    @contextlib.contextmanager
    def use(self, interrupt: Callable[[], object] | None = None) -> Iterator[None]:
        """Use the owner in the block, which `interrupt` ends soon, from another thread. Raises Closed."""
        key = object()
        with self._change:
            self.check()
            self._active[key] = threading.get_ident(), interrupt
        try:
            yield
        except Exception as error:
            if self._ended and not isinstance(error, Cancelled):  # its frames hold the model
                raise Closed(f"{self._owner} was closed; open it anew") from error.with_traceback(None)
            raise
        finally:
            with self._change:
                del self._active[key]
                self._change.notify_all()

    def end(self) -> None:
        """Admit no further use, interrupt those of other threads, and wait until they have ended."""
        with self._change:
            self._ended = True
            self._ending.add(threading.get_ident())  # such a thread waits itself, and is not waited for
            self._change.notify_all()
            while others := [each for thread, each in self._active.values() if thread not in self._ending]:
                for interrupt in filter(None, others):
                    interrupt()
                self._change.wait(_AGAIN_S)
