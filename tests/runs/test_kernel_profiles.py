"""Figures of a launch, whatever names and units they have, its class, its kernel in a summary."""

from __future__ import annotations

import csv
from typing import Any

import pandas as pd
import pytest

from dsocr_core.runs.kernel_names import plain_name
from dsocr_core.runs.kernel_profiles import class_of, figures, in_unit
from tests.support.launches import launches_in
from tests.support.paths import SHARED

SAMPLES = SHARED / "data" / "llm-perf-opt"
with_samples = pytest.mark.skipif(not SAMPLES.is_dir(), reason="../shared/data/llm-perf-opt is not here")


def metric(name: str, value: float | None, unit: str | None) -> dict[str, Any]:
    return {"metric": name, "value": value, "unit": unit}


@pytest.mark.parametrize(
    ("value", "unit", "wanted", "expected"),
    [
        (2.0, "us", "s", 2e-6), (2.0, "usecond", "s", 2e-6), (3.0, "nsecond", "s", 3e-9),
        (4.0, "ms", "s", 4e-3),
        (5.0, "Gbyte/s", "B/s", 5e9), (5.0, "Gbyte/second", "B/s", 5e9), (1.5, "Mbyte", "B", 1.5e6),
        (7.0, "%", "%", 7.0), (7.0, None, "", 7.0), (7.0, "%", "B/s", None), (7.0, "Gbyte/s", "%", None),
        (7.0, "Mbyte", "B/s", None), (7.0, "warp", "", 7.0), (7.0, "us/s", "s", None),
    ],
)  # fmt: skip
def test_units_are_those_of_the_row(
    value: float, unit: str | None, wanted: str, expected: float | None
) -> None:
    assert in_unit(value, unit, wanted) == (None if expected is None else pytest.approx(expected))


def test_one_figure_has_the_names_of_all_pages_and_versions() -> None:
    details = [
        metric("Memory Throughput", 345.14, "Gbyte/s"), metric("Memory Throughput (%)", 19.66, "%"),
        metric("Duration", 6.75, "us"), metric("Compute (SM) Throughput", 9.15, "%"),
        metric("DRAM Throughput", 19.66, "%"), metric("Block Limit Registers", 5, "block"),
        metric("Block Limit Shared Mem", 2, "block"), metric("Block Limit Warps", 2, "block"),
        metric("Block Limit Barriers", 0, "block"), metric("Achieved Occupancy", None, "%"),
        metric("sm__ops_path_tensor_src_bf16_dst_fp32.sum", 1e9, None),
    ]  # fmt: skip
    row = figures(details)
    assert (row["memory"], row["bandwidth"], row["duration_s"]) == (19.66, 345.14e9, pytest.approx(6.75e-6))
    assert row["limiter"] == "shared memory and warps"
    assert row["occupancy"] is None and row["flops"] == 1e9
    assert row["bytes"] == pytest.approx(345.14e9 * 6.75e-6)
    raw = [
        metric("gpu__time_duration.sum", 6750, "nsecond"),
        metric("sm__throughput.avg.pct_of_peak_sustained_elapsed", 9.15, "%"),
        metric("dram__bytes_read.sum", 1, "Mbyte"), metric("dram__bytes_write.sum", 2, "Kbyte"),
    ]  # fmt: skip
    row = figures(raw)
    assert (row["sm"], row["duration_s"], row["bytes"]) == (9.15, pytest.approx(6.75e-6), 1_002_000)
    assert row["class"] is None and row["limiter"] is None


def test_flops_are_those_of_the_tensor_cores_and_of_float32_outside_them() -> None:
    counted = [
        metric("sm__ops_path_tensor_src_bf16_dst_fp32.sum", 100.0, None),
        # parts of the same sum
        metric("sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_off.sum", 100.0, None),
        metric("sm__ops_path_tensor_src_bf16_dst_fp32.sum.per_second", 7.0, "1/s"),
        metric("smsp__sass_thread_inst_executed_op_fadd_pred_on.sum", 3.0, "inst"),
        metric("smsp__sass_thread_inst_executed_op_fmul_pred_on.sum", 4.0, "inst"),
        metric("smsp__sass_thread_inst_executed_op_ffma_pred_on.sum", 5.0, "inst"),
    ]
    assert (figures(counted)["tensor_flops"], figures(counted)["flops"]) == (100.0, 3 + 4 + 2 * 5 + 100)
    assert (figures(counted[3:])["tensor_flops"], figures(counted[3:])["flops"]) == (None, 17)
    none = [metric("sm__ops_path_tensor_src_bf16_dst_fp32.sum", 0.0, None)]
    assert (figures(none)["tensor_flops"], figures(none)["flops"]) == (0.0, None)


SASS = "sass_thread_inst_executed_op_"


