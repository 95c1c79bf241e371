"""Tables of the tabs and the timing chart, from hand-made results."""

import io
from pathlib import Path

import pandas as pd
import pytest

from dsocr_core.outputs.parity import parity
from dsocr_core.records import OcrRequest, StageTiming, TopTwo
from dsocr_core.stages import INSIDE_PREFILL, Stage
from pages.widgets.compare import tables
from pages.widgets.components.viewer.payload import lone_pairings, pair_values, pairings
from pages.widgets.shared import charts, csv, reading
from tests.support import fabricated_results as fabricated
from tests.support.results import make_result


@pytest.fixture
def results(tmp_path: Path):
    blocks = fabricated.draw_page(tmp_path / "page.png", 600, 800)
    request = OcrRequest(tmp_path / "page.png", "small")
    ours = fabricated.result_of("ours", request, blocks, (600, 800))
    vendor = fabricated.result_of("vendor", request, fabricated.disturbed(blocks), (600, 800))
    return ours, vendor


def test_every_measured_stage_has_a_bar_and_vision_lies_inside_prefill(results) -> None:
    ours, _ = results
    spans = tables.timing_spans([ours]).set_index("stage")
    assert set(spans.index) == {stage.value for stage in Stage}
    prefill = spans.loc["prefill"]
    for stage in INSIDE_PREFILL:
        part = spans.loc[stage]
        assert part["inside"]
        assert part["start_ms"] >= prefill["start_ms"]
        assert part["start_ms"] + part["ms"] <= prefill["start_ms"] + prefill["ms"]
    outer = spans[~spans["inside"].astype(bool)]
    assert outer["ms"].sum() == pytest.approx(ours.total_ms)
    assert (outer["start_ms"] + outer["ms"]).max() == pytest.approx(ours.total_ms)


def test_the_chart_has_fixed_colours_a_fixed_legend_and_an_axis_from_zero(results) -> None:
    for chosen in (list(results), [results[1]], []):
        figure = charts.stage_bars(tables.timing_spans(chosen))
        assert {trace.name: trace.marker.color for trace in figure.data} == charts.STAGE_COLOURS
        assert [trace.name for trace in sorted(figure.data, key=lambda trace: trace.legendrank)] == list(
            Stage
        )
        assert figure.layout.xaxis.rangemode == "tozero"
    figure = charts.stage_bars(tables.timing_spans(list(results)))
    assert figure.layout.xaxis.title.text == "time (s)"
    decode = next(trace for trace in figure.data if trace.name == "decode")
    assert list(decode.x) == pytest.approx([1.042, 6.12])


def test_the_colours_are_the_agreed_ones() -> None:
    assert set(charts.STAGE_COLOURS) == set(Stage)
    assert charts.STAGE_COLOURS[Stage.DECODE] == "#D55E00"
    assert charts.STAGE_COLOURS[Stage.SAM] == "#0072B2"


def test_a_stage_nobody_measured_says_so(results) -> None:
    ours, vendor = results
    table = tables.timing_table(ours, vendor).set_index("stage")
    assert table.loc["tokenizer", "vendor"] == "not measured"
    assert table.loc["prefill › vision_fusion", "ours is"] == "not measured"
    assert table.loc["total", "ours"] == "1.18 s"
    assert table.loc["decode", "ours is"] == "5.87x faster"
    assert list(tables.timing_table(ours, None).columns) == ["stage", "ours"]


def test_tokens_are_marked_where_they_differ(results) -> None:
    ours, vendor = results
    table = tables.token_table(ours, vendor)
    assert len(table) == max(len(ours.token_ids), len(vendor.token_ids))
    report = parity(ours, vendor)
    first = report.first_divergence.index
    assert (table["same"][:first] == "✓").all()
    assert table["same"][first] == "✗"
    assert table["same"].iloc[-1] == "✗"  # the shorter backend has no token there
    near = tables.around(table, first)
    assert first in near.index
    assert len(near) == min(first, 12) + 21


def test_tokens_of_one_backend_and_of_a_backend_that_cannot_tell_texts(results) -> None:
    from dataclasses import replace

    ours, _ = results
    assert "same" not in tables.token_table(ours, None)
    mute = tables.token_table(None, replace(ours, backend="vendor", token_texts=()))
    assert set(mute["vendor text"]) == {"not measured"}
    assert tables.token_table(None, None).empty


def test_the_two_best_of_both_backends() -> None:
    ours = make_result("ab")
    table = tables.best_table({"ours": TopTwo((97, 3), (23.875, 23.75)), "vendor": None}, [ours])
    assert table.to_dict("records") == [
        {"backend": "ours", "chosen": "97 a", "chosen logit": "23.875", "runner-up": "3",
         "runner-up logit": "23.75", "margin": "0.125"},
        {"backend": "vendor", "chosen": "", "chosen logit": "not recorded", "runner-up": "",
         "runner-up logit": "not recorded", "margin": "not recorded"},
    ]  # fmt: skip


def test_inputs_carry_marks(results) -> None:
    report = parity(*results)
    table = tables.input_table(report)
    assert table.set_index("input")["same"]["grid"] == "✓"
    assert table.set_index("input")["same"]["attention"] == "–"
    single = tables.single_input_table(results[0].inputs).set_index("input")["value"]
    assert single["image tokens"] == "111"


def test_the_box_table_follows_reading_order_and_its_csv_is_safe(results) -> None:
    report = parity(*results)
    rows = pairings(report.pairs)
    table = tables.box_table([(row.state, row.a, row.b, row.iou, row.shift_percent) for row in rows])
    assert list(table["state"][:5]) == ["matched", "moved", "relabelled", "only ours", "only vendor"]
    table.loc[0, "ours text"] = "=cmd|' /C calc'!A0"
    back = pd.read_csv(io.BytesIO(csv.box_csv(table)))
    assert back["ours text"][0] == "'=cmd|' /C calc'!A0"
    assert back["IoU"][0] == pytest.approx(1.0)
    assert tables.box_table([]).empty


def test_the_viewer_gets_plain_values(results) -> None:
    import json

    report = parity(*results)
    values = pair_values(pairings(report.pairs))
    assert json.loads(json.dumps(values)) == values
    assert values[3]["vendor"] is None
    assert values[4]["ours"] is None
    lone = pair_values(lone_pairings(reading.boxes_of(results[0]), "ours"))
    assert {value["state"] for value in lone} == {"single"}


def test_very_long_text_is_cut_before_it_is_sent(results) -> None:
    from dataclasses import replace

    box = replace(reading.boxes_of(results[0])[0], text="x" * 100_000)
    assert len(pair_values(lone_pairings([box], "ours"))[0]["ours"]["text"]) == 2000


def test_a_stage_timed_in_pieces_is_one_bar() -> None:
    request = OcrRequest(Path("p.png"))
    result = fabricated.result_of("ours", request, [], (10, 10))
    from dataclasses import replace

    result = replace(result, timings=(StageTiming(Stage.DECODE, 5.0, 3),))
    spans = tables.timing_spans([result])
    assert spans.to_dict("records") == [
        {"backend": "ours", "stage": "decode", "start_ms": 0.0, "ms": 5.0, "inside": False}
    ]
