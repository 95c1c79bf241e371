"""Sweeps of the older project: points with their FLOPs to the last, and files that are none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.runs.history import History
from dsocr_core.runs.importers import sweeps
from dsocr_core.runs.importers.detect import import_paths


def cost(flops: float, tensor: float) -> dict[str, float]:
    return {
        "flops_tflops": flops, "flops_tensor_tflops": tensor, "io_tb": 0.008, "weights_gb": 0.5,
        "activations_gb": 0.25, "kv_gb": 0.125,
    }  # fmt: skip


def point(**other: Any) -> dict[str, Any]:
    costs = {
        "prefill_eager": cost(2.496869662208002, 2.495322771456002),
        "prefill_flash": cost(2.496869662208002, 2.495322771456002),
        "prefill_vendor": {"flops_tflops": 2.49725842176, "kv_gb": 0.125},
    }
    return {
        "image_tokens_total": 483, "height_crop_num": 1, "width_crop_num": 2, "batch_size": 1,
        "context_len": 493, "decode_steps": 100, "prefill_stagecost": costs,
    } | other  # fmt: skip


def document(*points: Any, **other: Any) -> str:
    return json.dumps(
        {"model_id": "deepseek-ocr-3b", "num_points": len(points), "points": list(points)} | other
    )


def test_flops_are_whole_numbers_and_data_is_in_bytes() -> None:
    model, (eager, flash, counted) = sweeps._points(document(point()), "prefill")
    assert model == "deepseek-ocr-3b"
    assert (eager["engine"], flash["engine"], counted["engine"]) == ("eager", "flash", "counted")
    assert eager["flops"] == 2_496_869_662_208 and eager["other_flops"] == 1_546_890_752
    assert counted["flops"] == 2_497_258_421_760 and counted["bytes"] is None
    assert (eager["bytes"], eager["weight_bytes"]) == (1e9, 2**29)
    assert (eager["tile_columns"], eager["tile_rows"], eager["context"], eager["steps"]) == (2, 1, 493, 100)


def test_a_point_without_torchs_count_has_none() -> None:
    costs = {"prefill_eager": cost(1.0, 0.5), "prefill_vendor": None}
    _, rows = sweeps._points(document(point(prefill_stagecost=costs)), "prefill")
    assert [row["engine"] for row in rows] == ["eager"]


def test_a_sweep_of_totals_alone_has_its_flops() -> None:
    totals = {"analytic_eager_tflops": 2.5, "analytic_flash_tflops": 2.25, "vendor_tflops": None}
    alone = {key: value for key, value in point(prefill=totals).items() if key != "prefill_stagecost"}
    _, rows = sweeps._points(document(alone), "prefill")
    assert [(row["engine"], row["flops"], row["other_flops"]) for row in rows] == [
        ("eager", 2_500_000_000_000, None), ("flash", 2_250_000_000_000, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (document(), "no list of points"),
        (document(point(), num_points=2), "it says 2 points and has 1"),
        (document(point(width_crop_num=0)), r"points\[0\].width_crop_num is 0"),
        (document(point(width_crop_num=1.5)), "not a whole number"),
        (document(point(prefill_stagecost={"prefill_eager": cost(1e9, 1)})), "out of all bounds"),
        (document(point(prefill_stagecost={"prefill_eager": cost(-1, 0)})), "out of all bounds"),
        (document(point(prefill_stagecost=[])), "is not an object"),
        (document(point(prefill_stagecost={})), "points without FLOPs"),
        (document("text"), r"points\[0\] is not an object"),
        (document(point())[:-9], "not valid JSON"),
        ("[]", "not a JSON object"),
    ],
)
def test_what_is_no_sweep_is_named(text: str, reason: str) -> None:
    with pytest.raises(InvalidFile, match=reason):
        sweeps._points(text, "prefill")


def test_a_folder_is_one_run_and_what_is_left_out_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "20251128-152354"
    for name in ("e2e_vision_prefill", "e2e_decode"):
        (folder / name).mkdir(parents=True)
    file = folder / "e2e_vision_prefill" / "e2e_vision_prefill_sweep.json"
    file.write_text(document(point()))
    (folder / "e2e_decode" / "e2e_decode_sweep.json").write_text("{")
    (folder / "e2e_decode" / "responsive-tflops-by-tpot.json").write_text("{}")
    with History(tmp_path / "history") as history:
        report = import_paths(history, [folder])
        (run,) = report.imported
        assert run.source == "sweep" and history.record(run.run_id).created.startswith("2025-11-28T15:23:54")
        points = history.sql("FROM sweep_points WHERE engine = 'counted'")
        assert points["flops"].tolist() == [2_497_258_421_760]
        (gap,) = history.query("flop_gaps", run_ids=[run.run_id])[0].to_dict("records")
        assert (gap["stage"], gap["shape"]) == ("prefill", "2x1 tiles, batch 1, context 493, 100 steps")
        assert (gap["counter"], gap["gap_flops"]) == ("torch", 2_496_869_662_208 - 2_497_258_421_760)
        assert gap["gap_percent"] == pytest.approx(-0.015567, abs=1e-6)
        assert gap["no_bound"] == "stage not timed"
        again = import_paths(history, [file])
    reasons = {item.path.name: item.reason for item in report.skipped}
    assert reasons["e2e_decode_sweep.json"].startswith("not valid JSON")
    assert reasons["responsive-tflops-by-tpot.json"] == "not a file that is taken from analytic sweeps"
    assert [line.partition(":")[0] for line in report.lines()] == ["analytic sweeps"]
    assert [run.run_id for run in again.known] == [report.imported[0].run_id]
