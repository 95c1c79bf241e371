"""Outputs of runs over a cluster, without a cluster: as a test wants them, shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from dsocr_core.cluster.job import Job
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.pages import PageRef, Shard, planned_shards
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import ModelInputs, OcrRequest, OcrResult, StageTiming
from dsocr_core.runs.sharded import Marker, PageReading
from dsocr_core.settings import Settings

BEGAN = 1_700_000_000.0
SHARD_PAGES, SHARDS = 50, 40
HOSTILE = "<img src=x onerror=alert(1)> [link](https://example.com)"
WORKERS = {"node-1/0": 2.0, "node-1/1": 2.1, "node-2/0": 1.9, f"slow {HOSTILE}": 6.0}
"""Seconds a shard of each; the last one is a straggler."""

INPUTS = ModelInputs(
    (1, 2, 3), ((1, 2),), (1, 1), (1, 3, 8, 8), "11", (1, 3, 8, 8), "00", 20, 99, "sdpa", "f", "f"
)


def a_result(text: str, times: Sequence[tuple[Stage, float]] = (), **more: Any) -> OcrResult:
    """What an engine reads of a page of 100 x 80 pixels."""
    given = {
        "backend": "eager", "request": OcrRequest(Path("x.png"), preset="tiny"), "image_size": (100, 80),
        "text_raw": text, "token_ids": tuple(text.encode()), "token_texts": (), "finish_reason": "eos",
        "inputs": INPUTS, "timings": tuple(StageTiming(stage, ms) for stage, ms in times),
    }  # fmt: skip
    return OcrResult(**given | more)  # type: ignore[arg-type]


def planned(output: Output, job: Job, files: Sequence[str]) -> list[Shard]:
    """Begin an output, and plan it; PDFs have a page."""
    output.begin(job)
    return list(planned_shards(output, job, files, lambda path: 1))


def committed(
    output: Output,
    shard: Shard,
    read: Callable[[PageRef], PageReading],
    worker: str = "w",
    times: tuple[float, float] = (0.0, 1.0),
) -> Marker:
    """The marker of a shard that is committed with what `read` says of its pages."""
    pages = [read(page) for page in shard.pages]
    marker = output.write(shard.name, pages, worker, times)
    output.commit(marker)
    return marker


class MadeUpOutput:
    """Shards are committed in order, by workers in turn."""

    def __init__(self, folder: Path) -> None:
        self.output = Output(str(folder))
        job = Job.of(Settings(preset="tiny"), ("pages",), SHARD_PAGES)
        files = [f"/data/page-{number:05d}.png" for number in range(SHARD_PAGES * SHARDS)]
        self._shards = planned(self.output, job, files)
        self._next = 0
        self._clock = dict.fromkeys(WORKERS, BEGAN)

    def commit(self, shards: int) -> None:
        """That many more shards; of every tenth page something failed."""
        names = list(WORKERS)
        for shard in self._shards[self._next : self._next + shards]:
            worker = names[shard.index % len(names)]
            began, self._clock[worker] = self._clock[worker], self._clock[worker] + WORKERS[worker]
            committed(self.output, shard, _page, worker, (began, self._clock[worker]))
        self._next += shards


def _page(page: PageRef) -> PageReading:
    if page.number % 50 == 7:
        return page.failed("ended by SIGABRT; it ended 3 processes", quarantined=True)
    if page.number % 50 == 9:
        return page.failed(f"{page.source}: {HOSTILE}; save it anew")
    tokens = (1,) * (1000 + page.number % 7)
    times = [(Stage.PREFILL, 21.0), (Stage.DECODE, 310.0)]
    return page.read(a_result("text", times, token_ids=tokens, inputs=None))
