"""Profiles of Nsight Compute on Timing: figures, class, advice, and the roofs they stand under."""

from __future__ import annotations

import pandas as pd
import pytest

from analytic_model.cards import card_named
from analytic_model.hardware import HARDWARE, Hardware
from dsocr_core.history.kernel_names import kernel_name, kernel_names
from pages.widgets.timing.profile import (
    advice,
    by_kernel,
    device_of,
    nsight_says,
    profile_rows,
    profile_words,
    roof_words,
    told,
)
from pages.widgets.timing.profile_charts import kernel_roofline, roofs, speed_of_light

LAUNCHES = pd.DataFrame(
    [
        {"number": 0, "kernel": "void a::gemm<(int)2>(T1)", "stage": "decode"},
        {"number": 1, "kernel": "copy", "stage": None},
    ]
)


def metrics() -> pd.DataFrame:
    figures = {
        0: {"Duration": (30.0, "us"), "Compute (SM) Throughput": (40.0, "%"), "DRAM Throughput": (10.0, "%"),
            "Memory Throughput": (180.0, "Gbyte/s"), "x": (None, None),
            "sm__ops_path_tensor_src_bf16_dst_fp32.sum": (6e9, None)},
        1: {"Duration": (10.0, "us"), "Compute (SM) Throughput": (5.0, "%"), "DRAM Throughput": (50.0, "%")},
    }  # fmt: skip
    return pd.DataFrame(
        [
            {"number": number, "metric": name, "value": value, "unit": unit}
            for number, of in figures.items()
            for name, (value, unit) in of.items()
        ]
    )


def test_a_launch_has_its_share_and_its_class() -> None:
    rows = profile_rows(LAUNCHES, metrics())
    assert rows["share"].tolist() == [0.75, 0.25]
    assert rows["class"].tolist() == ["compute", "memory"]
    shown = told(rows).set_index("name")
    assert shown.loc["gemm", "sm"] == 40.0 and pd.isna(shown.loc["copy", "l2"])
    assert shown.loc["copy", "stage"] == "not known" and shown.loc["gemm", "kernel"].startswith("void a::")


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
    assert copy["flops"] == 8e9 and copy["class"] == "compute" and rows["class"].tolist()[2] == "memory"
    words = profile_words(rows, by_kernel(rows), {})
    assert words.startswith(
        "3 launches of 2 kernels under Nsight Compute, each alone, 45.0 µs in all: 66.7 %"
    )
    assert told(by_kernel(rows))["launches"].tolist() == [2, 1]
    assert "l2_hits" not in told(rows) and "dram" in told(rows)


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


def test_a_launch_without_figures_is_not_measured() -> None:
    rows = profile_rows(LAUNCHES, metrics().iloc[:0])
    assert told(rows)["class"].isna().all()
    assert len(speed_of_light(rows).data) == 0


def test_roofs_are_the_devices_own() -> None:
    rows = profile_rows(LAUNCHES, metrics())
    assert device_of(rows, "NVIDIA H200", ["9.0"]) == HARDWARE["h200"]
    assert device_of(rows, "NVIDIA H200", ["8.0"]) is None
    assert device_of(rows, None, ["9.0"]) is None  # never by bandwidth
    assert device_of(rows, "Abacus", []) is None
    figure = kernel_roofline(rows.iloc[:1], HARDWARE["rtx-5090"])
    assert figure.data[1].y[0] == pytest.approx(6e9 / 30e-6)
    assert figure.data[1].x[0] == pytest.approx(6e9 / (180e9 * 30e-6))


def test_the_two_best_things_are_quoted_and_nothing_in_them_is_markup() -> None:
    rows = profile_rows(LAUNCHES, metrics())
    rules = pd.DataFrame(
        [
            (0, "void a::gemm<(int)2>(T1)", "Little", "OPT", "small", "local", 10.0),
            (0, "void a::gemm<(int)2>(T1)", "Much", "OPT", "<img src=x onerror=alert(1)>", "global", 40.0),
            (1, "copy", "Some", "OPT", "copy less", None, 90.0),
            (1, "copy", "Note", "INF", "by the way", None, 100.0),
        ],
        columns=["number", "kernel", "rule", "type", "text", "speedup_type", "speedup_percent"],
    )
    first, second = advice(rows, rules)  # 0.75 x 40 %, 0.25 x 90 %
    assert "gemm, rule Much, estimated speedup 40.0 % (global)" in first
    assert "&lt;img" in first and "<img" not in first
    assert "copy, rule Some" in second and "copy less" in second
    assert advice(rows, rules.iloc[:0]) == []


