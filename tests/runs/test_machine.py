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


def test_a_run_beside_others_is_contended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    times = iter([CpuTime(0, 0, 0), CpuTime(10, 15, 10), CpuTime(0, 0, 0), CpuTime(10, 12, 10)])
    monkeypatch.setattr(machine, "cpu_time", lambda: next(times))
    assert [MachineWatch().facts()["contended"] for _ in range(2)] == [True, False]
