"""Measure pages a second of a local cluster by its number of workers, beside `run` without one, in turns.

    python -m tests.perf.scaling --workers 1 2 --pages 4096 --shard-pages 256 --infer.max-new-tokens 1000 \
        --engine fast --checkpoint random:CONFIG

Pages are drawn, opened and resized as in any run; every page is decoded to the token limit where the weights
are random. Each turn reads the same pages; its speed is that of a time in which all workers are busy, so
loading, a batch that fills and one that drains are left out. On a CPU the seconds of computing a page are the
figure that other programs do not change.
The last line is one JSON document.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from jsonargparse import ArgumentParser
from rich.console import Console

from dsocr_core.backends.backend import Opening
from dsocr_core.cli.options import add_settings, settings_of
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.local import environments, local_cluster, visible_gpus
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.run import Driver
from dsocr_core.cluster.status import Figures
from dsocr_core.cluster.worker import WorkerJob
from dsocr_core.measure.synthetic_page import draw_page, parse_size
from dsocr_core.read.plan import RunPlan
from dsocr_core.read.progress import ProgressBar
from dsocr_core.read.run import read_run
from dsocr_core.read.session import Session
from dsocr_core.runs.machine import CpuTime, cpu_time, others_share
from dsocr_core.settings import Settings, SettingsError
from tests.support.cluster_runs import Heard

PLAIN = 0
"""Stands for `run` without a cluster among the numbers of workers."""
DRAWN = 16


@dataclass(frozen=True)
class Turn:
    """One reading of all pages."""

    workers: int
    """0 is `run` without a cluster."""
    pages: int
    timed_pages: int
    """Those that ended while all workers were busy."""
    seconds: float
    """How long all workers were busy, by `steady`."""
    pages_per_s: float
    cpu_s_a_page: float
    cores_a_worker: float
    """Of the host, busy at that speed."""
    others_share: float | None


class _PageTimes(Heard):
    """When each worker's shards ended, by this process's clock: once for each of their pages."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: dict[str, list[float]] = {}

    def committed(self, figures: Figures) -> None:
        for name, worker in figures.workers.items():
            ended = self.ended.setdefault(name, [])
            ended += [time.monotonic()] * (worker.pages - len(ended))


class _Timed(ProgressBar):
    def __init__(self) -> None:
        super().__init__(Console(stderr=True))
        self.ended: list[float] = []

    def advance(self) -> None:
        self.ended.append(time.monotonic())
        super().advance()


def build_parser() -> ArgumentParser:
    parser = ArgumentParser(description="Compare numbers of workers of a local cluster, and none.")
    workers = "numbers of workers to compare; 0 is `run` without a cluster"
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2], metavar="N", help=workers)
    parser.add_argument("--pages", type=int, default=64, help="pages of each turn")
    parser.add_argument("--size", type=str, default="1240x1754", metavar="WxH", help="of drawn pages")
    parser.add_argument("--shard-pages", type=int, default=8, metavar="N", help="pages of a shard")
    parser.add_argument("--repeat", type=int, default=3, help="turns of each number")
    add_settings(parser)
    return parser


def main(given: Sequence[str] | None = None) -> int:
    parser = build_parser()
    options = parser.instantiate(parser.parse_args(given))
    settings, workers, pages = settings_of(options), options.workers, options.pages
    if pages <= 2 * options.shard_pages * max(1, *workers):
        raise _too_few(pages, options.shard_pages)
    turns: list[Turn] = []
    with tempfile.TemporaryDirectory(prefix="dsocr-scaling-") as name:
        folder = Path(name) / "pages"
        folder.mkdir()
        size = parse_size(options.size)
        drawn = [draw_page(Path(name) / f"{number}.png", size, number) for number in range(min(DRAWN, pages))]
        for number in range(pages):
            (folder / f"{number:07d}.png").symlink_to(drawn[number % len(drawn)])
        for turn in range(options.repeat):
            # In turns and back: what else the machine does meets all of them.
            for count in workers if turn % 2 == 0 else reversed(workers):
                out = Path(name) / f"out-{turn}-{count}"
                if count == PLAIN:
                    turns.append(_plain(settings, folder, out, options.shard_pages))
                else:
                    turns.append(_clustered(settings, folder, out, count, options.shard_pages))
                print(turns[-1], file=sys.stderr)
    medians = {
        str(count): statistics.median(turn.pages_per_s for turn in turns if turn.workers == count)
        for count in workers
    }
    first = medians[str(workers[0])]
    ratios = {count: round(speed / first, 3) for count, speed in medians.items()}
    document = {"pages_per_s": medians, "to_the_first": ratios, "turns": [asdict(turn) for turn in turns]}
    print(json.dumps(document))
    return 0 if all(turn.pages == pages for turn in turns) else 1


def steady(ended: Sequence[Sequence[float]], shard_pages: int) -> tuple[int, float]:
    """Pages and seconds of the time in which all workers are busy.

    `ended` holds when each worker's pages ended, in order. The time begins when each has read a shard, and
    ends when one of them has a shard left: as many pages are in flight at its end as at its begin, so that
    none is counted with a part of its work. Raises SettingsError where there is no such time.
    """
    if min(map(len, ended)) > 2 * shard_pages:
        begin = max(times[shard_pages - 1] for times in ended)
        end = min(times[-shard_pages - 1] for times in ended)
        if end > begin:
            return sum(begin < moment <= end for times in ended for moment in times), end - begin
    raise _too_few(sum(map(len, ended)), shard_pages)


def _too_few(pages: int, shard_pages: int) -> SettingsError:
    return SettingsError(
        f"{pages} pages in shards of {shard_pages}: give more --pages or fewer --shard-pages, as the speed "
        "is that of each worker's pages without its first and its last shard"
    )


def _clustered(settings: Settings, folder: Path, out: Path, workers: int, shard_pages: int) -> Turn:
    job = Job.of(settings, (str(folder),), shard_pages)
    output = Output(str(out))
    output.begin(job)
    made = environments(workers, visible_gpus(), os.cpu_count() or 1, settings.device)
    began = cpu_time()
    times = _PageTimes()
    with local_cluster(made) as client:
        work = WorkerJob("scaling", str(out), job.settings, job.code)
        (driver := Driver(client, job, output, work, times, threading.Event())).run()
    return _turn(workers, driver.figures.read, list(times.ended.values()), shard_pages, began)


def _plain(settings: Settings, folder: Path, out: Path, shard_pages: int) -> Turn:
    began, timed = cpu_time(), _Timed()
    with closing(Session(settings, Opening(caches=False))) as session:
        session.load(("a",))
        report = read_run([session], RunPlan((folder,), out), timed)
        return _turn(PLAIN, report.passed + report.stopped, [timed.ended], shard_pages, began)


def _turn(
    workers: int, pages: int, ended: Sequence[Sequence[float]], shard_pages: int, began: CpuTime | None
) -> Turn:
    now = cpu_time()
    own = 0.0 if began is None or now is None else now.own_s - began.own_s
    share = others_share(began, now)
    timed_pages, seconds = steady(ended, shard_pages)
    pages_per_s, cpu_s_a_page = timed_pages / seconds, own / max(1, pages)
    return Turn(
        workers, pages, timed_pages, round(seconds, 2), round(pages_per_s, 4), round(cpu_s_a_page, 4),
        round(cpu_s_a_page * pages_per_s / max(1, workers), 2),
        None if share is None else round(share, 3),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
