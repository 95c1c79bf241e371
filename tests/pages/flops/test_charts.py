"""Tables and charts of the FLOPs page, from hand-made costs."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from analytic_model.hardware import Hardware
from analytic_model.history_of_estimate import Step
from analytic_model.policy import Policy
from analytic_model.predict import predict
from analytic_model.workload import Workload
from dsocr_core.config import load_config
from dsocr_core.settings import EMBEDDED_CHECKPOINT
from dsocr_core.stages import INSIDE_PREFILL, Stage
from pages.widgets.flops import bounds, charts, gaps, tables
from pages.widgets.flops import old_estimate as estimate
from pages.widgets.flops.profiled import stage_points
from pages.widgets.shared.amounts import amount, percent_of, scale_of, signed
from pages.widgets.shared.charts import STAGE_COLOURS
from tests.support.results import make_result

AMOUNTS = {
    Stage.SAM: 10.0, Stage.CLIP: 5.0, Stage.PROJECTOR: 2.0, Stage.VISION_FUSION: 0.0, Stage.PREFILL: 20.0,
    Stage.DECODE: 100.0,
}  # fmt: skip
CONFIG = load_config(EMBEDDED_CHECKPOINT)
WORKLOAD = Workload.from_image(1280, 640, prompt_tokens=10, decode_tokens=4)
DEVICE = Hardware("made up", 2.0, 1.0, 100.0, None, "nowhere")


# --- figures with units ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [(976_909_172_736, "FLOP", "977 GFLOP"), (999.6e9, "B", "1.00 TB"), (999.4e9, "B", "999 GB"),
     (12, "B", "12.0 B"), (1.2e15, "FLOP/s", "1.20 PFLOP/s"), (0.5, "FLOP/B", "0.500 FLOP/B"),
     (1.25e-3, "s", "1.25 ms"), (3e-7, "s", "0.300 µs"), (0.99949, "s", "999 ms"), (0.9996, "s", "1.00 s"),
     (120, "s", "120 s"), (0, "s", "0 s"), (None, "s", "not measured"), (math.nan, "B", "not measured")],
)  # fmt: skip
def test_amounts_have_a_unit_and_three_digits(value: float | None, unit: str, words: str) -> None:
    assert amount(value, unit) == words


def test_differences_have_a_sign_and_an_exact_zero_has_none() -> None:
    assert signed(5e9, "FLOP") == "+5.00 GFLOP"
    assert signed(-5e9, "FLOP") == "−5.00 GFLOP"
    assert signed(0, "FLOP") == "0 FLOP"
    assert percent_of(-2.5) == "−2.50 %"
    assert percent_of(math.nan) == "–"
    assert scale_of(0, "s") == (1e-6, "µs")


# --- bars -----------------------------------------------------------------------------------------


def test_vision_lies_inside_prefill_and_decode_after_it() -> None:
    frame = tables.spans("FLOPs", "analytic", AMOUNTS).set_index("stage")
    prefill = frame.loc["prefill"]
    assert (prefill["start"], prefill["amount"]) == (0, 37)
    assert (frame.loc["decode", "start"], frame.loc["decode", "amount"]) == (37, 100)
    clock = 0.0
    for stage in INSIDE_PREFILL:
        assert frame.loc[stage.value, "inside"]
        assert frame.loc[stage.value, "start"] == clock
        clock += frame.loc[stage.value, "amount"]
    assert clock < prefill["amount"]


def test_bars_start_at_zero_in_fixed_colours_with_a_fixed_legend() -> None:
    for amounts in (AMOUNTS, {Stage.DECODE: 1.0}):
        spans = pd.concat([tables.spans("FLOPs", row, amounts) for row in ("analytic", "measured")])
        figure = charts.cost_bars(spans, {"FLOPs": "FLOP"})
        names = [trace.name for trace in sorted(figure.data, key=lambda trace: trace.legendrank)]
        assert names == [charts.legend_name(stage) for stage in charts.COSTLY]
        assert all(trace.showlegend for trace in figure.data)
        for trace in figure.data:
            assert trace.marker.color == STAGE_COLOURS[trace.name.rpartition(" ")[2]]
        assert figure.layout.xaxis.range[0] == 0
    inner = {trace.name: trace.width for trace in figure.data}
    assert inner["prefill › sam"] < inner["prefill"]


def test_each_panel_has_its_own_scale_and_one_legend() -> None:
    spans = pd.concat(
        [
            tables.spans("FLOPs", "FLOPs", {stage: value * 1e12 for stage, value in AMOUNTS.items()}),
            tables.spans("time", "time", {stage: value * 1e-3 for stage, value in AMOUNTS.items()}),
        ]
    )
    figure = charts.cost_bars(spans, {"FLOPs": "FLOP", "time": "s"})
    assert figure.layout.xaxis.ticksuffix == " TFLOP"
    assert figure.layout.xaxis2.ticksuffix == " ms"
    decode = [trace for trace in figure.data if trace.name == "decode"]
    assert [list(trace.x) for trace in decode] == [[100], [100]]
    assert [trace.showlegend for trace in decode] == [True, False]
    assert [words.text.strip() for words in figure.layout.annotations] == ["137 TFLOP", "137 ms"]


def test_the_cost_table_adds_up() -> None:
    prediction = predict(CONFIG, WORKLOAD)
    costs = tables.stage_costs(prediction, DEVICE)
    assert list(costs["stage"]) == [stage.value for stage in charts.COSTLY]
    assert costs["flops"].sum() == prediction.total.flops
    slower = costs[["compute_s", "memory_s"]].max(axis=1)
    assert (costs["bound_s"] == slower).all()
    shown = tables.shown_costs(costs, prediction.parameters["total"]).set_index("stage")
    with_vision = prediction.with_nested(Stage.PREFILL).cost.flops
    assert shown.loc["prefill with vision", "FLOPs"] == amount(with_vision, "FLOP")
    assert shown.loc["everything", "parameters"] == amount(prediction.parameters["total"], "")
    assert shown.loc["prefill › vision_fusion", "FLOPs"] == "0 FLOP"


def test_operators_of_several_views_are_one_row_each() -> None:
    stage = predict(CONFIG, WORKLOAD).stages[Stage.SAM]
    frame = tables.operators(stage)
    assert not frame.duplicated(["module", "operator"]).any()
    assert frame["flops"].sum() == stage.cost.flops
    assert frame["parameters"].sum() == stage.cost.parameters
    assert frame["share_of_flops"].sum() == pytest.approx(1)
    assert frame["flops"].is_monotonic_decreasing
    nothing = tables.operators(predict(CONFIG, WORKLOAD).stages[Stage.VISION_FUSION])
    assert set(nothing["share_of_flops"]) == {0.0}


# --- gaps -----------------------------------------------------------------------------------------


def counted(policy: Policy) -> gaps.Counted:
    return {
        stage: {name: part.flops for name, part in cost.by_operator().items() if part.flops}
        for stage, cost in predict(CONFIG, WORKLOAD, policy).stages.items()
    }


def causes(policy: Policy, nested: bool = False, of: gaps.Counted | None = None) -> pd.DataFrame:
    return gaps.gap_causes(CONFIG, WORKLOAD, policy, nested, of or counted(Policy()), "sdpa")


@pytest.mark.parametrize(
    ("policy", "nested", "cause", "stages"),
    [(Policy(vision_window_padding=False), False, "window padding", {"sam"}),
     (Policy(lm_head="all"), False, "lm_head positions", {"prefill"}),
     (Policy(causal="halved"), False, "causal convention", {"prefill"}),
     (Policy(attention="flash_attention_2"), False, "FlashAttention core", {"prefill", "decode"}),
     (Policy(), True, "nesting", {"prefill"})],
)  # fmt: skip
def test_each_switch_is_one_cause(policy: Policy, nested: bool, cause: str, stages: set[str]) -> None:
    frame = causes(policy, nested)
    made = frame[frame["flops"] != 0]
    assert set(made["cause"]) == {cause}
    assert set(made["stage"]) == stages


def test_the_causes_of_a_stage_add_up_to_its_gap() -> None:
    policy = Policy(False, "halved", "all", "flash_attention_2", vision_window_padding=False)
    off = {stage: dict(flops) for stage, flops in counted(Policy()).items()}
    off[Stage.PREFILL]["mm"] -= 1000
    frame = causes(policy, nested=True, of=off)
    table = gaps.gap_table(frame)
    assert list(table["stage"]) == [stage.value for stage in charts.COSTLY]
    assert (table[[*gaps.CAUSES, gaps.UNEXPLAINED]].sum(axis=1) == table["gap"]).all()
    assert dict(zip(table["stage"], table[gaps.UNEXPLAINED], strict=True)) == {
        **{stage.value: 0 for stage in charts.COSTLY}, "prefill": 1000,
    }  # fmt: skip
    # lm_head at the prompt's other positions: a product of each with (C, V).
    decoder = CONFIG.decoder
    others = WORKLOAD.sequence_length - 1
    assert table.set_index("stage").loc["prefill", "lm_head positions"] == (
        2 * others * decoder.hidden_size * decoder.vocab_size
    )


def test_a_stage_in_which_nothing_is_counted_has_no_percent() -> None:
    nothing = {**counted(Policy()), Stage.CLIP: {}}
    table = gaps.gap_table(causes(Policy(), of=nothing)).set_index("stage")
    assert math.isnan(table.loc["clip", "gap_percent"])
    assert table.loc["vision_fusion", "gap_percent"] == 0
    shown = gaps.shown_gaps(table.reset_index()).set_index("stage")
    assert shown.loc["prefill › clip", "gap (%)"] == "–"


def test_operator_gaps_name_what_either_side_has() -> None:
    off = {stage: dict(flops) for stage, flops in counted(Policy()).items()}
    off[Stage.SAM]["addmm"] += 7
    off[Stage.SAM]["baddbmm"] = 3
    frame = gaps.operator_gaps(predict(CONFIG, WORKLOAD), off)
    wrong = frame[frame["gap"] != 0].set_index("operator")["gap"]
    assert wrong.to_dict() == {"addmm": -7, "baddbmm": -3}


def test_gap_bars_keep_their_legend_and_stages() -> None:
    for frame in (causes(Policy()), causes(Policy(lm_head="all"), nested=True)):
        figure = charts.gap_bars(frame)
        assert [trace.name for trace in figure.data] == list(charts.CAUSE_COLOURS)
        assert [trace.marker.color for trace in figure.data] == list(charts.CAUSE_COLOURS.values())
        assert all(len(trace.x) == len(charts.COSTLY) for trace in figure.data)
        assert set(charts.CAUSE_COLOURS) == {*gaps.CAUSES, gaps.UNEXPLAINED}
    nesting = next(trace for trace in figure.data if trace.name == "nesting")
    assert max(nesting.x) > 100  # vision is more than the language model


# --- bounds ---------------------------------------------------------------------------------------


def test_recorded_times_are_set_against_their_bounds() -> None:
    result = make_result()  # sam 10, clip 20, projector 3, vision_fusion 4 of prefill's 50 ms; decode 100
    prediction = predict(CONFIG, WORKLOAD)
    frame = bounds.times(prediction, DEVICE, result)
    alone = frame[~frame["with_vision"]].set_index("stage")
    assert alone["measured_s"].to_dict() == pytest.approx(
        {"sam": 0.01, "clip": 0.02, "projector": 0.003, "vision_fusion": 0.004, "prefill": 0.013,
         "decode": 0.1}
    )  # fmt: skip
    sam = prediction.stages[Stage.SAM].cost.flops
    assert alone.loc["sam", "flops_per_s"] == pytest.approx(sam / 0.010)
    assert alone.loc["sam", "mfu"] == pytest.approx(sam / 0.010 / 2e12)
    clocked = frame[frame["with_vision"]].iloc[0]
    assert clocked["measured_s"] == pytest.approx(0.05)
    assert clocked["bound_s"] == pytest.approx(alone.drop("decode")["bound_s"].sum())
    spans = bounds.time_spans(frame, "recorded", "bound").set_index(["row", "stage"])
    assert spans.loc[("recorded", "prefill"), "amount"] == pytest.approx(0.05)
    assert spans.loc[("recorded", "decode"), "start"] == pytest.approx(0.05)


def test_points_of_a_bound_lie_on_the_roof_and_recorded_ones_below() -> None:
    prediction = predict(CONFIG, WORKLOAD)
    costs = tables.stage_costs(prediction, DEVICE)
    points = bounds.roofline_points(costs, bounds.times(prediction, DEVICE, make_result()))
    on_roof = points[(points["kind"] == "bound") & (points["flops_per_s"] > 0)]
    roof = (on_roof["intensity"] * 100e9).clip(upper=2e12)
    assert on_roof["flops_per_s"].to_list() == pytest.approx(roof.to_list())
    both = points.pivot(index="stage", columns="kind", values="intensity").drop("vision_fusion")
    assert (both["bound"] == both["measured"]).all()


@pytest.mark.parametrize("recorded", [False, True])
def test_the_roofline_has_every_stage_in_its_colour(recorded: bool) -> None:
    prediction = predict(CONFIG, WORKLOAD)
    times = bounds.times(prediction, DEVICE, make_result()) if recorded else None
    points = bounds.roofline_points(tables.stage_costs(prediction, DEVICE), times)
    figure = charts.roofline(points, 2e12, 100e9)
    legend = [trace for trace in figure.data if trace.showlegend]
    assert [trace.name for trace in legend] == [charts.legend_name(stage) for stage in charts.COSTLY]
    assert [trace.marker.color for trace in legend] == [STAGE_COLOURS[stage] for stage in charts.COSTLY]
    assert all(len(trace.x) == 1 for trace in legend)  # an empty one would lose its position
    roof = figure.data[0]
    assert list(roof.x)[1] == 20  # 2 TFLOP/s over 100 GB/s
    assert list(roof.y)[1:] == [2e12, 2e12]
    assert (figure.layout.xaxis.type, figure.layout.yaxis.type) == ("log", "log")
    left, right = (10**edge for edge in figure.layout.xaxis.range)
    shown = points[points["flops_per_s"] > 0]
    assert left < shown["intensity"].min()
    assert shown["intensity"].max() < right
    assert 10 ** figure.layout.yaxis.range[0] < shown["flops_per_s"].min()


def sweep(compute: list[float], memory: list[float]) -> pd.DataFrame:
    sizes = [2**power for power in range(len(compute))]
    return pd.DataFrame({"size": sizes, "compute_s": compute, "memory_s": memory})


def test_compute_and_bandwidth_cross_where_both_take_as_long() -> None:
    # n seconds against 6: between 4 and 8, at 6.
    at = bounds.cross_at(sweep([1, 2, 4, 8], [6, 6, 6, 6]))
    assert at == pytest.approx((6, 6))
    assert bounds.cross_at(sweep([1, 2, 4, 8], [2, 2, 2, 2])) == pytest.approx((2, 2))
    assert bounds.cross_at(sweep([1, 2], [9, 9])) is None  # never
    assert bounds.cross_at(sweep([9, 9], [1, 2])) is None  # from the first on


def test_the_crossing_is_marked_where_there_is_one() -> None:
    crossing = sweep([1, 2, 4, 8], [6, 6, 6, 6])
    figure = charts.crossing(crossing, Stage.DECODE, "pages", bounds.cross_at(crossing), 2)
    assert [trace.name for trace in figure.data[:2]] == ["computing", "moving bytes"]
    assert {trace.line.color for trace in figure.data[:2]} == {STAGE_COLOURS[Stage.DECODE]}
    assert list(figure.data[2].x) == pytest.approx([6])
    assert figure.layout.annotations[0].text == "this work: 2"
    never = sweep([1, 2], [9, 9])
    figure = charts.crossing(never, Stage.PREFILL, "positions", bounds.cross_at(never), 500)
    assert len(figure.data) == 2
    assert not figure.layout.shapes  # this work lies beyond the sweep


def test_sweeps_are_costs_of_one_step_and_of_one_prefill() -> None:
    decode = bounds.decode_sweep(CONFIG, WORKLOAD, Policy(), DEVICE)
    assert decode["flops"].iloc[3] == 8 * decode["flops"].iloc[0]
    assert decode["bytes"].iloc[3] < 8 * decode["bytes"].iloc[0]  # weights are read once for all
    prefill = bounds.prefill_sweep(CONFIG, Policy(), DEVICE)
    page = Workload.from_image(640, 640, "small", prompt_tokens=256 - 111)
    assert prefill.set_index("size").loc[256, "flops"] == (
        predict(CONFIG, page).stages[Stage.PREFILL].cost.flops
    )


# --- the old estimate -----------------------------------------------------------------------------

STEPS = (
    Step("old estimate", "little", {Stage.SAM: 10, Stage.CLIP: 2, Stage.PROJECTOR: 3}),
    Step("all views", "more", {Stage.SAM: 30, Stage.CLIP: 6, Stage.PROJECTOR: 3}),
    Step("24 CLIP layers", "deeper", {Stage.SAM: 30, Stage.CLIP: 36, Stage.PROJECTOR: 3}),
    Step("true projector tokens", "fewer", {Stage.SAM: 30, Stage.CLIP: 36, Stage.PROJECTOR: 1}),
)


def test_the_waterfall_hangs_each_correction_on_what_stood_before() -> None:
    frame = estimate.estimate_steps(STEPS)
    assert list(dict.fromkeys(frame["label"])) == [
        "old estimate", "+ all views", "+ 24 CLIP layers", "+ true projector tokens", "= predicted",
    ]  # fmt: skip
    views = frame[frame["label"] == "+ all views"]
    assert list(views["flops"]) == [20, 4, 0]
    assert list(views["start"]) == [15, 35, 39]
    assert list(frame[frame["label"] == "+ true projector tokens"]["flops"]) == [0, 0, -2]
    last = frame[frame["label"] == "= predicted"]
    assert list(last["start"]) == [0, 30, 66]
    assert last["flops"].sum() == 67
    measured = {Stage.SAM: {"mm": 20, "bmm": 11}, Stage.CLIP: {"mm": 36}, Stage.PROJECTOR: {"mm": 1}}
    ending = estimate.estimate_steps(STEPS, measured)
    assert ending[ending["label"] == "= measured"]["flops"].sum() == 68


def test_the_waterfalls_table_says_how_far_off_each_sum_is() -> None:
    shown = estimate.shown_estimate(estimate.estimate_steps(STEPS)).set_index("step")
    assert list(shown["sum"]) == ["15.0 FLOP", "39.0 FLOP", "69.0 FLOP", "67.0 FLOP", "67.0 FLOP"]
    assert shown.loc["old estimate", "off by"] == "−77.6 %"
    assert shown.loc["+ 24 CLIP layers", "off by"] == "2.99 %"
    assert shown.loc["+ true projector tokens", "projector"] == "−2.00 FLOP"


def test_the_waterfall_stands_on_zero() -> None:
    figure = charts.estimate_waterfall(estimate.estimate_steps(STEPS))
    assert figure.layout.yaxis.range[0] == 0
    assert figure.layout.yaxis.range[1] > 69
    assert [trace.name for trace in figure.data] == ["prefill › sam", "prefill › clip", "prefill › projector"]
    assert [words.text for words in figure.layout.annotations] == [
        "15.0 FLOP", "+24.0 FLOP", "+30.0 FLOP", "−2.00 FLOP", "67.0 FLOP",
    ]  # fmt: skip


def test_a_stage_stands_where_its_counted_launches_do_together() -> None:
    """Two launches of 20 us: 6e9 FLOPs, 4e6 bytes; a third has no count and is left out."""
    launches = pd.DataFrame({"number": [0, 1, 2], "stage": ["decode", "decode", "decode"]})
    names = {
        "gpu__time_duration.sum": "us", "dram__bytes_read.sum": "byte", "dram__bytes_write.sum": "byte",
        "sm__ops_path_tensor_src_bf16_dst_fp32.sum": None,
    }  # fmt: skip
    values = {0: (10.0, 1e6, 0.0, 2e9), 1: (10.0, 2e6, 1e6, 4e9), 2: (10.0, 2e6, 1e6, 0.0)}
    metrics = pd.DataFrame(
        [
            {"number": number, "metric": name, "value": value, "unit": unit}
            for number, of in values.items()
            for (name, unit), value in zip(names.items(), of, strict=True)
        ]
    )
    (point,) = stage_points(launches, metrics).to_dict("records")
    assert (point["stage"], point["kind"], point["launches"]) == ("decode", "counted", 2)
    assert point["intensity"] == 1500 and point["flops_per_s"] == pytest.approx(3e14)
    assert stage_points(launches, metrics[metrics["number"] == 2]).empty
