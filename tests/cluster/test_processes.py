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
from tests.cluster.cluster_runs import make_pages
from tests.cluster.made_up_output import check_exactly_once
from tests.support import warm_interpreter
from tests.support.paths import ROOT

WAIT_S = 120
"""Machines that run tests are busy: long waits, always for a condition."""
PAGES = 32
GOES_ON_S = 30
"""After a kill of the driver the same command has begun again by then."""
LOCAL = ("local", "--workers", "1")
COMMAND = """
import sys
from dsocr_core.cli import over_cluster
from dsocr_core.cli.main import main
over_cluster.READER_MODULE = "tests.cluster.stand_in_reader"
sys.exit(main())
"""


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
            warm_interpreter.CHILDREN: str(interpreter),
        }  # fmt: skip

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [self.interpreter, *command], cwd=self.folder, env=self.environment, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self.started.append(process)
        return process

    def said(self, name: str) -> str:
        return " ".join((self.folder / f"{name}.log").read_text().split())

    def dask(self, name: str, tool: str, *more: str) -> subprocess.Popen[bytes]:
        return self.start(name, "-m", f"distributed.cli.dask_{tool}", "--host", "127.0.0.1", *more)

    def scheduler(self, name: str) -> tuple[subprocess.Popen[bytes], str]:
        file, dashboard = self.folder / f"{name}.json", ("--dashboard-address", "127.0.0.1:0")
        process = self.dask(name, "scheduler", "--port", "0", *dashboard, "--scheduler-file", str(file))
        wait_for(file.exists, "the scheduler's file")
        return process, json.loads(file.read_text())["address"]

    def worker(self, name: str, address: str) -> subprocess.Popen[bytes]:
        more = ("--nthreads", "2", "--no-nanny", "--memory-limit", "0", "--no-dashboard")
        return self.dask(name, "worker", address, "--name", name, *more)

    def run(self, name: str, *more: str) -> subprocess.Popen[bytes]:
        return self.start(
            name, "-c", COMMAND, "run", str(self.folder / "pages"), "--out", str(self.out), "--shard-pages",
            "4", "--preset", "tiny", "--cluster", *more,
        )  # fmt: skip

    def read(self) -> int:
        with contextlib.suppress(DsocrError):
            return read_status(Output(str(self.out))).read
        return -1

    def wait_for_pages(self, pages: int) -> None:
        wait_for(lambda: self.read() >= pages, f"{pages} pages")

    def hold(self) -> None:
        """Make pages of which the last ones wait for `let_go`: the run cannot be over before."""
        wait = f"wait {self.folder / 'go'}"
        make_pages(self.folder / "pages", PAGES, dict.fromkeys((PAGES - 9, PAGES - 1), wait))

    def let_go(self) -> None:
        make_pages(self.folder / "pages", PAGES)
        (self.folder / "go").touch()


@pytest.fixture
def processes(tmp_path: Path, interpreter: Path) -> Iterator[Processes]:
    made = Processes(tmp_path, interpreter)
    yield made
    for process in made.started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_the_scheduler_or_the_client_killed_leaves_what_is_committed(processes: Processes) -> None:
    processes.hold()
    scheduler, address = processes.scheduler("scheduler-1")
    worker = processes.worker("worker-1", address)
    run = processes.run("run-1", address)
    processes.wait_for_pages(8)
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    run = processes.run("run-2", address)
    processes.wait_for_pages(16)
    wait_for(lambda: "pages were committed before" in processes.said("run-2"), "the second run")
    os.kill(scheduler.pid, signal.SIGKILL)
    assert run.wait(WAIT_S) == 2
    assert "the scheduler is gone;" in processes.said("run-2")
    assert "start it, then give the same command again" in processes.said("run-2")
    before = processes.read()
    os.killpg(worker.pid, signal.SIGKILL)
    processes.let_go()
    _, address = processes.scheduler("scheduler-2")
    processes.worker("worker-2", address)
    assert processes.run("run-3", address, "--json").wait(WAIT_S) == 0, processes.said("run-3")
    assert f"{before} pages were committed before, and are skipped" in processes.said("run-3")
    assert f'{{"pages": {PAGES}, "done": {PAGES}, "failed": 0, "quarantined": 0,' in processes.said("run-3")
    check_exactly_once(str(processes.out), PAGES)


def test_ctrl_c_stops_and_says_how_to_go_on_and_a_second_one_ends_at_once(processes: Processes) -> None:
    """A terminal sends the signal to all of its processes."""
    processes.hold()
    run = processes.run("run-1", *LOCAL)
    processes.wait_for_pages(16)
    os.killpg(run.pid, signal.SIGINT)
    assert run.wait(WAIT_S) == 1, processes.said("run-1")
    assert "pages are committed; to go on, give the same command again" in processes.said("run-1")
    assert processes.read() % 4 == 0

    run = processes.run("run-2", *LOCAL)
    wait_for(lambda: "pages were committed before" in processes.said("run-2"), "the second run")
    wait_for(lambda: run.send_signal(signal.SIGINT) or run.poll() is not None, "the end")
    assert run.returncode in (130, 1)
    processes.let_go()
    assert processes.run("run-3", *LOCAL).wait(WAIT_S) == 0, processes.said("run-3")
    check_exactly_once(str(processes.out), PAGES)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_workers_children_and_drivers_killed_at_random_change_no_byte(processes: Processes) -> None:
    """200 pages, 15 kills, each while a page waits: every page once, and the bytes of a run without kills."""
    pages, kills, chance, driver = 200, ["worker", "child", "driver"] * 5, random.Random(11), 0
    processes.interpreter, local = sys.executable, ("local", "--workers", "2")
    del processes.environment[warm_interpreter.CHILDREN]
    chance.shuffle(kills)
    held = {13 * number + 6: processes.folder / f"go-{number}" for number in range(len(kills))}
    make_pages(processes.folder / "pages", pages, {page: f"wait {go}" for page, go in held.items()})
    run = processes.run("run-0", *local)
    for kind, (page, go) in zip(kills, held.items(), strict=True):
        processes.wait_for_pages(page - 26)
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
            wait_for(lambda pid=run.pid: driver_of(processes.out) == pid, "the next driver")
            assert time.monotonic() - began < GOES_ON_S
    assert run.wait(WAIT_S) == 0, processes.said(f"run-{driver}")
    killed, processes.out = processes.out, processes.folder / "whole"
    assert processes.run("whole", *local).wait(WAIT_S) == 0 and driver == 5
    check_exactly_once(str(killed), pages)
    whole, found = ([each.sha256 for each in Output(str(out)).markers()] for out in (processes.out, killed))
    assert whole == found


def driver_of(out: Path) -> object:
    """Process number of the driver that writes an output, or wrote it last."""
    with contextlib.suppress(DsocrError):
        return (Output(str(out)).document("driver.json") or {}).get("process")
    return None


def readers_of(driver: int) -> list[psutil.Process]:
    """The reader processes of a driver's workers."""
    found = []
    with contextlib.suppress(psutil.NoSuchProcess):
        for process in psutil.Process(driver).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                found += [process] if any("stand_in_reader" in word for word in process.cmdline()) else []
    return found
