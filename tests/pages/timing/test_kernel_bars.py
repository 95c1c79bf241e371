"""Kernels as HTML: as long as their share; names of others are no markup."""

from __future__ import annotations

import numpy as np
import pandas as pd

from pages.widgets.timing import charts

HOSTILE = "<img src=x onerror=alert(1)>'\""


def test_a_kernel_is_as_long_as_its_share_and_its_name_is_no_markup() -> None:
    kernels = pd.DataFrame(
        {
            "stage": ["decode", "decode", None], "name": ["void a::gemm<int>(float)", HOSTILE, "copy"],
            "total_ns": [4e6, 1e6, 5e5], "instances": [2.0, np.nan, 1.0], "share": [0.8, 0.2, 1.0],
        }
    )  # fmt: skip
    html = charts.kernel_bars(kernels)
    assert "<span>gemm</span>" in html
    assert "width:80.000%" in html
    assert "width:20.000%" in html
    assert "4.00 ms in 2 calls" in html
    assert html.count("class='dsocr-chip'") == 2  # decode, and all stages
    assert "<img" not in html
