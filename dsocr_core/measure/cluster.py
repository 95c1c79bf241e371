"""What the cluster costs beside its engines: a run of a million pages over simulated workers.

    dsocr measure cluster --pages 1000000 --workers 512 --pages-per-s 30

Real are the listing, the plan, the driver, Dask's scheduler and workers, messages and storage; an engine only
waits. Workers share this machine: where its cores are busy, what they wait for is this machine, not the
scheduler, so its load is printed beside the figures. The last line is one JSON document.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from dsocr_core.cluster.driver import Driver, Order
from dsocr_core.cluster.figures import Figures
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.local import SCHEDULER_CONFIG, joined
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.status import read_status
from dsocr_core.cluster.worker import WorkerJob
from dsocr_core.console import FAILED, OK
from dsocr_core.errors import DsocrError
from dsocr_core.history.machine import cpu_time, others_share
from dsocr_core.measure.simulated_workers import MakeSimulated
from dsocr_core.settings import PROJECT_ROOT, Settings

WORKERS_A_PROCESS = 32
"""More would wait for one another: a process computes one thing at a time."""
_START_S = 300
_TOLD_EVERY_S = 30.0


@dataclass(frozen=True)
class Simulated:
    """A run over simulated workers."""

    pages: int
    workers: int
    pages_per_s: float
    """Of each worker."""
    shard_pages: int
    seconds: float
    waiting_percent: float
    """Of the time between a worker's first page and its last, the mean of all."""
    waiting_p95_percent: float
    tail_percent: float
    """Of all workers' time, after their last page and before the run's end: there were no more shards."""
    scheduler_ms_a_shard: float
    """Of computing."""
    driver_ms_a_shard: float
    workers_ms_a_shard: float
    """Of computing: Dask's side and the storage's, without an engine."""
    driver_mib: float
    """The most memory that the driver had."""
    scheduler_mib: float
    cores: int
    cpu_share: float
    """Of this machine's cores, in use by the whole run."""
    others_share: float | None
    complete: bool


class _Watching:
    def __init__(self, console: Console) -> None:
        self._console, self._at = console, 0.0

    def planned(self, pages: int, complete: bool) -> None:
        pass

    def committed(self, figures: Figures, in_flight: int, workers: int) -> None:
        if time.monotonic() - self._at > 5.0:
            self._at = time.monotonic()
            self._console.print(f"{figures.pages:,} pages, {workers} workers, {in_flight} in flight")

    def told(self, worker: str, words: Mapping[str, Any]) -> None:
        pass

    def said(self, words: str) -> None:
        self._console.print(words, markup=False)


def run(pages: int, workers: int, pages_per_s: float, shard_pages: int, tokens: int, console: Console) -> int:
    with ExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="dsocr-cluster-")))
        manifest = folder / "pages.txt"
        with manifest.open("w") as handle:
            for number in range(pages):
                handle.write(f"/data/scans/batch-{number // 1000:05d}/page-{number:08d}.png\n")
        scheduler, address = exits.enter_context(_scheduler(folder))
        processes = [
            exits.enter_context(_workers(address, min(WORKERS_A_PROCESS, workers - first), first))
            for first in range(0, workers, WORKERS_A_PROCESS)
        ]
        make = MakeSimulated(pages_per_s, tokens)
        found = _measure(folder, address, workers, make, shard_pages, [scheduler, *processes], console)
    console.print(
        f"workers waited {found.waiting_percent:.2f}% (95%: at most {found.waiting_p95_percent:.2f}%), "
        f"tail {found.tail_percent:.1f}%, driver {found.driver_mib:.0f} MiB, computing a shard: scheduler "
        f"{found.scheduler_ms_a_shard:.1f} ms, driver {found.driver_ms_a_shard:.1f} ms; "
        f"{100 * found.cpu_share:.0f}% of {found.cores} cores in use"
    )
    print(json.dumps(asdict(found)))
    return OK if found.complete else FAILED


