"""Measure what the cluster costs beside its engines: a run of a million pages over simulated workers.

    python -m tests.perf.cluster --pages 1000000 --workers 512 --pages-per-s 30

Real are the listing, the plan, the driver, Dask's scheduler and workers, messages and storage; an engine only
waits. Workers share this machine: where its cores are busy, what they wait for is this machine, not the
scheduler, so its load is printed beside the figures. The last line is one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.cluster.driver import Driver, Order
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.local import SCHEDULER_CONFIG, joined
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.status import read_status
from dsocr_core.cluster.worker import WorkerJob
from dsocr_core.runs.machine import cpu_time, others_share
from dsocr_core.settings import Settings
from tests.perf.simulated_workers import MakeSimulated
from tests.support.cluster_runs import Heard

WORKERS_A_PROCESS = 32
"""More would wait for one another: a process computes one thing at a time."""
_START_S = 300


def build_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Run many pages over simulated workers.")
    parser.add_argument("--pages", type=int, default=1_000_000, help="pages of the run")
    parser.add_argument("--workers", type=int, default=512, help="simulated workers")
    parser.add_argument("--pages-per-s", type=float, default=30.0, metavar="N", help="of a worker's engine")
    parser.add_argument("--shard-pages", type=int, default=256, metavar="N", help="pages of a shard")
    parser.add_argument("--tokens", type=int, default=20, help="new tokens of a page, which are written")
    return parser


def main() -> int:
    options = build_parser().parse_args()
    make = MakeSimulated(options.pages_per_s, options.tokens)
    with ExitStack() as exits:
        folder = Path(exits.enter_context(tempfile.TemporaryDirectory(prefix="dsocr-cluster-")))
        with (folder / "pages.txt").open("w") as handle:
            for number in range(options.pages):
                handle.write(f"/data/scans/batch-{number // 1000:05d}/page-{number:08d}.png\n")
        scheduler, address = exits.enter_context(_scheduler(folder))
        processes = [
            exits.enter_context(_workers(address, min(WORKERS_A_PROCESS, options.workers - first), first))
            for first in range(0, options.workers, WORKERS_A_PROCESS)
        ]
        found = measure(folder, address, options.workers, make, options.shard_pages, [scheduler, *processes])
    print(json.dumps({"pages_per_s": options.pages_per_s, "shard_pages": options.shard_pages, **found}))
    return 0 if found["complete"] else 1


def measure(
    folder: Path,
    address: str,
    workers: int,
    make: MakeSimulated,
    shard_pages: int,
    processes: list[subprocess.Popen[bytes]],
) -> dict[str, Any]:
    """JSON-ready figures; `processes` are the scheduler, then those of the workers.

    Waiting is in percent of the time between a worker's first page and its last; the tail is in percent of
    all workers' time, after their last page and before the run's end. Milliseconds are of computing.
    """
    job = Job.of(Settings(preset="tiny"), (str(folder / "pages.txt"),), shard_pages)
    output = Output(str(folder / "out"))
    output.begin(job)
    work = WorkerJob("simulated", str(folder / "out"), job.settings, job.code, told_every_s=30.0)
    with joined(address) as client:
        client.wait_for_workers(workers, timeout=_START_S)
        watched = [psutil.Process(process.pid) for process in processes]
        before, own_before = [_cpu_s(each) for each in watched], sum(os.times()[:2])
        machine, began = cpu_time(), time.time()
        driver = Driver(client, job, output, Order(work, make_reader=make), Heard())
        driver.run(threading.Event())
        seconds, own_s = time.time() - began, sum(os.times()[:2]) - own_before
        spent = [_cpu_s(each) - start for each, start in zip(watched, before, strict=True)]
        scheduler_mib = watched[0].memory_info().rss / 2**20
        others = others_share(machine, cpu_time())
    engines = [json.loads(line) for process in processes[1:] for line in _said(process)]
    busy = [engine for engine in engines if engine["pages"]]
    waiting = sorted(100 * each["waited"] / (each["ended"] - each["began"]) for each in busy)
    last, first = max(each["ended"] for each in busy), min(each["began"] for each in busy)
    tail = sum(last - each["ended"] for each in busy) / (len(busy) * (last - first))
    shards, cores = driver.figures.shards, os.cpu_count() or 1
    status = read_status(str(folder / "out"))
    figures = {
        "seconds": seconds, "waiting_percent": statistics.mean(waiting),
        "waiting_p95_percent": waiting[int(0.95 * (len(waiting) - 1))], "tail_percent": 100 * tail,
        "scheduler_ms_a_shard": 1e3 * spent[0] / shards, "driver_ms_a_shard": 1e3 * own_s / shards,
        "workers_ms_a_shard": 1e3 * sum(spent[1:]) / shards,
        "driver_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10,
        "scheduler_mib": scheduler_mib, "cpu_share": (own_s + sum(spent)) / (seconds * cores),
    }  # fmt: skip
    return {
        "pages": status.pages, "workers": len(busy), "cores": cores, "others_share": others,
        "complete": status.complete, **{name: round(value, 3) for name, value in figures.items()},
    }  # fmt: skip


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
    command = [sys.executable, "-m", "tests.perf.simulated_workers", address, str(count), str(first)]
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


if __name__ == "__main__":
    sys.exit(main())
