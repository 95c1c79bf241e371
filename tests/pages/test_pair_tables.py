"""Tables of the tabs, from hand-made results."""

import io
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from dsocr_core.reading.markup import Box
from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.parity_records import BoxPair, input_line
from dsocr_core.reading.records import OcrRequest, TopTwo
from pages.widgets.pair import tables
from pages.widgets.pair.shown import lone_pairings, pairings
from pages.widgets.pair.viewer import pair_values
from pages.widgets.shared.strip import parity_facts
from pages.widgets.shared.table import csv_of
from tests.support import fabricated_results as fabricated
from tests.support.results import make_result


@pytest.fixture
def results(tmp_path: Path):
    blocks = fabricated.draw_page(tmp_path / "page.png", 600, 800)
    request = OcrRequest(tmp_path / "page.png", "small")
    a = fabricated.result_of("eager", request, blocks, (600, 800))
    b = fabricated.result_of("vendor", request, fabricated.disturbed(blocks), (600, 800))
    return a, b


def test_tokens_are_marked_where_they_differ(results) -> None:
    a, b = results
    table = tables.token_table({"a": a, "b": b})
    assert len(table) == max(len(a.token_ids), len(b.token_ids))
    report = compare_results(a, b)
    first = report.first_divergence.index
    assert (table["same"][:first] == "✓").all()
    assert table["same"][first] == "✗"
    assert table["same"].iloc[-1] == "✗"  # the shorter side has no token there


def test_margins_stand_beside_the_tokens_of_the_side_that_recorded_logits() -> None:
    a = replace(make_result("ab"), top_two=(TopTwo((97, 3), (9.5, 9.25)),))
    table = tables.token_table({"a": a, "b": make_result("ab", "vendor")})
    assert table["A margin"][0] == 0.25 and table["A margin"].isna().tolist() == [False, True]
    assert table["A ULP (float32)"][0] == 0.25 / (2**3 / 2**23)  # float32 between 8 and 16
    assert "B margin" not in table


def test_margins_of_both_sides_add_up_to_the_ulp_of_a_divergence() -> None:
    """F26: 1.15 ULP stood over a table of 1.00 and 9,593, each in its own side's type."""
    a = replace(make_result("ab", dtype="bfloat16"), top_two=(TopTwo((97, 98), (9.5, 9.4375)),))
    b = replace(make_result("bb", "vendor", dtype="float32"), top_two=(TopTwo((98, 97), (9.5, 9.49)),))
    margins = compare_results(a, b).first_divergence.margins
    row = tables.token_table({"a": a, "b": b}).iloc[0]
    assert row["A ULP (bfloat16)"] + row["B ULP (bfloat16)"] == pytest.approx(margins.ulps)


def test_an_input_that_a_side_does_not_know_is_neither_equal_nor_different() -> None:
    lines = (input_line("prompt", "a", "b"), input_line("grid", None, "1, 1"), input_line("dtype", "x", "x"))
    table = tables.input_table(lines)
    assert table["same"].tolist() == ["✗", "?", "✓"]
    assert table["A"].tolist() == ["a", "not known", "x"]


def test_results_without_tokens_inputs_and_times_say_not_known(results) -> None:
    a, b = results
    bare = replace(a, token_ids=None, token_texts=(), inputs=None, finish_reason=None, timings=())
    table = tables.token_table({"a": bare, "b": b})
    assert "same" not in table
    assert table["A id"].isna().all()
    assert tables.timing_spans({"a": bare}).empty
    facts = dict(parity_facts(compare_results(bare, b)))
    assert (facts["first divergence"], facts["inputs"]) == ("not known", "not known")


def test_the_box_table_follows_reading_order_and_its_csv_is_safe(results) -> None:
    report = compare_results(*results)
    rows = pairings(report.pairs)
    table = tables.box_table(rows)
    assert list(table["state"][:5]) == ["matched", "moved", "relabelled", "only A", "only B"]
    table.loc[0, "A text"] = "=cmd|' /C calc'!A0"
    back = pd.read_csv(io.BytesIO(csv_of(table)))
    assert back["A text"][0] == "'=cmd|' /C calc'!A0"
    assert back["IoU"][0] == pytest.approx(1.0)
    assert tables.box_table([]).empty


def test_boxes_that_match_but_hold_another_text_are_differences() -> None:
    def box(index: int, text: str) -> Box:
        return Box(index, "text", 0, 0, 10, 10, text, (0, 0, 9, 9))

    rows = pairings([
        BoxPair("matched", box(0, "340 g"), box(0, "340 a,"), 1.0, 0.0),
        BoxPair("matched", box(1, "same "), box(1, "same"), 1.0, 0.0),
        BoxPair("moved", box(2, "a word"), box(2, "a ward"), 0.5, 9.0),
        BoxPair("only_a", box(3, "alone"), None, None, None),
    ])  # fmt: skip
    assert list(tables.box_table(rows)["state"]) == ["text differs", "matched", "moved", "only A"]
    values = pair_values(rows, {0, 2, 3})
    assert [value["differs"] for value in values] == [True, False, True, True]
    assert [value.get("changes") for value in values] == [["g -> a,"], None, ["word -> ward"], None]
    assert values[0]["runs"] == {
        "a": [["340 ", "same"], ["g", "letter"]], "b": [["340 ", "same"], ["a,", "letter"]],
    }  # fmt: skip


def test_very_long_text_is_cut_before_it_is_sent(results) -> None:
    box = replace(results[0].boxes[0], text="x" * 100_000)
    assert len(pair_values(lone_pairings([box], "a"))[0]["a"]["text"]) == 20_000
    assert sum(len(value["a"]["text"]) for value in pair_values(lone_pairings([box] * 4000, "a"))) == 400_000
