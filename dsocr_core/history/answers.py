"""What the history was asked lately and its answers: a page asks the same again with every click."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

MOST_BYTES = 64 * 2**20


class Answers:
    """The latest answers, in at most `most_bytes`, until the history changes. Any thread may ask."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._held: OrderedDict[str, pd.DataFrame] = OrderedDict()
        self._bytes = 0
        self._state = 0
        self._lock = threading.Lock()

    def get(
        self, state: int, sql: str, values: Mapping[str, Any], ask: Callable[[], pd.DataFrame]
    ) -> pd.DataFrame:
        """The answer to `sql` with these values; `ask` is called where it is not held.

        `state` is another number after each change of the history; the files that are among the values are
        asked again when they were written anew. The frame is the caller's own. Raises what `ask` raises, and
        OSError where a file is gone.
        """
        written = [(file, _written(file)) for file in values.get("files", ())]
        key = repr((sql, sorted(values.items()), written))
        with self._lock:
            if state != self._state:
                self._held.clear()
                self._bytes, self._state = 0, state
            if (found := self._held.get(key)) is not None:
                self._held.move_to_end(key)
                return found.copy(deep=False)  # columns are copied when they are written to
        found = ask()
        with self._lock:
            size = _bytes(found)
            if state == self._state and key not in self._held and size <= self._most_bytes:
                self._held[key] = found
                self._bytes += size
                while self._bytes > self._most_bytes:
                    self._bytes -= _bytes(self._held.popitem(last=False)[1])
        return found.copy(deep=False)


def _written(file: str) -> tuple[int, int]:
    status = Path(file).stat()
    return status.st_mtime_ns, status.st_size


def _bytes(frame: pd.DataFrame) -> int:
    return int(frame.memory_usage().sum())
