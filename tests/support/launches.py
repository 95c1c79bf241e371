"""Two launches under Nsight Compute with known figures."""

from __future__ import annotations

import pandas as pd

LAUNCHES = pd.DataFrame(
    [
        {"number": 0, "kernel": "void a::gemm<(int)2>(T1)", "stage": "decode"},
        {"number": 1, "kernel": "copy", "stage": None},
    ]
)


def metrics() -> pd.DataFrame:
    figures = {
        0: {"Duration": (30.0, "us"), "Compute (SM) Throughput": (70.0, "%"), "DRAM Throughput": (10.0, "%"),
            "Memory Throughput": (180.0, "Gbyte/s"), "x": (None, None),
            "sm__ops_path_tensor_src_bf16_dst_fp32.sum": (6e9, None)},
        1: {"Duration": (10.0, "us"), "Compute (SM) Throughput": (5.0, "%"), "DRAM Throughput": (65.0, "%")},
    }  # fmt: skip
    return pd.DataFrame(
        [
            {"number": number, "metric": name, "value": value, "unit": unit}
            for number, of in figures.items()
            for name, (value, unit) in of.items()
        ]
    )
