"""Pages a second of a local cluster by its number of workers, beside `run` without one, in turns.

    dsocr measure scaling --workers 1 2 --pages 4000 --tokens 1000 --engine fast --checkpoint random:CONFIG

Pages are drawn, opened and resized as in any run; every page is decoded to the token limit where the weights
are random. Each turn reads the same pages; its speed is that after its first shard of pages until its last
page, so loading and a batch that fills are left out. On a CPU the seconds of computing a page are the figure
that other programs do not change.
The last line is one JSON document.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from dsocr_core.cluster.driver import Driver, Order
from dsocr_core.cluster.figures import Figures
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.local import environments, local_cluster, visible_gpus
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.worker import WorkerJob
from dsocr_core.console import FAILED, OK
from dsocr_core.history.machine import cpu_time, others_share
from dsocr_core.measure.synthetic_page import draw_page
from dsocr_core.settings import Settings, SettingsError

PLAIN = 0
"""Stands for `run` without a cluster among the numbers of workers."""
DRAWN = 16


@dataclass(frozen=True)
class Turn:
    """One reading of all pages."""

    workers: int
    """0 is `run` without a cluster."""
    pages: int
    seconds: float
    pages_per_s: float
    cpu_s_a_page: float
    others_share: float | None


class _Silent:
    def planned(self, pages: int, complete: bool) -> None:
        pass

    def committed(self, figures: Figures, in_flight: int, workers: int) -> None:
        pass

    def told(self, worker: str, words: Mapping[str, Any]) -> None:
        pass

    def said(self, words: str) -> None:
        pass


def run(
    settings: Settings,
    workers: Sequence[int],
    pages: int,
    size: tuple[int, int],
    shard_pages: int,
    repeat: int,
    console: Console,
) -> int:
    if pages <= shard_pages:
        raise SettingsError(
            f"{pages} pages in shards of {shard_pages}: give more --pages or fewer --shard-pages, "
            "as the speed is that after the first shard"
        )
    turns: list[Turn] = []
    with tempfile.TemporaryDirectory(prefix="dsocr-scaling-") as name:
        folder = Path(name) / "pages"
        folder.mkdir()
        drawn = [draw_page(Path(name) / f"{number}.png", size, number) for number in range(min(DRAWN, pages))]
        for number in range(pages):
            (folder / f"{number:07d}.png").symlink_to(drawn[number % len(drawn)])
        for turn in range(repeat):
            # In turns and back: what else the machine does meets all of them.
            for count in workers if turn % 2 == 0 else reversed(workers):
                out = Path(name) / f"out-{turn}-{count}"
                if count == PLAIN:
                    one = _plain(settings, folder, out, shard_pages)
                else:
                    one = _clustered(settings, folder, out, count, shard_pages)
                turns.append(one)
                who = "run" if count == PLAIN else f"{count} workers"
                console.print(f"{who}: {one.pages_per_s:.3g} pages/s, {one.cpu_s_a_page:.3g} CPU s a page")
    medians = {
        str(count): statistics.median(turn.pages_per_s for turn in turns if turn.workers == count)
        for count in workers
    }
    first = medians[str(workers[0])]
    ratios = {count: round(speed / first, 3) for count, speed in medians.items()}
    document = {"pages_per_s": medians, "to_the_first": ratios, "turns": [asdict(turn) for turn in turns]}
    print(json.dumps(document))
    return OK if all(turn.pages == pages for turn in turns) else FAILED


def _clustered(settings: Settings, folder: Path, out: Path, workers: int, shard_pages: int) -> Turn:
    job = Job.of(settings, (str(folder),), shard_pages)
    output = Output(str(out))
    output.begin(job)
    made = environments(workers, visible_gpus(), os.cpu_count() or 1, settings.device)
    began = cpu_time()
    with local_cluster(made) as client:
        work = WorkerJob("scaling", str(out), job.settings, job.code)
        figures = Driver(client, job, output, Order(work), _Silent()).run(threading.Event())
    markers = sorted(output.markers(output.marker_names().values()), key=lambda marker: marker.ended)
    first, last = markers[0].ended, markers[-1].ended
    after = sum(marker.pages for marker in markers if marker.ended > first)
    return _turn(workers, figures.read, after, last - first, began)


def _plain(settings: Settings, folder: Path, out: Path, first: int) -> Turn:
    from dsocr_core.run.pages import read_pages
    from dsocr_core.run.pipeline import Pipeline
    from dsocr_core.run.plan import RunPlan
    from dsocr_core.run.progress import Progress

    ended: list[float] = []

    class Timed(Progress):
        def advance(self) -> None:
            ended.append(time.time())
            super().advance()

    began = cpu_time()
    with closing(Pipeline(settings, caches=False)) as pipeline:
        pipeline.load(("a",))
        report = read_pages(pipeline, RunPlan((folder,), out), Timed(Console(stderr=True)))
        pages = report.passed + report.stopped
        return _turn(PLAIN, pages, len(ended) - first, ended[-1] - ended[first - 1], began)


def _turn(workers: int, pages: int, timed_pages: int, seconds: float, began: Any) -> Turn:
    ended = cpu_time()
    own = 0.0 if began is None or ended is None else ended.own_s - began.own_s
    share = others_share(began, ended)
    return Turn(
        workers, pages, round(seconds, 2), round(timed_pages / seconds, 4), round(own / max(1, pages), 4),
        None if share is None else round(share, 3),
    )  # fmt: skip
