"""Stages are marked in NVTX under their own name, nested as they ran, and timed."""

from __future__ import annotations

import pytest
import torch

import dsocr_core.engine.stage_timer as stage_timer
from dsocr_core.engine.stage_timer import StageTimer
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import Observer


class Recorder(Observer):
    def __init__(self) -> None:
        self.events: list[str] = []

    def stage_started(self, stage: Stage) -> None:
        self.events.append(f"+{stage}")

    def stage_ended(self, stage: Stage, milliseconds: float) -> None:
        assert milliseconds >= 0
        self.events.append(f"-{stage}")


@pytest.fixture
def ranges(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What NVTX was told, and a clock that moves 1 ms a look."""
    told: list[str] = []
    ticks = iter(range(10_000))
    monkeypatch.setattr(stage_timer.nvtx, "push_range", lambda name: told.append(f"+{name}"))
    monkeypatch.setattr(stage_timer.nvtx, "pop_range", lambda: told.append("-"))
    monkeypatch.setattr(stage_timer.time, "perf_counter", lambda: next(ticks) / 1000)
    return told


def test_nested_stages_are_ranges_of_exactly_their_names(ranges: list[str]) -> None:
    recorder = Recorder()
    timer = StageTimer(torch.device("cpu"), recorder)
    with timer.stage(Stage.PREFILL):
        for _ in range(2):
            with timer.stage(Stage.SAM):
                pass
    assert ranges == ["+prefill", "+sam", "-", "+sam", "-", "-"]
    assert recorder.events == ["+prefill", "+sam", "-sam", "+sam", "-sam", "-prefill"]
    timer.count(Stage.PREFILL, 41)  # what loops inside a range
    with pytest.raises(RuntimeError), timer.stage(Stage.DECODE):
        raise RuntimeError
    assert ranges[-2:] == ["+decode", "-"]
    sam, prefill = timer.timings()
    assert (sam.stage, sam.milliseconds, sam.calls) == (Stage.SAM, pytest.approx(2), 2)
    assert (prefill.stage, prefill.milliseconds, prefill.calls) == (Stage.PREFILL, pytest.approx(5), 41)
