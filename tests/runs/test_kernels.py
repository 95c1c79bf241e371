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
    by_kernel,
    kernel_names,
    kernel_pairs,
    plain_name,
    profile_rows,
)
from dsocr_core.runs.run_directory import RunDirectory
from tests.support.imported_files import imported
from tests.support.paths import SHARED
from tests.support.timed_history import record

SAMPLES = SHARED / "data" / "llm-perf-opt"
Metric = tuple[str, float | None, str | None]
NO = float("nan")


def of(*given: Metric) -> dict[str, Any]:
    """The row of one launch with these metrics."""
    metrics = pd.DataFrame([(0, *each) for each in given], columns=["number", "metric", "value", "unit"])
    launches = pd.DataFrame([{"number": 0, "kernel": "gemm", "stage": "decode"}])
    [row] = profile_rows(launches, metrics).to_dict("records")
    return row


@pytest.mark.parametrize(
    ("metric", "value", "unit", "figure", "expected"),
    [
        *(("Duration", 2.0, unit, "duration_s", 2e-6) for unit in ("us", "usecond")),
        ("Duration", 3.0, "nsecond", "duration_s", 3e-9), ("Duration", 4.0, "ms", "duration_s", 4e-3),
        *(("Duration", 7.0, unit, "duration_s", NO) for unit in ("us/s", "byte", "%", None)),
        *(("Memory Throughput", 5.0, unit, "bandwidth", 5e9) for unit in ("Gbyte/s", "Gbyte/second")),
        *(("Memory Throughput", 5.0, unit, "bandwidth", NO) for unit in ("%", "Kbyte/cycle", "Mbyte")),
        ("Memory Throughput", 5.0, "Gbyte/s", "memory", NO), ("Memory [%]", -5.0, "%", "memory", NO),
        ("dram__bytes.sum", 1.5, "Mbyte", "bytes", 1.5e6), ("dram__bytes.sum", 1.5, "gbyte", "bytes", NO),
        ("SM Frequency", 1.4, "cycle/nsecond", "frequency", 1.4e9),
        ("Invocations", 7.0, None, "invocations", 7),
        ("Compute (SM) [%]", 14.1, "%", "sm", 14.1), ("Achieved Occupancy", None, "%", "occupancy", NO),
    ],
)  # fmt: skip
def test_figures_are_in_one_unit(
    metric: str, value: float | None, unit: str | None, figure: str, expected: float
) -> None:
    assert of((metric, value, unit))[figure] == pytest.approx(expected, nan_ok=True)


def test_one_figure_has_the_names_of_all_pages_and_versions() -> None:
    row = of(
        ("Memory Throughput", 345.14, "Gbyte/s"), ("Memory Throughput (%)", 19.66, "%"),
        ("Duration", 6.75, "us"), ("Block Limit Registers", 5, "block"), ("Block Limit Warps", 2, "block"),
        ("launch__occupancy_limit_shared_mem", 2, None), ("Block Limit Barriers", 0, "block"),
    )  # fmt: skip
    assert (row["memory"], row["limiter"], row["bytes"]) == (
        19.66, "shared memory and warps", pytest.approx(345.14e9 * 6.75e-6),
    )  # fmt: skip
    for read, written in (("dram__bytes_read.sum", "dram__bytes_write.sum"),
                          ("dram__bytes_op_read.sum", "dram__bytes_op_write.sum")):  # fmt: skip
        assert of((read, 1, "Mbyte"), (written, 2, "Kbyte"))["bytes"] == 1_002_000


_TENSOR, _SASS = "sm__ops_path_tensor_src_bf16_dst_fp32", "sass_thread_inst_executed_op_"
_COUNTED: list[Metric] = [
    (f"{_TENSOR}.sum", 100.0, None),
    (f"{_TENSOR}_sparsity_off.sum", 100.0, None),  # part of the same sum
    (f"{_TENSOR}.sum.per_second", 7.0, "1/s"),
    (f"smsp__{_SASS}fadd_pred_on.sum", 3.0, "inst"),
    (f"smsp__{_SASS}fmul_pred_on.sum", 4.0, "inst"),
    (f"smsp__{_SASS}ffma_pred_on.sum", 5.0, "inst"),
]
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
        (_COUNTED[3:], NO, 17),
        ([(f"{_TENSOR}.sum", 0.0, None)], 0.0, NO),
        # Fused instructions were not counted, but there were some.
        *(([*_COUNTED[:5], (f"{name}ffma_pred_on{end}", 1.0, "inst/cycle")], 100.0, NO) for name, end in
          ((f"smsp__{_SASS}", ".sum.per_cycle_elapsed"), (f"derived__smsp__{_SASS}", "_x2"))),
        (_SCRIPT, NO, 4.002e9),
        # FLOPs of a tensor instruction depend on the card: a sum without them would be too small.
        ([*_SCRIPT, ("sm__inst_executed_pipe_tensor_op_hmma.sum", 7.0, "inst")], NO, NO),
    ],
)  # fmt: skip
def test_flops_are_those_of_the_tensor_cores_and_of_float_units(
    given: list[Metric], tensor: float, flops: float
) -> None:
    row = of(*given)
    assert [row["tensor_flops"], row["flops"]] == pytest.approx([tensor, flops], nan_ok=True)
    if given is _SCRIPT:
        assert (row["bytes"], row["duration_s"]) == (120.5e6, pytest.approx(1e-3))


