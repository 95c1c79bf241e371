"""What a run's record says of the machine it was made on."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dsocr_core.runs import machine
from dsocr_core.runs.machine import CpuTime, MachineWatch, cpu_time


def test_the_time_of_this_process_and_of_those_it_started_is_its_own(
    tmp_path: Path,
) -> None:
    (tmp_path / "stat").write_text("cpu  1000 0 0 99999 77 0 0 0 0 0\n")
    here, other, child, grandchild = os.getpid(), 900001, 900002, 900003
    for pid, parent, ticks in ((here, 1, 300), (child, here, 200), (grandchild, child, 100), (other, 1, 50)):
        (tmp_path / str(pid)).mkdir()
        cells = f"{pid} (a (b) c) S {parent} {'0 ' * 9}{ticks} 0 0 0 0\n"
        (tmp_path / str(pid) / "stat").write_text(cells)
    ticks_s, found = os.sysconf("SC_CLK_TCK"), cpu_time(tmp_path)
    assert found is not None
    assert (found.busy_s * ticks_s, found.own_s * ticks_s) == pytest.approx((1000, 600))


def test_the_gpu_is_as_it_was_while_busy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading, three moments of work, and the end."""
    lines = ("0, 345, 3201, 75", "98, 1980, 3201, 690", "99, 1965, 3201, 680.26", "97, 1980, 3201, [N/A]",
             "3, 1980, 3201, 130", "garbage")  # fmt: skip
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\n" + "\n".join(f"echo '580.159.04, {line}, [N/A]'" for line in lines))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    watch = MachineWatch()
    watch._reading.join()
    facts = watch.facts()
    assert {name: facts[name] for name in facts if name.startswith(("gpu", "driver"))} == {
        "driver": "580.159.04", "gpu_sm_mhz": 1980, "gpu_memory_mhz": 3201, "gpu_power_w": 685.1,
    }  # fmt: skip


def test_a_run_beside_others_is_contended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    times = iter([CpuTime(0, 0, 0), CpuTime(10, 15, 10), CpuTime(0, 0, 0), CpuTime(10, 12, 10)])
    monkeypatch.setattr(machine, "cpu_time", lambda: next(times))
    assert [MachineWatch().facts()["contended"] for _ in range(2)] == [True, False]
