"""One driver at a time on an output, in a directory as in an object store; a dead one is in nobody's way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("distributed", reason="requirements-cluster.txt is not installed")

from dsocr_core.base.errors import Cancelled
from dsocr_core.cluster import lease
from dsocr_core.cluster.driver import Driver, Order
from dsocr_core.cluster.lease import Lease, OtherDriver
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.worker import WorkerJob
from tests.support.cluster_runs import Heard, job_for


@pytest.fixture(params=["directory", "memory"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> Output:
    return Output(str(tmp_path / "out") if request.param == "directory" else f"memory://{tmp_path.name}")


def of_another_machine(output: Output, number: int = 1, beat: int = 0) -> None:
    driver = {"user": "ada", "host": "elsewhere", "process": 7, "machine": "m", "token": "t", "beat": beat}
    output.store.put(f"drivers/{number:06d}.json", json.dumps(driver).encode())


def test_the_second_driver_is_refused_with_the_first_ones_name(output: Output) -> None:
    with (
        Lease(output).take(threading.Event()),
        pytest.raises(OtherDriver, match=f"on .*, process {os.getpid()}, writes into"),
    ):
        Lease(output).take(threading.Event())
    with Lease(output).take(threading.Event()):
        pass
    assert output.store.names("drivers") == []


def test_a_second_run_of_the_same_command_changes_nothing(output: Output) -> None:
    job = job_for(["/data/a.png"])
    output.begin(job)
    work = WorkerJob("w", output.store.location, job.settings, job.code)
    with Lease(output).take(threading.Event()), pytest.raises(OtherDriver, match="writes into it"):
        Driver(None, job, output, Order(work, redo=True), Heard()).run(threading.Event())
    assert set(output.store.names("")) - {"run.json", "drivers"} == set()


def test_of_many_at_once_one_gets_it(output: Output) -> None:
    taken: list[Lease] = []
    start = threading.Barrier(8)

    def take() -> None:
        start.wait()
        try:
            taken.append(Lease(output).take(threading.Event()))
        except OtherDriver:
            return

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(taken) == 1
    taken[0].__exit__(None, None, None)


def test_a_driver_that_was_killed_is_in_nobodys_way(tmp_path: Path) -> None:
    """Of this machine: without waiting for its beats, and though another process may have its number."""
    script = (
        "import os, threading; from dsocr_core.cluster.output import Output; "
        "from dsocr_core.cluster.lease import Lease; "
        f"Lease(Output({str(tmp_path)!r})).take(threading.Event()); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    output = Output(str(tmp_path))
    assert output.store.names("drivers") == ["000001.json"]
    with Lease(output).take(threading.Event()):
        assert output.store.names("drivers") == ["000002.json"]


def test_a_driver_of_another_machine_lives_while_it_writes(output: Output) -> None:
    of_another_machine(output)

    class Beating(threading.Event):
        """The other driver's beat comes while this one waits."""

        def wait(self, timeout: float | None = None) -> bool:
            of_another_machine(output, beat=1)
            return False

    with pytest.raises(OtherDriver, match="the driver of ada on elsewhere, process 7, writes into it"):
        Lease(output).take(Beating())


def test_a_driver_of_another_machine_that_writes_nothing_is_replaced_and_sees_it(
    output: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "BEAT_S", 0.01)
    of_another_machine(output)
    with Lease(output).take(threading.Event()) as mine:
        mine.check()
        of_another_machine(output, number=3)
        assert mine._replaced.wait(60)
        with pytest.raises(OtherDriver, match="ada on elsewhere, process 7, has gone on with this run"):
            mine.check()
    assert output.store.names("drivers") == ["000003.json"]


def test_waiting_for_another_machines_beat_ends_with_the_run(output: Output) -> None:
    of_another_machine(output)
    cancel = threading.Event()
    cancel.set()
    with pytest.raises(Cancelled):
        Lease(output).take(cancel)