@pytest.mark.parametrize(
    ("sm", "dram", "memory", "expected"),
    [
        (6.7, 12.1, 12.1, "latency"), (2.7, 49.4, 49.4, "latency"), (59.9, 10.0, 59.9, "latency"),
        (16.0, 10.0, 94.0, "memory"), (41.5, 8.1, 61.8, "memory"), (60.0, 60.0, 60.0, "memory"),
        (70.0, 8.0, 65.0, "compute"), (72.0, 70.0, 70.0, "compute"), (1.0, 1.0, None, "latency"),
        (None, 50.0, 50.0, None), (50.0, None, 50.0, None),
    ],
)  # fmt: skip
def test_the_class_follows_the_stated_rule(
    sm: float | None, dram: float | None, memory: float | None, expected: str | None
) -> None:
    names = ("Compute (SM) Throughput", "DRAM Throughput", "Memory Throughput")
    row = of(*((name, value, "%") for name, value in zip(names, (sm, dram, memory), strict=True)))
    assert row["class"] == expected


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="../shared/data/llm-perf-opt is not here")
def test_the_samples_figures_are_those_of_their_own_digest(tmp_path: Path) -> None:
    digest = pd.read_csv(SAMPLES / "ncu" / "analysis" / "metrics_summary.csv").set_index("kernel_id")
    names = {
        "sm": "sm_throughput_pct", "dram": "dram_throughput_pct", "memory": "mem_throughput_pct",
        "l2": "l2_throughput_pct", "occupancy": "achieved_occupancy_pct",
    }  # fmt: skip
    kernels = []
    for folder in sorted((SAMPLES / "ncu").glob("kernel_*")):
        _, found = imported(tmp_path / "t.csv", (folder / "ncu.details.csv").read_bytes())
        kernels.append(found["kernel_launches"][0]["kernel"])
        row = of(*((each["metric"], each["value"], each["unit"]) for each in found["kernel_metrics"]))
        expected = digest.loc[folder.name]
        assert {name: row[name] for name in names} == {name: expected[of] for name, of in names.items()}
        assert row["duration_s"] == pytest.approx(1e-6 * expected["duration_us"])
        assert row["bandwidth"] == pytest.approx(1e9 * expected["memory_throughput_gbs"])
        if folder.name.startswith("kernel_0003"):  # L2 61.8 %: "Memory is more heavily utilized", says Nsight
            assert row["class"] == "memory"
    assert len(kernels) == 8
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


def test_a_label_is_the_base_name_as_far_as_it_is_one_kernels() -> None:
    names = ["void a::gemm<(int)2>(T1)", "gemm<2>(T1)", "copy(float *)", "void b::copy<int>(const int *)",
             "std::enable_if<!(false), void>::type internal::gemvx::kernel<int>(T)"]  # fmt: skip
    assert kernel_names(names) == ["gemm", "gemm", "copy(float*)", "copy<int>(int*)", "kernel"]


# --- two runs -------------------------------------------------------------------------------------

Launch = tuple[str, float, float]
"""(kernel, microseconds, SM share)"""


def profile(root: Path, name: str, *launches: Launch) -> None:
    """A run under Nsight Compute."""
    with RunDirectory.create(root, record(name, 1, profiled=True)) as run:
        for number, (kernel, spent, sm) in enumerate(launches):
            row = {"number": number, "kernel": kernel, "launch": number}
            run.add_rows("kernel_launches", [row | {"stage": "decode"}])
            taken = (("Duration", spent, "us"), ("Compute (SM) Throughput", sm, "%"))
            run.add_rows("kernel_metrics", [
                row | {"metric": metric, "value": value, "unit": unit, "text": str(value)}
                for metric, value, unit in taken
            ])  # fmt: skip


