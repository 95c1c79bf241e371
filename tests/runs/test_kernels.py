"""Kernels: figures of a launch in all names and units, a row a kernel, two runs against figures by hand."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dsocr_core.runs.history import History
from dsocr_core.runs.kernels import (
    BOTH,
    GONE,
    NEW,
    KernelPairs,
    by_kernel,
    class_of,
    figures,
    in_unit,
    kernel_pairs,
    plain_name,
    profile_rows,
)
from dsocr_core.runs.run_directory import RunDirectory
from tests.support.launches import launches_in
from tests.support.paths import SHARED
from tests.support.timed_history import record

SAMPLES = SHARED / "data" / "llm-perf-opt"
Metric = tuple[str, float | None, str | None]


def of(*given: Metric) -> dict[str, Any]:
    return figures([dict(zip(("metric", "value", "unit"), each, strict=True)) for each in given])


@pytest.mark.parametrize(
    ("value", "unit", "wanted", "expected"),
    [
        (2.0, "us", "s", 2e-6), (2.0, "usecond", "s", 2e-6), (3.0, "nsecond", "s", 3e-9),
        (4.0, "ms", "s", 4e-3), (5.0, "Gbyte/s", "B/s", 5e9), (5.0, "Gbyte/second", "B/s", 5e9),
        (1.5, "Mbyte", "B", 1.5e6), (7.0, "%", "%", 7.0), (7.0, None, "", 7.0), (7.0, "warp", "", 7.0),
        (1.4, "cycle/nsecond", "Hz", 1.4e9), (1.024, "Kbyte/cycle", "B/s", None),
        (7.0, "%", "B/s", None), (7.0, "Gbyte/s", "%", None), (7.0, "Mbyte", "B/s", None),
        (7.0, "us/s", "s", None), (7.0, "gbyte", "B", None),
    ],
)  # fmt: skip
def test_units_are_those_of_the_row(
    value: float, unit: str | None, wanted: str, expected: float | None
) -> None:
    assert in_unit(value, unit, wanted) == (None if expected is None else pytest.approx(expected))


def test_one_figure_has_the_names_of_all_pages_and_versions() -> None:
    row = of(
        ("Memory Throughput", 345.14, "Gbyte/s"), ("Memory Throughput (%)", 19.66, "%"),
        ("Duration", 6.75, "us"), ("Compute (SM) Throughput", 9.15, "%"), ("DRAM Throughput", 19.66, "%"),
        ("Block Limit Registers", 5, "block"), ("Block Limit Shared Mem", 2, "block"),
        ("Block Limit Warps", 2, "block"), ("Block Limit Barriers", 0, "block"),
        ("Achieved Occupancy", None, "%"), ("sm__ops_path_tensor_src_bf16_dst_fp32.sum", 1e9, None),
    )  # fmt: skip
    assert (row["memory"], row["bandwidth"], row["duration_s"]) == (19.66, 345.14e9, pytest.approx(6.75e-6))
    assert row["limiter"] == "shared memory and warps" and row["occupancy"] is None and row["flops"] == 1e9
    assert row["bytes"] == pytest.approx(345.14e9 * 6.75e-6)
    for read, written in (("dram__bytes_read.sum", "dram__bytes_write.sum"),
                          ("dram__bytes_op_read.sum", "dram__bytes_op_write.sum")):  # fmt: skip
        row = of(
            ("gpu__time_duration.sum", 6750, "nsecond"), (read, 1, "Mbyte"), (written, 2, "Kbyte"),
            ("sm__throughput.avg.pct_of_peak_sustained_elapsed", 9.15, "%"), ("Memory [%]", -5.0, "%"),
        )  # fmt: skip
        assert (row["sm"], row["duration_s"], row["bytes"]) == (9.15, pytest.approx(6.75e-6), 1_002_000)
        assert (row["class"], row["limiter"], row["memory"]) == (None, None, None)


_TENSOR, _SASS = "sm__ops_path_tensor_src_bf16_dst_fp32", "sass_thread_inst_executed_op_"
_COUNTED: list[Metric] = [
    (f"{_TENSOR}.sum", 100.0, None),
    (f"{_TENSOR}_sparsity_off.sum", 100.0, None),  # part of the same sum
    (f"{_TENSOR}.sum.per_second", 7.0, "1/s"),
    (f"smsp__{_SASS}fadd_pred_on.sum", 3.0, "inst"),
    (f"smsp__{_SASS}fmul_pred_on.sum", 4.0, "inst"),
    (f"smsp__{_SASS}ffma_pred_on.sum", 5.0, "inst"),
]
_CLOCK: list[Metric] = [
    ("gpu__time_duration.sum", 500.0, "us"), ("smsp__cycles_elapsed.avg.per_second", 1.4, "Ghz"),
]  # fmt: skip
_ADDS: list[Metric] = [
    (f"smsp__{_SASS}fadd_pred_on.sum.per_cycle_elapsed", 10.0, "inst/cycle"),
    (f"smsp__{_SASS}fmul_pred_on.sum.per_cycle_elapsed", 5.0, "inst/cycle"),
]
_FUSED: Metric = (f"smsp__{_SASS}ffma_pred_on.sum.per_cycle_elapsed", 6000.0, "inst/cycle")
_TWICE: Metric = (f"derived__smsp__{_SASS}ffma_pred_on_x2", 12000.0, "inst/cycle")
_SCRIPT: list[Metric] = [
    ("dram__bytes.sum", 120.5, "Mbyte"), ("sm__cycles_elapsed.avg", 1.3e6, "cycle"),
    ("sm__cycles_elapsed.avg.per_second", 1.30, "cycle/nsecond"),
    ("sm__inst_executed_pipe_tensor.sum", 0.0, "inst"), (f"sm__{_SASS}fadd_pred_on.sum", 1e6, "inst"),
    (f"sm__{_SASS}ffma_pred_on.sum", 2e9, "inst"), (f"sm__{_SASS}hfma_pred_on.sum", 5e5, "inst"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "tensor", "flops"),
    [
        (_COUNTED, 100.0, 3 + 4 + 2 * 5 + 100),
        (_COUNTED[3:], None, 17),
        ([(f"{_TENSOR}.sum", 0.0, None)], 0.0, None),
        *(([*_CLOCK, *_ADDS, *more], None, 12015 * 7e5) for more in ([_FUSED, _TWICE], [_FUSED])),
        ([*_CLOCK, *_ADDS, _TWICE], None, None),
        ([*_CLOCK, (f"{_TENSOR}.sum.per_cycle_elapsed", 2000.0, "1/cycle")], 2000 * 7e5, 2000 * 7e5),
        ([_CLOCK[0], (f"smsp__{_SASS}dfma_pred_on.sum.per_second", 1e12, "inst/s")], None, 1e9),
        (_ADDS, None, None),  # a rate without a time
        (_SCRIPT, None, 4.002e9),
        # FLOPs of a tensor instruction depend on the card: a sum without them would be too small.
        ([*_SCRIPT, ("sm__inst_executed_pipe_tensor_op_hmma.sum", 7.0, "inst")], None, None),
    ],
)  # fmt: skip
def test_flops_are_those_of_the_tensor_cores_and_of_float_units(
    given: list[Metric], tensor: float | None, flops: float | None
) -> None:
    row = of(*given)
    expected = {"tensor_flops": tensor, "flops": flops}
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    if given is _SCRIPT:
        assert (row["bytes"], row["duration_s"]) == (120.5e6, pytest.approx(1e-3))


@pytest.mark.parametrize(
    ("sm", "dram", "memory", "expected"),
    [
        (6.7, 12.1, 12.1, "latency"), (2.7, 49.4, 49.4, "latency"), (59.9, 10.0, 59.9, "latency"),
        (16.0, 10.0, 94.0, "memory"), (41.5, 8.1, 61.8, "memory"), (60.0, 60.0, 60.0, "memory"),
        (70.0, 8.0, 65.0, "compute"), (72.0, 70.0, 70.0, "compute"), (1.0, 1.0, None, "latency"),
        (None, 50.0, 50.0, None), (50.0, None, 50.0, None), (float("nan"), 1.0, 1.0, None),
    ],
)  # fmt: skip
def test_the_class_follows_the_stated_rule(
    sm: float | None, dram: float | None, memory: float | None, expected: str | None
) -> None:
    assert class_of({"sm": sm, "dram": dram, "memory": memory}) == expected


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="../shared/data/llm-perf-opt is not here")
def test_the_samples_figures_are_those_of_their_own_digest() -> None:
    digest = pd.read_csv(SAMPLES / "ncu" / "analysis" / "metrics_summary.csv").set_index("kernel_id")
    names = {
        "sm": "sm_throughput_pct", "dram": "dram_throughput_pct", "memory": "mem_throughput_pct",
        "l2": "l2_throughput_pct", "occupancy": "achieved_occupancy_pct",
    }  # fmt: skip
    kernels = []
    folders = sorted((SAMPLES / "ncu").glob("kernel_*"))
    for folder in folders:
        (launch,) = launches_in((folder / "ncu.details.csv").read_text(encoding="utf-8"))
        kernels.append(launch.kernel)
        row = figures([vars(each) for each in launch.metrics])
        expected = digest.loc[folder.name]
        for name, column in names.items():
            assert row[name] == expected[column], (folder.name, name)
        assert row["duration_s"] == pytest.approx(1e-6 * expected["duration_us"])
        assert row["bandwidth"] == pytest.approx(1e9 * expected["memory_throughput_gbs"])
        if folder.name.startswith("kernel_0003"):  # L2 61.8 %: "Memory is more heavily utilized", says Nsight
            assert row["class"] == "memory"
    assert len(kernels) == len(folders) == 8
    with (SAMPLES / "nsys" / "all-stage" / "nsys" / "summary_cuda_gpu_kern_sum.csv").open() as handle:
        summed = {plain_name(row["Name"]) for row in csv.DictReader(handle)}
    assert sum(plain_name(kernel) in summed for kernel in kernels) >= 6  # both tools' names of a kernel meet


def test_launches_of_a_kernel_are_one_row_with_its_time_and_means_over_it() -> None:
    measured = {0: (5.0, 4.0, 80.0, 1e9), 1: (30.0, 40.0, 10.0, 6e9), 2: (10.0, 20.0, 50.0, 2e9)}
    names = {"Duration": "us", "Compute (SM) Throughput": "%", "DRAM Throughput": "%", f"{_TENSOR}.sum": None}
    launches = pd.DataFrame(
        [{"number": n, "kernel": "copy" if n else "gemm", "stage": "decode"} for n in measured]
    )
    taken = [
        {"number": number, "metric": name, "value": value, "unit": unit}
        for number, values in measured.items()
        for (name, unit), value in zip(names.items(), values, strict=True)
    ]
    rows = profile_rows(launches, pd.DataFrame(taken))
    assert rows["class"].tolist() == ["memory", "latency", "latency"] and rows["l2"].isna().all()
    kernels = by_kernel(rows).set_index("kernel")
    copy = kernels.loc["copy"]
    assert kernels.index.tolist() == ["copy", "gemm"] and (copy["calls"], copy["class"]) == (2, "latency")
    assert copy["duration_s"] == pytest.approx(40e-6) and copy["share"] == pytest.approx(40 / 45)
    assert (copy["sm"], copy["dram"]) == (pytest.approx(35.0), pytest.approx(20.0))  # 30 : 10 us
    partly = by_kernel(rows.assign(flops=[1.0, 2.0, float("nan")])).set_index("kernel")["flops"]
    assert copy["flops"] == 8e9 and partly["gemm"] == 1.0 and pd.isna(partly["copy"])
    # An average of two invocations weighs twice.
    twice = {"number": 0, "metric": "Invocations", "value": 2.0, "unit": None}
    rows = profile_rows(launches, pd.DataFrame([*taken, twice]))
    assert rows["share"].tolist() == pytest.approx([10 / 50, 30 / 50, 10 / 50])


# --- two runs -------------------------------------------------------------------------------------

Launch = tuple[str, str, float, float]
"""(kernel, grid, microseconds, SM share)"""


def profile(root: Path, name: str, launches: list[Launch]) -> None:
    """A run under Nsight Compute, and its sums."""
    with RunDirectory.create(root, record(name, 1, profiled=True)) as run:
        for number, (kernel, grid, spent, sm) in enumerate(launches):
            row = {"number": number, "kernel": kernel, "launch": number}
            shape = {"stage": "decode", "grid": grid, "block": "(128, 1, 1)"}
            run.add_rows("kernel_launches", [row | shape])
            taken = (("Duration", spent, "us"), ("Compute (SM) Throughput", sm, "%"))
            run.add_rows("kernel_metrics", [
                row | {"metric": metric, "value": value, "unit": unit, "text": str(value)}
                for metric, value, unit in taken
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
        ("gemm<2>(T1)", "(8, 1, 1)", 8.5, 30), ("split", "(12, 1, 1)", 7, 15), ("fused", "(1, 1, 1)", 0.5, 2),
    ])  # fmt: skip
    found = kernel_pairs(History(tmp_path), "a", "b")
    assert table(found) == [
        [GONE, "copy", -3.0], [BOTH, "split", 2.0], [BOTH, "gemm<2>(T1)", -1.5], [BOTH, "gemm<2>(T1)", 1.0],
        [NEW, "fused", 0.5],
    ]  # fmt: skip
    small = found.rows.set_index(["kernel", "calls_a"]).loc[("gemm<2>(T1)", 2.0)]
    assert small["sm_a"] == pytest.approx((6 * 20 + 2 * 60) / 8) and small["sm_b"] == pytest.approx(50)
    assert small["each_s_a"] == pytest.approx(4e-6) and small["each_s_b"] == pytest.approx(4.5e-6)
    split = found.rows[found.rows["kernel"] == "split"].iloc[0]
    assert (split["launch_a"], split["launch_b"]) == ("(10, 1, 1) x (128, 1, 1)", "(12, 1, 1) x (128, 1, 1)")
    assert found.words == (
        "3 kernels in both, 1 new in B, 1 gone, by name and launch shape; 26.0 µs → 25.0 µs in all."
    )
    assert sorted(found.sides["side"].unique()) == ["A", "B"]


def test_profiles_of_different_work_are_compared_launch_by_launch(tmp_path: Path) -> None:
    """B profiled half of the layers: its sums are half as large, and nothing became faster."""
    profile(tmp_path, "a", [("down", "(8, 1, 1)", 10, 40)] * 4 + [("up", "(8, 1, 1)", 5, 1)] * 4
            + [("head", "(1, 1, 1)", 90, 1)])  # fmt: skip
    profile(tmp_path, "b", [("down", "(8, 1, 1)", 11, 40)] * 2 + [("up", "(8, 1, 1)", 5, 1)] * 2)
    found = kernel_pairs(History(tmp_path), "a", "b")
    assert "0.500 times the launches" in found.words
    assert table(found) == [[BOTH, "down", 4.0], [BOTH, "up", 0.0], [GONE, "head", -90.0]]


def test_sums_are_matched_within_their_stages_where_both_know_them(tmp_path: Path) -> None:
    of_a: list[Any] = [("decode", "gemm", 9e6, 3), ("prefill", "gemm", 4e6, 1), ("decode", "none", 1e6, 0)]
    of_b: list[Any] = [("decode", "gemm", 6e6, 3), ("prefill", "gemm", 5e6, 1), ("decode", "none", 1e6, None)]
    sums(tmp_path, "a", of_a)
    sums(tmp_path, "b", of_b)
    sums(tmp_path, "whole", [(None, "gemm", 20e6, 4)])
    profile(tmp_path, "ncu", [("gemm", "(8, 1, 1)", 10, 40), ("gemm", "(4, 1, 1)", 2, 10)])
    sums(tmp_path, "nsys", [("decode", "gemm", 9e3, 2)])
    history = History(tmp_path)
    found = kernel_pairs(history, "a", "b")
    assert found.rows["stage"].tolist() == ["decode", "prefill", "decode"]
    assert table(found) == [[BOTH, "gemm", -3000.0], [BOTH, "gemm", 1000.0], [BOTH, "none", 0.0]]
    assert pd.isna(found.rows["sm_a"]).all() and pd.isna(found.rows["each_s_a"].iloc[2])
    assert kernel_pairs(history, "a", "b", "prefill").rows["stage"].tolist() == ["prefill"]
    assert kernel_pairs(history, "a", "b", "no such").rows.empty
    of_all = kernel_pairs(history, "a", "whole").rows.iloc[0]  # one of the two does not know its stages
    assert pd.isna(of_all["stage"]) and of_all["total_s_a"] == pytest.approx(13e-3) and of_all["calls_a"] == 4
    mixed = kernel_pairs(history, "ncu", "nsys")  # a profile and sums are compared by their sums
    assert table(mixed) == [[BOTH, "gemm", -3.0]]
    assert mixed.rows["sm_a"].tolist() == [pytest.approx(35.0)] and pd.isna(mixed.rows["sm_b"]).all()
