"""How Ctrl-C ends a command: between two steps of the work, in one line."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def cancelled_by_interrupt() -> Iterator[threading.Event]:
    """An event that Ctrl-C sets. For the main thread."""
    cancel = threading.Event()
    previous = signal.signal(signal.SIGINT, lambda *_: cancel.set())
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, previous)
