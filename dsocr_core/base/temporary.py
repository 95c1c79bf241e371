"""Temporary directories that a later command can tell from those of a process that still runs."""

from __future__ import annotations

import fcntl
import os
import tempfile
import weakref
from pathlib import Path

PREFIX = "dsocr-tmp-"
"""Begins their names, as it does no name that a person gives to a folder."""


class Temporary(tempfile.TemporaryDirectory[str]):
    """A temporary directory with a lock that ends with its process: one without was left behind."""

    def __init__(self, what: str) -> None:
        while True:
            super().__init__(prefix=f"{PREFIX}{what}-", ignore_cleanup_errors=True)
            try:
                lock = os.open(self.name, os.O_RDONLY | os.O_DIRECTORY)
            except FileNotFoundError:
                continue
            fcntl.flock(lock, fcntl.LOCK_EX)
            if Path(self.name).is_dir():  # else it was cleared away between its making and its locking
                break
            os.close(lock)
        self._unlock = weakref.finalize(self, os.close, lock)

    def cleanup(self) -> None:
        super().cleanup()
        self._unlock()