def test_rates_of_the_roofline_section_are_flops_by_its_clock_and_time() -> None:
    clock = [
        metric("gpu__time_duration.sum", 500.0, "us"),
        metric("smsp__cycles_elapsed.avg.per_second", 1.4, "Ghz"),
    ]
    adds = [
        metric(f"smsp__{SASS}fadd_pred_on.sum.per_cycle_elapsed", 10.0, "inst/cycle"),
        metric(f"smsp__{SASS}fmul_pred_on.sum.per_cycle_elapsed", 5.0, "inst/cycle"),
    ]
    fused = metric(f"smsp__{SASS}ffma_pred_on.sum.per_cycle_elapsed", 6000.0, "inst/cycle")
    twice = metric(f"derived__smsp__{SASS}ffma_pred_on_x2", 12000.0, "inst/cycle")
    for of in ([fused, twice], [fused], [twice]):
        assert figures([*clock, *adds, *of])["flops"] == pytest.approx(12015 * 1.4e9 * 500e-6)
    tensor = metric("sm__ops_path_tensor_src_bf16_dst_fp32.sum.per_cycle_elapsed", 2000.0, "1/cycle")
    row = figures([*clock, tensor])
    assert row["tensor_flops"] == row["flops"] == pytest.approx(2000 * 1.4e9 * 500e-6)
    second = metric(f"smsp__{SASS}dfma_pred_on.sum.per_second", 1e12, "inst/s")
    assert figures([clock[0], second])["flops"] == pytest.approx(2 * 1e12 * 500e-6)
    label = "Thread Instructions Executed Per Cycle"
    details = [
        metric("Duration", 500.0, "us"), metric("SM Frequency", 1.4, "Ghz"),
        metric(f"Predicated-On FADD {label}", 10.0, "inst/cycle"),
        metric(f"Predicated-On FMUL {label}", 5.0, "inst/cycle"),
        metric("Predicated-On FFMA Operations Per Cycle", 12000.0, "inst"),
    ]  # fmt: skip
    assert figures(details)["flops"] == pytest.approx(12015 * 1.4e9 * 500e-6)
    assert figures([metric("dram__bytes.sum.peak_sustained", 1.024, "Kbyte/cycle")])["dram_peak"] == 1024
    assert figures(adds)["flops"] is None  # a rate without a time


def test_counters_of_roofline_scripts_are_flops_bytes_and_time() -> None:
    counted = [
        metric("dram__bytes.sum", 120.5, "Mbyte"), metric("sm__cycles_elapsed.avg", 1.3e6, "cycle"),
        metric("sm__cycles_elapsed.avg.per_second", 1.30, "cycle/nsecond"),
        metric("sm__inst_executed_pipe_tensor.sum", 0.0, "inst"),
        metric(f"sm__{SASS}fadd_pred_on.sum", 1e6, "inst"),
        metric(f"sm__{SASS}ffma_pred_on.sum", 2e9, "inst"),
        metric(f"sm__{SASS}hfma_pred_on.sum", 5e5, "inst"),
    ]  # fmt: skip
    row = figures(counted)
    assert (row["flops"], row["bytes"]) == (pytest.approx(4.002e9), 120.5e6)
    assert row["duration_s"] == pytest.approx(1e-3)
    # FLOPs of a tensor instruction depend on the card: a sum without them would be too small.
    tensor = metric("sm__inst_executed_pipe_tensor_op_hmma.sum", 7.0, "inst")
    assert figures([*counted, tensor])["flops"] is None


@pytest.mark.parametrize(
    ("figure", "names"),
    [
        ("sm", ["Compute (SM) [%]", "SM [%]", "SOL SM", "Compute (SM) Throughput"]),
        ("memory", ["Memory [%]", "SOL Memory"]), ("dram", ["SOL DRAM", "SOL FB"]),
        ("l1", ["SOL L1/TEX Cache", "SOL TEX"]), ("l2", ["SOL L2 Cache", "SOL L2"]),
        ("bytes_read", ["dram__bytes_op_read.sum", "dram__bytes_read.sum"]),
        ("bytes_written", ["dram__bytes_op_write.sum", "dram__bytes_write.sum"]),
    ],
)  # fmt: skip
def test_a_figure_has_the_names_of_all_versions_and_is_never_below_zero(
    figure: str, names: list[str]
) -> None:
    unit = "byte" if figure.startswith("bytes") else "%"
    for name in names:
        assert figures([metric(name, 71.5, unit)])[figure] == 71.5, name
        assert figures([metric(name, -5.0, unit)])[figure] is None


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
    assert class_of({"sm": sm, "dram": dram, "memory": memory}) == expected


def test_both_tools_names_of_a_kernel_meet() -> None:
    longer = "void at::native::vectorized<(int)4, std::array<char *, (unsigned long)2>>(int)"
    assert plain_name(longer) == plain_name("void vectorized<4, array<char *, 2>>(int)")


@with_samples
def test_the_samples_figures_are_those_of_their_own_digest() -> None:
    digest = pd.read_csv(SAMPLES / "ncu" / "analysis" / "metrics_summary.csv").set_index("kernel_id")
    names = {
        "sm": "sm_throughput_pct", "dram": "dram_throughput_pct", "memory": "mem_throughput_pct",
        "l1": "l1tex_throughput_pct", "l2": "l2_throughput_pct", "l1_hits": "l1tex_hit_rate_pct",
        "l2_hits": "l2_hit_rate_pct", "occupancy": "achieved_occupancy_pct",
        "most_occupancy": "theoretical_occupancy_pct",
    }  # fmt: skip
    kernels = []
    folders = sorted((SAMPLES / "ncu").glob("kernel_*"))
    for folder in folders:
        (launch,) = launches_in((folder / "ncu.details.csv").read_text(encoding="utf-8"))
        kernels.append(launch.kernel)
        row = figures([metric(each.metric, each.value, each.unit) for each in launch.metrics])
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
    assert sum(plain_name(kernel) in summed for kernel in kernels) >= 6