def _measure(
    folder: Path,
    address: str,
    workers: int,
    make: MakeSimulated,
    shard_pages: int,
    processes: list[subprocess.Popen[bytes]],
    console: Console,
) -> Simulated:
    """`processes` are the scheduler, then those of the workers."""
    import psutil

    job = Job.of(Settings(preset="tiny"), (str(folder / "pages.txt"),), shard_pages)
    output = Output(str(folder / "out"))
    output.begin(job)
    work = WorkerJob("simulated", str(folder / "out"), job.settings, job.code, told_every_s=_TOLD_EVERY_S)
    order = Order(work, make_reader=make)
    with joined(address) as client:
        client.wait_for_workers(workers, timeout=_START_S)
        watched = [psutil.Process(process.pid) for process in processes]
        before, own_before = [_cpu_s(each) for each in watched], sum(os.times()[:2])
        machine, began = cpu_time(), time.time()
        driver = Driver(client, job, output, order, _Watching(console))
        driver.run(threading.Event())
        ended, own_s = time.time(), sum(os.times()[:2]) - own_before
        spent = [_cpu_s(each) - start for each, start in zip(watched, before, strict=True)]
        scheduler_mib = watched[0].memory_info().rss / 2**20
        others = others_share(machine, cpu_time())
    engines = [json.loads(line) for process in processes[1:] for line in _said(process)]
    busy = [engine for engine in engines if engine["pages"]]
    waiting = sorted(100 * each["waited"] / (each["ended"] - each["began"]) for each in busy)
    last = max(each["ended"] for each in busy)
    first = min(each["began"] for each in busy)
    tail = sum(last - each["ended"] for each in busy) / (len(busy) * (last - first))
    shards, status = driver.figures.shards, read_status(str(folder / "out"))
    return Simulated(
        pages=status.pages, workers=len(busy), pages_per_s=make.pages_per_s, shard_pages=shard_pages,
        seconds=round(ended - began, 1), waiting_percent=round(statistics.mean(waiting), 3),
        waiting_p95_percent=round(waiting[int(0.95 * (len(waiting) - 1))], 3),
        tail_percent=round(100 * tail, 2), scheduler_ms_a_shard=round(1e3 * spent[0] / shards, 2),
        driver_ms_a_shard=round(1e3 * own_s / shards, 2),
        workers_ms_a_shard=round(1e3 * sum(spent[1:]) / shards, 2),
        driver_mib=round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10, 1),
        scheduler_mib=round(scheduler_mib, 1), cores=os.cpu_count() or 1,
        cpu_share=round((own_s + sum(spent)) / ((ended - began) * (os.cpu_count() or 1)), 3),
        others_share=None if others is None else round(others, 3), complete=status.complete,
    )  # fmt: skip


def _cpu_s(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _environment() -> dict[str, str]:
    """That of this process, with Dask's settings in the form in which an environment has them."""
    path = os.pathsep.join(filter(None, (str(PROJECT_ROOT), os.environ.get("PYTHONPATH"))))
    dask = {
        f"DASK_{name.replace('.', '__').replace('-', '_').upper()}": str(value)
        for name, value in SCHEDULER_CONFIG.items()
    }
    return {**os.environ, **dask, "PYTHONPATH": path}


@contextmanager
def _scheduler(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    file = folder / "scheduler.json"
    command = [
        sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0",
        "--no-dashboard", "--scheduler-file", str(file),
    ]  # fmt: skip
    with subprocess.Popen(command, env=_environment(), stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + _START_S
            while not file.exists() or not file.read_text().strip():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise DsocrError("the scheduler did not start: run `dask scheduler` to see why")
                time.sleep(0.1)
            yield process, json.loads(file.read_text())["address"]
        finally:
            process.kill()


@contextmanager
def _workers(address: str, count: int, first: int) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "dsocr_core.measure.simulated_workers", address, str(count), str(first)]
    with subprocess.Popen(
        command, env=_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _said(process: subprocess.Popen[bytes]) -> list[bytes]:
    said, _ = process.communicate(timeout=_START_S)
    return said.splitlines()
