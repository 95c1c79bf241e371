"""`measure timeline`: gaps by hand-computed events, and a real page on the CPU."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from dsocr_core.base.console import OK
from dsocr_core.cli.main import main
from dsocr_core.measure.timeline import BETWEEN, Span, Timeline, merged, timeline_of
from dsocr_core.runs.importers.torch_profile import read_trace

DEVICE = torch.autograd.DeviceType


@dataclass(frozen=True)
class Event:
    """As kineto has them; given in ms."""

    named: str
    start: float
    end: float
    device: DEVICE = DEVICE.CPU

    def name(self) -> str:
        return self.named

    def start_ns(self) -> int:
        return round(self.start * 1e6)

    def end_ns(self) -> int:
        return round(self.end * 1e6)

    def device_type(self) -> DEVICE:
        return self.device


EVENTS = [
    Event("page", 1000, 1100),
    Event("host preprocess", 1002, 1030),
    Event("host prefill", 1030, 1040),
    Event("host sam", 1031, 1036),
    Event("host decode", 1041, 1095),
    Event("aten::mm", 1032, 1033),  # an operator of the host is no stage
    Event("page", 1030, 1095, DEVICE.CUDA),  # the ranges as the device shows them are no work
    Event("host prefill", 1031, 1040, DEVICE.CUDA),
    Event("kernel", 1029, 1030, DEVICE.CUDA),
    Event("kernel", 1033, 1050, DEVICE.CUDA),
    Event("kernel", 1049, 1060, DEVICE.CUDA),
    Event("kernel", 1060.5, 1093, DEVICE.CUDA),
]


def test_gaps_are_named_by_what_the_host_does_meanwhile() -> None:
    timeline = timeline_of(EVENTS, 90.0, device=True)
    assert timeline.page == Span("page", 0.0, 100.0) and timeline.alone_ms == 90.0
    assert [stage.name for stage in timeline.stages] == ["preprocess", "prefill", "sam", "decode"]
    assert [(span.start, span.end) for span in timeline.busy or ()] == [(29, 30), (33, 60), (60.5, 93)]
    first, second, third = timeline.gaps(1.0)
    assert (first.start, first.ms, first.host) == (0.0, 29.0, {"preprocess": 27.0, BETWEEN: 2.0})
    # Prefill's own part is what `sam` in it leaves.
    assert (second.start, second.ms, second.host) == (30.0, 3.0, {"sam": 2.0, "prefill": 1.0})
    assert (third.start, third.ms, third.host) == (93.0, 7.0, {BETWEEN: 5.0, "decode": 2.0})
    assert [gap.ms for gap in timeline.gaps(0.25)] == [29.0, 3.0, 0.5, 7.0]
    decode = timeline.stages[-1]
    assert timeline.busy_ms(decode) == 19.0 + 32.5


def test_spans_that_touch_are_one() -> None:
    spans = [Span("", 3, 4), Span("", 0, 1), Span("", 1, 2), Span("", 3.5, 3.6)]
    assert [(span.start, span.end) for span in merged(spans)] == [(0, 2), (3, 4)]
    assert Timeline(Span("page", 0, 5), (), (), 5.0).gaps(1.0)[0].host == {BETWEEN: 5.0}


def test_a_real_page_has_its_stages_in_order_and_so_has_its_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ("--size", "200x100", "--preset", "tiny", "--tokens", "2", "--repeat", "1")
    assert main(["measure", "timeline", *size, "--json", "--trace", str(tmp_path / "trace.json")]) == OK
    answer = json.loads(capsys.readouterr().out)
    names = [stage["name"] for stage in answer["stages"]]
    assert names[:3] == ["preprocess", "tokenizer", "prefill"] and names[-2:] == ["decode", "postprocess"]
    ends = [
        stage["end"] for stage in answer["stages"] if stage["name"] in ("preprocess", "prefill", "decode")
    ]
    assert ends == sorted(ends) and ends[-1] <= answer["page_ms"]
    if not torch.cuda.is_available():
        assert answer["gaps"] == [] and answer["device_busy_ms"] is None
    (run,) = read_trace(tmp_path / "trace.json")
    traced = {row["stage"]: row["milliseconds"] for row in run.tables["timings"]}  # type: ignore[index]
    measured = {stage["name"]: stage["end"] - stage["start"] for stage in answer["stages"]}
    assert traced == pytest.approx({name: measured[name] for name in names}, rel=0.02, abs=0.05)
