"""Profiles of Nsight Compute on Timing: figures, class, and the roofs they stand under."""

from __future__ import annotations

import pytest

from analytic_model.hardware import HARDWARE, Hardware, card_named
from dsocr_core.runs.kernels import by_kernel, profile_rows
from pages.widgets.timing.charts import kernel_roofline, roofs
from pages.widgets.timing.kernels import device_of, profile_words
from tests.support.launches import LAUNCHES, metrics


def test_a_roof_is_drawn_for_each_unit_that_the_kernels_use() -> None:
    rows = profile_rows(LAUNCHES, metrics()).iloc[:1].assign(bytes=1e6)
    h200 = HARDWARE["h200"]

    def drawn_roofs(flops: float, tensor: float, device: Hardware = h200) -> list[str]:
        drawn = kernel_roofline(rows.assign(flops=flops, tensor_flops=tensor), device)
        return [trace.name.split(",")[0] for trace in drawn.data if trace.mode == "lines"]

    assert drawn_roofs(5.0, 5.0) == ["tensor cores"]
    assert drawn_roofs(5.0, 0.0) == ["float32"]
    assert drawn_roofs(5.0, 2.0) == ["tensor cores", "float32"]
    assert drawn_roofs(5.0, 0.0, HARDWARE["h200-measured"]) == ["tensor cores"]  # of float32 it has no peak


def test_roofs_are_the_devices_own() -> None:
    rows = profile_rows(LAUNCHES, metrics())
    assert device_of(rows, "NVIDIA H200", ["9.0"]) == HARDWARE["h200"]
    assert device_of(rows, "NVIDIA H200", ["8.0"]) is None
    assert device_of(rows, None, ["9.0"]) is None  # never by bandwidth
    assert device_of(rows, "Abacus", []) is None
    figure = kernel_roofline(rows.iloc[:1], HARDWARE["rtx-5090"])
    assert figure.data[1].y[0] == pytest.approx(6e9 / 30e-6)
    assert figure.data[1].x[0] == pytest.approx(6e9 / (180e9 * 30e-6))


def test_a_reports_own_peaks_go_before_the_cards() -> None:
    peaks = {"frequency": 1.4e9, "dram_frequency": 1.5e9, "ffma_peak": 13_824.0, "dram_peak": 1024.0}
    rows = profile_rows(LAUNCHES, metrics()).assign(**peaks)
    own = device_of(rows, None, ["8.0"])
    assert own is not None and own.bandwidth == pytest.approx(1.536e12)
    assert own.peak_flops("float32") == pytest.approx(2 * 13_824 * 1.4e9)
    both = device_of(rows, "NVIDIA A100-SXM4-80GB", ["8.0"])
    assert both is not None and both.bandwidth_gb_s == pytest.approx(1536)
    assert both.bfloat16_tflops == 312.0 and both.name == "A100 80GB SXM, peaks of the report"
    v100 = card_named("Tesla V100-SXM2-16GB")
    assert v100 is not None and roofs(profile_rows(LAUNCHES, metrics()).iloc[:1], v100) == []  # tensor only
    only = device_of(rows.assign(ffma_peak=float("nan")), None, [])
    assert only is None  # a bandwidth alone is no roof for operations


def test_a_share_of_time_is_said_with_how_busy_its_units_were_and_no_time_is_no_sum() -> None:
    rows = profile_rows(LAUNCHES, metrics())
    words = profile_words(rows, by_kernel(rows))
    assert "75.0 % of the time compute bound (SM 70.0 %, DRAM 10.0 % of peak)" in words
    timeless = metrics()
    rows = profile_rows(LAUNCHES, timeless[timeless["metric"] != "Duration"])
    words = profile_words(rows, by_kernel(rows))
    assert "times not measured" in words and "0 s" not in words and "nan" not in words
    assert "1 kernel compute bound" in words
