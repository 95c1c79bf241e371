"""Kernels of two runs: what is matched, what a change is, against figures worked out by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dsocr_core.runs.history import History
from dsocr_core.runs.kernel_pairs import BOTH, GONE, NEW, KernelPairs, kernel_pairs
from dsocr_core.runs.run_directory import RunDirectory
from tests.support.timed_history import record

Launch = tuple[str, str, float, float]
"""(kernel, grid, microseconds, SM share)"""


def profile(root: Path, name: str, launches: list[Launch], stage: str | None = "decode") -> None:
    """A run under Nsight Compute, and its sums."""
    with RunDirectory.create(root, record(name, 1, profiled=True)) as run:
        ids = [
            {"number": number, "kernel": each[0], "launch": number} for number, each in enumerate(launches)
        ]
        shapes = [{"stage": stage, "grid": each[1], "block": "(128, 1, 1)"} for each in launches]
        run.add_rows("kernel_launches", [one | other for one, other in zip(ids, shapes, strict=True)])
        run.add_rows("kernel_metrics", [
            one | {"metric": metric, "value": value, "unit": unit, "text": str(value)}
            for one, (_, _, spent, sm) in zip(ids, launches, strict=True)
            for metric, value, unit in (("Duration", spent, "us"), ("Compute (SM) Throughput", sm, "%"))
        ])  # fmt: skip


def sums(root: Path, name: str, kernels: list[tuple[str | None, str, float, int | None]]) -> None:
    with RunDirectory.create(root, record(name, 1, profiled=True)) as run:
        names = ("stage", "name", "total_ns", "instances")
        run.add_rows("kernels", [dict(zip(names, each, strict=True)) for each in kernels])


def table(found: KernelPairs) -> list[list[Any]]:
    rows = found.rows.assign(us=(found.rows["change_s"] * 1e6).round(6))
    return rows[["found", "kernel", "us"]].to_numpy().tolist()


def test_launches_are_matched_by_name_and_shape_then_by_name(tmp_path: Path) -> None:
    profile(tmp_path, "a", [
        ("void a::gemm<(int)2>(T1)", "(8, 1, 1)", 10, 40), ("gemm<2>(T1)", "(4, 1, 1)", 6, 20),
        ("gemm<2>(T1)", "(4, 1, 1)", 2, 60), ("split", "(10, 1, 1)", 5, 10), ("copy", "(1, 1, 1)", 3, 1),
    ])  # fmt: skip
    profile(tmp_path, "b", [
        ("gemm<2>(T1)", "(4, 1, 1)", 4, 50), ("gemm<2>(T1)", "(4, 1, 1)", 5, 50),
        ("gemm<2>(T1)", "(8, 1, 1)", 16, 30), ("split", "(12, 1, 1)", 7, 15), ("fused", "(1, 1, 1)", 0.5, 2),
    ])  # fmt: skip
    found = kernel_pairs(History(tmp_path), "a", "b")
    assert table(found) == [
        [BOTH, "gemm<2>(T1)", 6.0], [GONE, "copy", -3.0], [BOTH, "split", 2.0], [BOTH, "gemm<2>(T1)", 1.0],
        [NEW, "fused", 0.5],
    ]  # fmt: skip
    rows = found.rows.set_index(["kernel", "calls_a"])
    small = rows.loc[("gemm<2>(T1)", 2.0)]
    assert small["sm_a"] == pytest.approx((6 * 20 + 2 * 60) / 8) and small["sm_b"] == pytest.approx(50)
    assert small["each_s_a"] == pytest.approx(4e-6) and small["each_s_b"] == pytest.approx(4.5e-6)
    split = found.rows[found.rows["kernel"] == "split"].iloc[0]
    assert (split["launch_a"], split["launch_b"]) == ("(10, 1, 1) x (128, 1, 1)", "(12, 1, 1) x (128, 1, 1)")
    assert (
        found.words
        == "3 kernels in both, 1 new in B, 1 gone, by name and launch shape; 26.0 µs → 32.5 µs in all."
    )
    assert sorted(found.sides["side"].unique()) == ["A", "B"]


def test_profiles_of_different_work_are_compared_launch_by_launch(tmp_path: Path) -> None:
    """B profiled half of the layers: its sums are half as large, and nothing became faster."""
    profile(tmp_path, "a", [("down", "(8, 1, 1)", 10, 40)] * 4 + [("up", "(8, 1, 1)", 5, 1)] * 4
            + [("head", "(1, 1, 1)", 90, 1)])  # fmt: skip
    profile(tmp_path, "b", [("down", "(8, 1, 1)", 11, 40)] * 2 + [("up", "(8, 1, 1)", 5, 1)] * 2)
    found = kernel_pairs(History(tmp_path), "a", "b")
    assert found.by_call and "0.500 times the launches" in found.words
    assert table(found) == [[BOTH, "down", 4.0], [BOTH, "up", 0.0], [GONE, "head", -90.0]]


def test_sums_are_matched_within_their_stages_where_both_know_them(tmp_path: Path) -> None:
    sums(tmp_path, "a", [("decode", "gemm", 9e6, 3), ("prefill", "gemm", 4e6, 1), ("decode", "none", 1e6, 0)])
    sums(
        tmp_path,
        "b",
        [("decode", "gemm", 6e6, 3), ("prefill", "gemm", 5e6, 1), ("decode", "none", 1e6, None)],
    )
    sums(tmp_path, "whole", [(None, "gemm", 20e6, 4)])
    history = History(tmp_path)
    found = kernel_pairs(history, "a", "b")
    assert found.rows[["stage", "kernel"]].to_numpy().tolist() == [
        ["decode", "gemm"], ["prefill", "gemm"], ["decode", "none"],
    ]  # fmt: skip
    assert table(found)[:2] == [[BOTH, "gemm", -3000.0], [BOTH, "gemm", 1000.0]]
    assert pd.isna(found.rows["sm_a"]).all() and pd.isna(found.rows["each_s_a"].iloc[2])
    assert kernel_pairs(history, "a", "b", "prefill").rows["stage"].tolist() == ["prefill"]
    of_all = kernel_pairs(history, "a", "whole").rows.iloc[0]  # one of the two does not know its stages
    assert of_all["stage"] is None and of_all["total_s_a"] == pytest.approx(13e-3) and of_all["calls_a"] == 4


def test_a_profile_and_sums_are_compared_by_their_sums(tmp_path: Path) -> None:
    profile(tmp_path, "ncu", [("gemm", "(8, 1, 1)", 10, 40), ("gemm", "(4, 1, 1)", 2, 10)])
    sums(tmp_path, "nsys", [("decode", "gemm", 9e3, 2)])
    found = kernel_pairs(History(tmp_path), "ncu", "nsys")
    assert table(found) == [[BOTH, "gemm", -3.0]]
    assert found.rows["sm_a"].tolist() == [pytest.approx(35.0)] and pd.isna(found.rows["sm_b"]).all()
