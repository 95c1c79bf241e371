"""B against A and kernels as HTML: where marks lie, worked out by hand; names of others are no markup."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from pages.widgets.timing import charts
from pages.widgets.timing.ratio_charts import ratios

HOSTILE = "<img src=x onerror=alert(1)>'\""


def found(**of_row: object) -> pd.DataFrame:
    row = {
        "stage": "decode", "runs_a": 3, "runs_b": 4, "pages": 12,
        "median_a": 100.0, "median_b": 50.0, "ratio": 0.5, "low": 0.25,
        "high": 1.0, "verdict": "faster",
    }  # fmt: skip
    return pd.DataFrame([row | of_row])


def percents(html: str, side: str, kind: str) -> list[float]:
    return [float(x) for x in re.findall(rf"<i class='{kind}' style='[^']*{side}:([\d.]+)%", html)]


def test_an_interval_reaches_from_low_to_high_and_the_dot_lies_between() -> None:
    html = ratios(found(), 0.02)
    (left,), (right,), (dot,) = (
        percents(html, "left", "interval"), percents(html, "right", "interval"), percents(html, "left", "dot")
    )  # fmt: skip
    # 0.5 is the geometric mean of 0.25 and 1.
    assert dot == pytest.approx((left + 100 - right) / 2, abs=0.01)
    assert 0 < left < dot < 100 - right < 100
    assert "2.00x faster" in html
    assert "3 and 4 runs, 12 pages" in html


def test_without_an_interval_there_is_a_ring_and_no_verdict() -> None:
    html = ratios(found(low=np.nan, high=np.nan, verdict="inconclusive"), 0.02)
    assert "dot ring" in html
    assert "interval" not in html
    assert "inconclusive" in html


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
