"""A store that is full or not there for a while: the work waits, says so once, and goes on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

from dsocr_core.errors import Cancelled
from dsocr_core.history.storage.store import StorageError
from dsocr_core.records import CancelToken

T = TypeVar("T")
OnPause = Callable[[str | None], None]
"""Called with the cause when work begins to wait, with None when it goes on."""

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.25, 15.0


def patiently(do: Callable[[], T], on_pause: OnPause, cancel: CancelToken | None = None) -> T:
    """What `do` returns, tried again for as long as it raises StorageError. Raises Cancelled."""
    wait_s, paused = _FIRST_WAIT_S, False
    cancel = cancel or threading.Event()
    while True:
        try:
            done = do()
        except StorageError as error:
            if not paused:
                on_pause(str(error))
                paused = True
            if cancel.wait(wait_s):
                raise Cancelled from None
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
        else:
            if paused:
                on_pause(None)
            return done
