"""Launches under Nsight Compute: shares, class, a row a kernel."""

from __future__ import annotations

import pandas as pd
import pytest

from dsocr_core.runs.profiled import by_kernel, profile_rows
from tests.support.launches import LAUNCHES, metrics


def test_a_launch_has_its_share_and_its_class() -> None:
    rows = profile_rows(LAUNCHES, metrics())
    assert rows["share"].tolist() == [0.75, 0.25]
    assert rows["class"].tolist() == ["compute", "memory"]
    assert rows["sm"].tolist() == [70.0, 5.0] and rows["l2"].isna().all()


def test_an_average_weighs_as_often_as_it_ran() -> None:
    times = pd.DataFrame({"number": [0], "metric": ["Invocations"], "value": [2.0], "unit": [None]})
    rows = profile_rows(LAUNCHES, pd.concat([metrics(), times], ignore_index=True))
    assert rows["share"].tolist() == pytest.approx([6 / 7, 1 / 7])  # 3 to 1 else


def test_launches_of_a_kernel_are_one_row_with_its_time_and_means_over_it() -> None:
    launches = pd.DataFrame(
        [{"number": number, "kernel": "copy" if number else "gemm", "stage": "decode"} for number in range(3)]
    )
    measured = {0: (5.0, 4.0, 80.0, 1e9), 1: (30.0, 40.0, 10.0, 6e9), 2: (10.0, 20.0, 50.0, 2e9)}
    names = {
        "Duration": "us", "Compute (SM) Throughput": "%", "DRAM Throughput": "%",
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum": None,
    }  # fmt: skip
    metrics = pd.DataFrame(
        [
            {"number": number, "metric": name, "value": value, "unit": unit}
            for number, values in measured.items()
            for (name, unit), value in zip(names.items(), values, strict=True)
        ]
    )
    rows = profile_rows(launches, metrics)
    kernels = by_kernel(rows).set_index("kernel")
    copy = kernels.loc["copy"]
    assert kernels.index.tolist() == ["copy", "gemm"] and copy["launches"] == 2
    assert copy["duration_s"] == pytest.approx(40e-6) and copy["share"] == pytest.approx(40 / 45)
    assert (copy["sm"], copy["dram"]) == (pytest.approx(35.0), pytest.approx(20.0))  # 30 : 10 us
    assert copy["flops"] == 8e9 and copy["class"] == "latency" and rows["class"].tolist()[0] == "memory"
