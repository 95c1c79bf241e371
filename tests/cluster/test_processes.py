"""The command line over real schedulers and workers, each of which may be killed; Ctrl-C once and twice."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest

pytest.importorskip("distributed", reason="requirements-cluster.txt is not installed")

from dsocr_core.base.errors import DsocrError
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.status import read_status
from tests.support.cluster_runs import check_exactly_once, make_pages, sorted_markers
from tests.support.paths import ROOT

WAIT_S = 120
"""Machines that run tests are busy: long waits, always for a condition."""
PAGES = 32
GOES_ON_S = 30
"""After a kill of the driver the same command has begun again by then."""


def wait_for(holds: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}"
        time.sleep(0.05)


class Processes:
    """What a test has started; all of it ends with the test."""

    def __init__(self, folder: Path, interpreter: Path) -> None:
        self.folder, self.out, self.interpreter = folder, folder / "out", str(interpreter)
        self.started: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
            "DSOCR_RUNS": str(folder / "runs"), "PYTHONDONTWRITEBYTECODE": "1",
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
        }  # fmt: skip

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [self.interpreter, "-m", *command], cwd=self.folder, env=self.environment, stdout=log,
                stderr=log, start_new_session=True,
            )  # fmt: skip
        self.started.append(process)
        return process

    def said(self, name: str) -> str:
        return " ".join((self.folder / f"{name}.log").read_text().split())

    def has_said(self, name: str, words: str) -> bool:
        return words in self.said(name)

    def scheduler(self, name: str) -> tuple[subprocess.Popen[bytes], str]:
        file = self.folder / f"{name}.json"
        process = self.start(
            name, "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0",
            "--dashboard-address", "127.0.0.1:0", "--scheduler-file", str(file),
        )  # fmt: skip
        wait_for(file.exists, "the scheduler's file")
        return process, json.loads(file.read_text())["address"]

    def worker(self, name: str, address: str) -> subprocess.Popen[bytes]:
        return self.start(
            name, "distributed.cli.dask_worker", address, "--nthreads", "2", "--no-nanny", "--name", name,
            "--host", "127.0.0.1", "--memory-limit", "0", "--no-dashboard",
        )  # fmt: skip

    def run(self, name: str, *more: str) -> subprocess.Popen[bytes]:
        return self.start(
            name, "tests.support.cluster_command", "run", str(self.folder / "pages"), "--out", str(self.out),
            "--shard-pages", "4", "--preset", "tiny", "--cluster", *more,
        )  # fmt: skip

    def has_read(self, pages: int) -> bool:
        with contextlib.suppress(DsocrError):
            return read_status(Output(str(self.out))).read >= pages
        return False

    def hold(self) -> None:
        """Make pages of which the last ones wait for `let_go`: the run cannot be over before."""
        wait = f"wait {self.folder / 'go'}"
        make_pages(self.folder / "pages", PAGES, dict.fromkeys((PAGES - 9, PAGES - 1), wait))

    def let_go(self) -> None:
        make_pages(self.folder / "pages", PAGES)
        (self.folder / "go").touch()

    def end(self) -> None:
        for process in self.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def processes(tmp_path: Path, interpreter: Path) -> Iterator[Processes]:
    started = Processes(tmp_path, interpreter)
    yield started
    started.end()


def test_the_scheduler_killed_leaves_what_is_committed_and_a_new_one_goes_on(processes: Processes) -> None:
    processes.hold()
    scheduler, address = processes.scheduler("scheduler-1")
    workers = [processes.worker(f"worker-{number}", address) for number in (1, 2)]
    run = processes.run("run-1", address)
    wait_for(partial(processes.has_read, 16), "16 pages")
    os.kill(scheduler.pid, signal.SIGKILL)
    assert run.wait(WAIT_S) == 2
    assert "the scheduler is gone;" in processes.said("run-1")
    assert "start it, then give the same command again" in processes.said("run-1")
    before = read_status(Output(str(processes.out))).read
    for worker in workers:
        os.killpg(worker.pid, signal.SIGKILL)
    processes.let_go()
    _, address = processes.scheduler("scheduler-2")
    processes.worker("worker-3", address)
    assert processes.run("run-2", address).wait(WAIT_S) == 0, processes.said("run-2")
    assert f"{before} pages were committed before, and are skipped" in processes.said("run-2")
    check_exactly_once(str(processes.out), PAGES)


def test_the_client_killed_costs_no_page(processes: Processes) -> None:
    processes.hold()
    _, address = processes.scheduler("scheduler")
    processes.worker("worker", address)
    run = processes.run("run-1", address)
    wait_for(partial(processes.has_read, 16), "16 pages")
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    processes.let_go()
    assert processes.run("run-2", address, "--json").wait(WAIT_S) == 0, processes.said("run-2")
    assert f'{{"pages": {PAGES}, "done": {PAGES}, "failed": 0, "quarantined": 0,' in processes.said("run-2")
    check_exactly_once(str(processes.out), PAGES)


def test_ctrl_c_stops_and_says_how_to_go_on_and_a_second_one_ends_at_once(processes: Processes) -> None:
    """A terminal sends the signal to all of its processes."""
    processes.hold()
    local = ("local", "--workers", "1")
    run = processes.run("run-1", *local)
    wait_for(partial(processes.has_read, 16), "16 pages")
    os.killpg(run.pid, signal.SIGINT)
    assert run.wait(WAIT_S) == 1, processes.said("run-1")
    assert "pages are committed; to go on, give the same command again" in processes.said("run-1")
    assert read_status(Output(str(processes.out))).read % 4 == 0

    def interrupt() -> bool:
        with contextlib.suppress(ProcessLookupError):
            os.kill(run.pid, signal.SIGINT)
        return run.poll() is not None

    run = processes.run("run-2", *local)
    wait_for(partial(processes.has_said, "run-2", "pages were committed before"), "the second run")
    wait_for(interrupt, "the end")
    assert run.returncode in (130, 1)
    processes.let_go()
    assert processes.run("run-3", *local).wait(WAIT_S) == 0, processes.said("run-3")
    check_exactly_once(str(processes.out), PAGES)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_workers_children_and_drivers_killed_at_random_change_no_byte(processes: Processes) -> None:
    """200 pages, 15 kills, each while a page waits: every page once, and the bytes of a run without kills."""
    pages, kills, chance, driver = 200, ["worker", "child", "driver"] * 5, random.Random(11), 0
    processes.interpreter, local = sys.executable, ("local", "--workers", "2")
    chance.shuffle(kills)
    held = {13 * number + 6: processes.folder / f"go-{number}" for number in range(len(kills))}
    make_pages(processes.folder / "pages", pages, {page: f"wait {go}" for page, go in held.items()})
    run = processes.run("run-0", *local)
    for kind, (page, go) in zip(kills, held.items(), strict=True):
        wait_for(partial(processes.has_read, page - 26), f"pages before {page}")
        victims: list[int] = [run.pid]
        if kind != "driver":
            wait_for(partial(readers_of, run.pid), "a reader process")
            found = readers_of(run.pid)
            victims = [each.pid if kind == "child" else each.ppid() for each in found]
        os.kill(chance.choice(victims), signal.SIGKILL)
        (processes.folder / "pages" / f"{page:05d}.png").write_text(f"page {page}")
        go.touch()
        if kind == "driver":
            run.wait()
            driver, began = driver + 1, time.monotonic()
            run = processes.run(f"run-{driver}", *local)
            wait_for(partial(processes.has_said, f"run-{driver}", "going on with the run"), "the next driver")
            assert time.monotonic() - began < GOES_ON_S
    assert run.wait(WAIT_S) == 0, processes.said(f"run-{driver}")
    check_exactly_once(str(processes.out), pages)
    hashes = [{marker.shard: marker.sha256 for marker in sorted_markers(Output(str(processes.out)))}]
    processes.out = processes.folder / "whole"
    assert processes.run("whole", *local).wait(WAIT_S) == 0
    hashes.append({marker.shard: marker.sha256 for marker in sorted_markers(Output(str(processes.out)))})
    assert hashes[0] == hashes[1] and driver == 5


def readers_of(driver: int) -> list[psutil.Process]:
    """The reader processes of a driver's workers."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(driver).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                found += [process] if any("stand_in_reader" in word for word in process.cmdline()) else []
    return found
