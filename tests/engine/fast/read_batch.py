"""Pages given to the batch reader, and what it answers for each."""

from __future__ import annotations

import threading

from dsocr_core.base.errors import DsocrError
from dsocr_core.engine.base import Engine
from dsocr_core.engine.fast.batch import BatchReader
from dsocr_core.engine.source import Work
from dsocr_core.reading.records import OcrRequest, OcrResult


class Listed:
    """A source of pages that are prepared as they are taken; some are late."""

    def __init__(self, engine: Engine, requests: list[OcrRequest], late: int = 0) -> None:
        self._engine, self._left, self._late = engine, list(enumerate(requests)), late

    @property
    def exhausted(self) -> bool:
        return not self._left

    def take(self, timeout_s: float) -> Work | None:
        if self._late and timeout_s == 0.0:
            self._late -= 1
            return None
        if not self._left:
            return None
        key, request = self._left.pop(0)
        return Work(key, request, self._engine.prepare(request))


def read(
    reader: BatchReader, engine: Engine, requests: list[OcrRequest], late: int = 0
) -> dict[object, OcrResult | DsocrError]:
    heard: dict[object, OcrResult | DsocrError] = {}
    threads = set()

    def on_result(key: object, outcome: OcrResult | DsocrError) -> None:
        assert key not in heard
        threads.add(threading.current_thread().name)
        heard[key] = outcome

    reader.read(Listed(engine, requests, late), on_result)
    assert len(threads) == 1 and threading.current_thread().name not in threads
    return heard
