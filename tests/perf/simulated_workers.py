"""Many Dask workers in one process, whose engines only wait: cluster.py starts some of these.

    python -m tests.perf.simulated_workers ADDRESS COUNT FIRST

Everything but the engine is real: Dask's worker and its messages, Parquet files, markers. An engine takes the
pages of its two shards in turn, at its speed, and counts how long it had none. When its input ends the
process prints a line of JSON for each worker.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from dsocr_core.base.errors import Cancelled
from dsocr_core.cluster.reader import PieceRead
from dsocr_core.cluster.shards import PageRef
from dsocr_core.cluster.worker import PagesPlugin
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import OcrRequest, OcrResult, StageTiming


@dataclass
class Waited:
    """What an engine did between its first page and its last, in seconds."""

    began: float = 0.0
    ended: float = 0.0
    waited: float = 0.0
    pages: int = 0


ENGINES: list[Waited] = []
"""Of this process."""


class SimulatedReader:
    """An engine of so many pages a second."""

    def __init__(self, pages_per_s: float, tokens: int) -> None:
        self._page_s, self._stop = 1 / pages_per_s, threading.Event()
        self._turn = threading.Lock()
        self._free_at = 0.0
        self._waited = Waited()
        self._result = OcrResult(
            "simulated", OcrRequest(Path("x.png")), (0, 0), "word " * tokens, tuple(range(tokens)), (), "eos",
            None, (StageTiming(Stage.PREFILL, 10.0), StageTiming(Stage.DECODE, 20.0, tokens)),
        )  # fmt: skip
        ENGINES.append(self._waited)

    def start(self) -> None:
        pass

    def read(self, pages: Sequence[PageRef], alone: bool = False) -> PieceRead:
        with self._turn:
            now, figures = time.time(), self._waited
            if figures.pages == 0:
                figures.began = self._free_at = now
            figures.waited += max(0.0, now - self._free_at)
            until = max(now, self._free_at) + len(pages) * self._page_s
            self._free_at = figures.ended = until
            figures.pages += len(pages)
        if self._stop.wait(max(0.0, until - now)):
            raise Cancelled
        return PieceRead(tuple(page.read(self._result) for page in pages))

    def stop(self) -> None:
        self._stop.set()


@dataclass(frozen=True)
class MakeSimulated:
    """Makes the reader of a worker; travels to it."""

    pages_per_s: float
    tokens: int

    def __call__(self, plugin: PagesPlugin) -> SimulatedReader:
        return SimulatedReader(self.pages_per_s, self.tokens)


async def serve(address: str, count: int, first: int) -> None:
    """Workers until the input ends."""
    from distributed import Worker

    from dsocr_core.cluster.local import SHARDS_IN_FLIGHT, quiet

    quiet()
    workers = [
        Worker(
            address, nthreads=SHARDS_IN_FLIGHT, name=f"simulated-{first + number}", memory_limit=0,
            dashboard=False, heartbeat_interval="5s",
        )
        for number in range(count)
    ]  # fmt: skip
    for start in range(0, count, 32):
        await asyncio.gather(*workers[start : start + 32])
    await asyncio.to_thread(sys.stdin.buffer.read)
    for engine in ENGINES:
        print(json.dumps(asdict(engine)), flush=True)


if __name__ == "__main__":
    import os

    from tests.perf import simulated_workers  # the module that Dask imports, not this copy of it

    asyncio.run(simulated_workers.serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
    sys.stdout.flush()
    os._exit(0)  # hundreds of workers need not say goodbye