def test_what_a_rule_says_of_many_launches_weighs_as_much_as_they_do_together() -> None:
    rows = pd.DataFrame(
        {"number": [0, 1, 2, 3], "kernel": ["long", "often", "often", "often"],
         "share": [0.4, 0.2, 0.2, 0.2], "run_share": [float("nan")] * 4}
    )  # fmt: skip
    rules = pd.DataFrame(
        [(number, kernel, "Rule", "OPT", "text", "local", 50.0) for number, kernel in
         zip(rows["number"], rows["kernel"], strict=True)],
        columns=["number", "kernel", "rule", "type", "text", "speedup_type", "speedup_percent"],
    )  # fmt: skip
    first, second = advice(rows, rules)  # 3 x 0.2 x 50 %, 0.4 x 50 %
    assert "often, rule" in first and "long, rule" in second


def test_a_kernels_base_name_is_without_the_type_it_returns() -> None:
    name = "enable_if<!T7, void>::type kernel<int, int, cublasGemvParamsEx<int>>(T13)"
    assert kernel_name(name) == "kernel"
    assert kernel_name("void at::native::copy<int>(T1)") == "copy"


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


def test_without_a_known_card_words_stand_where_the_roof_would() -> None:
    rows = profile_rows(LAUNCHES, metrics())
    assert "compute capability 9.0) is not known by name" in roof_words(rows, None, ["9.0"])
    assert roof_words(rows, HARDWARE["h200"], ["9.0"]) == ""
    assert "is known of V100 SXM2" in roof_words(rows, card_named("Tesla V100-SXM2-16GB"), ["7.0"])
    assert roof_words(rows.assign(flops=float("nan")), None, []) == ""


def test_a_share_of_time_is_said_with_how_busy_its_units_were_and_no_time_is_no_sum() -> None:
    rows = profile_rows(LAUNCHES, metrics())
    words = profile_words(rows, by_kernel(rows), {})
    assert "75.0 % of the time compute bound (SM 40.0 %, DRAM 10.0 % of peak)" in words
    timeless = metrics()
    rows = profile_rows(LAUNCHES, timeless[timeless["metric"] != "Duration"])
    words = profile_words(rows, by_kernel(rows), {})
    assert "times not measured" in words and "0 s" not in words and "nan" not in words
    assert "1 launch compute bound" in words


def test_nsights_own_conclusion_stands_beside_the_class() -> None:
    rows = profile_rows(LAUNCHES, metrics())
    text = "Memory is more heavily utilized than Compute"
    rules = pd.DataFrame([(0, "SOLBottleneck", text)], columns=["number", "rule", "text"])
    rows["nsight"] = nsight_says(rows, rules)
    assert told(rows).set_index("name")["nsight"].dropna().to_dict() == {"gemm": "memory"}
    assert told(by_kernel(rows)).set_index("name").loc["gemm", "nsight"] == "memory"


@pytest.mark.parametrize(
    ("full", "shown"),
    [
        ("void unnamed>::CatArrayBatchedCopy<unnamed>::OpaqueType<4>, unsigned int, 3, 64, 64>(T1 *, "
         "unnamed>::TensorSizeStride<T2, 4>, int, T2)", "CatArrayBatchedCopy"),
        ("void at::native::<unnamed>::Copy<at::native::<unnamed>::Opaque<(unsigned int)4>, (int)3>(T1 *)",
         "Copy"),
        ("void (anonymous namespace)::softmax_warp<float, 4>(float *)", "softmax_warp"),
        ("unnamed>::scale_kernel(float, const float *, int)", "scale_kernel"),
        ("_Z10saxpy_warpIfEvPT_S1_", "saxpy_warp"), ("_ZN2at6native4copyIfEEvPT_", "copy"),
        ("void my::operator<<(int)", "operator<<"), ("bool operator<<<int>(T1)", "operator<<"),
        ("void my::functor::operator()(int) const", "operator()"), ("void a::operator->(int)", "operator->"),
        ("void gemm<256, (a > b)>(float *)", "gemm"), ("void k<(a >> 2), (int)3>(f<int> *)", "k"),
    ],
)  # fmt: skip
def test_a_name_survives_unnamed_namespaces_operators_and_comparisons(full: str, shown: str) -> None:
    assert kernel_name(full) == shown


def test_different_kernels_have_different_names_and_one_kernel_one() -> None:
    names = [
        "void a::gemm<(int)2>(T1)", "void a::gemm<(int)4>(T1)", "void gemm<4>(T1)", "copy(int)",
        "copy(float)", "void x::run<1>(T1)", "void y::run<1>(T1)", "alone<float>(T1)",
    ]  # fmt: skip
    shown = kernel_names(names)
    assert shown == [
        "gemm<2>", "gemm<4>", "gemm<4>", "copy(int)", "copy(float)",
        "x::run<1>(T1)", "y::run<1>(T1)", "alone",
    ]  # fmt: skip
    assert kernel_names(names[1:3]) == ["gemm", "gemm"]
