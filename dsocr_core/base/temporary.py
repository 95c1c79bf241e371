"""Temporary directories that a later command can tell from those of a process that still runs."""

from __future__ import annotations

import fcntl
import os
import tempfile
import weakref

PREFIX = "dsocr-"


class Temporary(tempfile.TemporaryDirectory[str]):
    """A temporary directory with a lock that ends with its process: one without was left behind."""

    def __init__(self, what: str) -> None:
        super().__init__(prefix=f"{PREFIX}{what}-", ignore_cleanup_errors=True)
        lock = os.open(self.name, os.O_RDONLY | os.O_DIRECTORY)
        self._unlock = weakref.finalize(self, os.close, lock)
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def cleanup(self) -> None:
        super().cleanup()
        self._unlock()
