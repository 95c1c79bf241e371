"""Rows of a measurement: medians and rates by hand, and what fails is one line."""

from __future__ import annotations

import json

import pytest
import torch

import dsocr_core.measure.rows as rows_module
from dsocr_core.measure.rows import Rows


def test_rates_follow_from_the_median_and_a_failure_is_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    times = iter([40.0, 20.0, 30.0])
    monkeypatch.setattr(rows_module, "milliseconds", lambda run, _: (run(), next(times))[1])
    monkeypatch.setattr(rows_module, "copy_bandwidth", lambda _: 4e9)
    monkeypatch.setattr(rows_module, "matmul_rate", lambda _: 1e12)
    calls: list[str] = []
    rows = Rows(torch.device("cpu"), product=True)
    rows.table("a table")
    row = rows.row(
        "a row", lambda: calls.append("run"), repeat=3, per=10, count=4,
        before=lambda: calls.append("before"), bytes=6_000_000, flops=10**9, note=lambda ms: f"noted {ms:g}",
    )  # fmt: skip
    assert calls == ["before", "run"] * 3
    assert (row.ms, row.spread_ms, row.n) == (3.0, 2.0, 3)
    with rows.attempt("another"):
        raise ValueError("first line\nsecond")
    *_, line, failure = capsys.readouterr().out.splitlines()
    # 6 MB in 3 ms are 2 GB/s, half of the copy; 1 GFLOP in 3 ms a third of a TFLOP/s; four of them 12 ms.
    words = "a row 3.0000 2.0000 4 12.000 2 50.0% 0.3 33.3% noted 3"
    assert line.split() == words.split()
    assert failure == "another: failed: first line"
    document = json.loads(json.dumps(rows.document(preset="tiny")))
    assert (document["preset"], document["failed"]) == ("tiny", {"another": "first line"})
    assert [each["table"] for each in document["rows"]] == ["a table"]