def sums(root: Path, name: str, *kernels: tuple[str | None, str, float, int | None]) -> None:
    with RunDirectory.create(root, record(name, 1, profiled=True)) as run:
        names = ("stage", "name", "total_ns", "instances")
        run.add_rows("kernels", [dict(zip(names, each, strict=True)) for each in kernels])


def table(rows: pd.DataFrame) -> list[list[Any]]:
    return rows.assign(us=(rows["change_s"] * 1e6).round(6))[["found", "kernel", "us"]].to_numpy().tolist()


def test_launches_are_matched_by_name(tmp_path: Path) -> None:
    profile(tmp_path, "a", ("void a::gemm<(int)2>(T1)", 6, 20), ("gemm<2>(T1)", 2, 60), ("split", 5, 10),
            ("copy", 3, 1))  # fmt: skip
    profile(
        tmp_path, "b", ("gemm<2>(T1)", 4, 50), ("gemm<2>(T1)", 5, 50), ("split", 7, 15), ("fused", 0.5, 2)
    )
    with History(tmp_path) as history:
        rows, words, _ = kernel_pairs(history, "a", "b")
    assert table(rows) == [
        [GONE, "copy", -3.0], [BOTH, "split", 2.0], [BOTH, "gemm<2>(T1)", 1.0], [NEW, "fused", 0.5]
    ]  # fmt: skip
    gemm = rows.iloc[2]
    assert gemm[["sm_a", "sm_b"]].tolist() == pytest.approx([(6 * 20 + 2 * 60) / 8, 50])
    assert gemm[["each_s_a", "each_s_b"]].tolist() == pytest.approx([4e-6, 4.5e-6])
    assert words == "2 kernels in both, 1 new in B, 1 gone, by name; 16.0 µs → 16.5 µs in all."


def test_profiles_of_different_work_are_compared_launch_by_launch(tmp_path: Path) -> None:
    """B profiled half of the layers: its sums are half as large, and nothing became faster."""
    profile(tmp_path, "a", *[("down", 10, 40)] * 4, *[("up", 5, 1)] * 4, ("head", 90, 1))
    profile(tmp_path, "b", *[("down", 11, 40)] * 2, *[("up", 5, 1)] * 2)
    with History(tmp_path) as history:
        rows, words, _ = kernel_pairs(history, "a", "b")
    assert "0.500 times the launches" in words
    assert table(rows) == [[BOTH, "down", 4.0], [BOTH, "up", 0.0], [GONE, "head", -90.0]]


def test_sums_are_matched_within_their_stages_where_both_know_them(tmp_path: Path) -> None:
    sums(tmp_path, "a", ("decode", "gemm", 9e6, 3), ("prefill", "gemm", 4e6, 1), ("decode", "none", 1e6, 0))
    sums(
        tmp_path, "b", ("decode", "gemm", 6e6, 3), ("prefill", "gemm", 5e6, 1), ("decode", "none", 1e6, None)
    )
    sums(tmp_path, "whole", (None, "gemm", 20e6, 4))
    profile(tmp_path, "ncu", ("gemm", 10, 40), ("gemm", 2, 10))
    sums(tmp_path, "nsys", ("decode", "gemm", 9e3, 2))
    with History(tmp_path) as history:
        rows, prefill, nothing, of_all, mixed = (
            kernel_pairs(history, *of)[0]
            for of in (
                ("a", "b"),
                ("a", "b", "prefill"),
                ("a", "b", "no such"),
                ("a", "whole"),
                ("ncu", "nsys"),
            )
        )
    assert rows["stage"].tolist() == ["decode", "prefill", "decode"]
    assert table(rows) == [[BOTH, "gemm", -3000.0], [BOTH, "gemm", 1000.0], [BOTH, "none", 0.0]]
    assert pd.isna(rows["sm_a"]).all() and pd.isna(rows["each_s_a"].iloc[2])
    assert prefill["stage"].tolist() == ["prefill"] and nothing.empty
    first = of_all.iloc[0]  # one of the two does not know its stages
    assert pd.isna(first["stage"]) and first["total_s_a"] == pytest.approx(13e-3) and first["calls_a"] == 4
    assert table(mixed) == [[BOTH, "gemm", -3.0]]  # a profile and sums are compared by their sums
    assert mixed["sm_a"].tolist() == [pytest.approx(35.0)] and pd.isna(mixed["sm_b"]).all()
