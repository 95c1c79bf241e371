"""The command line over real schedulers and workers, each of which may be killed; Ctrl-C once and twice."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="requirements-cluster.txt is not installed")

from dsocr_core.base.errors import DsocrError
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.status import read_status
from tests.support import warm_interpreter
from tests.support.cluster_runs import check_exactly_once, make_pages
from tests.support.paths import ROOT

WAIT_S = 120
"""Machines that run tests are busy: long waits, always for a condition."""
PAGES = 32


def wait_for(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {WAIT_S} s: {what}"
        time.sleep(0.05)


def pages_read(out: Path) -> int:
    try:
        return read_status(Output(str(out))).read
    except DsocrError:
        return 0


class Processes:
    """What a test has started; all of it ends with the test."""

    def __init__(self, folder: Path, interpreter: Path) -> None:
        self.folder, self.interpreter = folder, str(interpreter)
        self.started: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
            "DSOCR_RUNS": str(folder / "runs"), "PYTHONDONTWRITEBYTECODE": "1",
            "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "0",
            warm_interpreter.CHILDREN: str(interpreter),
        }  # fmt: skip

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{name}.log").open("wb")
        process = subprocess.Popen(
            [self.interpreter, "-m", *command], cwd=self.folder, env=self.environment, stdout=log,
            stderr=log, start_new_session=True,
        )  # fmt: skip
        log.close()
        self.started.append(process)
        return process

    def said(self, name: str) -> str:
        return " ".join((self.folder / f"{name}.log").read_text().split())

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

    def run(self, name: str, cluster: str, *more: str) -> subprocess.Popen[bytes]:
        return self.start(
            name, "tests.support.cluster_command", "run", str(self.folder / "pages"), "--out",
            str(self.folder / "out"), "--cluster", cluster, "--shard-pages", "4", "--preset", "tiny", *more,
        )  # fmt: skip

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


def held_pages(folder: Path) -> dict[int, str]:
    """The last pages wait until the test lets them go: the run cannot be over before."""
    return dict.fromkeys((PAGES - 9, PAGES - 1), f"wait {folder / 'go'}")


def let_go(folder: Path) -> None:
    make_pages(folder / "pages", PAGES)
    (folder / "go").touch()


def test_the_scheduler_killed_leaves_what_is_committed_and_a_new_one_goes_on(
    processes: Processes, tmp_path: Path
) -> None:
    make_pages(tmp_path / "pages", PAGES, held_pages(tmp_path))
    scheduler, address = processes.scheduler("scheduler-1")
    workers = [processes.worker(f"worker-{number}", address) for number in (1, 2)]
    run = processes.run("run-1", address)
    wait_for(lambda: pages_read(tmp_path / "out") >= 16, "16 pages")
    os.kill(scheduler.pid, signal.SIGKILL)
    assert run.wait(WAIT_S) == 2
    assert "the scheduler is gone;" in processes.said("run-1")
    assert "start it, then give the same command again" in processes.said("run-1")
    before = pages_read(tmp_path / "out")
    for worker in workers:
        os.killpg(worker.pid, signal.SIGKILL)

    let_go(tmp_path)
    _, address = processes.scheduler("scheduler-2")
    processes.worker("worker-3", address)
    assert processes.run("run-2", address).wait(WAIT_S) == 0, processes.said("run-2")
    assert f"{before} pages were committed before, and are skipped" in processes.said("run-2")
    check_exactly_once(str(tmp_path / "out"), PAGES)


def test_the_client_killed_costs_no_page(processes: Processes, tmp_path: Path) -> None:
    make_pages(tmp_path / "pages", PAGES, held_pages(tmp_path))
    _, address = processes.scheduler("scheduler")
    processes.worker("worker", address)
    run = processes.run("run-1", address)
    wait_for(lambda: pages_read(tmp_path / "out") >= 16, "16 pages")
    os.kill(run.pid, signal.SIGKILL)
    run.wait()
    let_go(tmp_path)
    assert processes.run("run-2", address, "--json").wait(WAIT_S) == 0, processes.said("run-2")
    assert f'{{"pages": {PAGES}, "done": {PAGES}, "failed": 0, "quarantined": 0,' in processes.said("run-2")
    check_exactly_once(str(tmp_path / "out"), PAGES)


def test_ctrl_c_stops_and_says_how_to_go_on_and_a_second_one_ends_at_once(
    processes: Processes, tmp_path: Path
) -> None:
    """A terminal sends the signal to all of its processes."""
    make_pages(tmp_path / "pages", PAGES, held_pages(tmp_path))
    run = processes.run("run-1", "local", "--workers", "1")
    wait_for(lambda: pages_read(tmp_path / "out") >= 16, "16 pages")
    os.killpg(run.pid, signal.SIGINT)
    assert run.wait(WAIT_S) == 1, processes.said("run-1")
    assert "pages are committed; to go on, give the same command again" in processes.said("run-1")
    assert pages_read(tmp_path / "out") % 4 == 0

    run = processes.run("run-2", "local", "--workers", "1")
    wait_for(lambda: "pages were committed before" in processes.said("run-2"), "the second run")
    wait_for(lambda: run.poll() is not None or _interrupt(run), "the end")
    assert run.returncode in (130, 1)

    let_go(tmp_path)
    assert processes.run("run-3", "local", "--workers", "1").wait(WAIT_S) == 0, processes.said("run-3")
    check_exactly_once(str(tmp_path / "out"), PAGES)


def _interrupt(run: subprocess.Popen[bytes]) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(run.pid, signal.SIGINT)
    return False
