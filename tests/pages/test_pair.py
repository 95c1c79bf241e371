"""A pair as Compare and Review show it: the sentence, rows, tables, the archive, traces."""

from __future__ import annotations

import io
import json
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import streamlit as st
from PIL import Image

from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.parity_records import InputLine
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.reading.trace_records import Cause, TensorDifference, TraceSummary
from dsocr_core.runs.history import SEED_LOCATION, History
from dsocr_core.runs.labels import run_labels
from dsocr_core.settings import Settings
from dsocr_core.trace.recorder import record_trace
from dsocr_core.trace.run import TracePlan
from pages.widgets.compare import files
from pages.widgets.pair import layers, tabs
from pages.widgets.pair.answer import answer
from pages.widgets.pair.shown import PairView, TrueBlock, rows_of, truth_of
from pages.widgets.shared import resources
from pages.widgets.shared.table import csv_of
from tests.support import fabricated_results as fabricated
from tests.support.opened_page import opened, words
from tests.support.results import make_result

NAMES = {"a": "A", "b": "B"}
BLOCK = "<|ref|>text<|/ref|><|det|>[[0, {}, 900, {}]]<|/det|>\n{}"
TRUE = (TrueBlock((0, 0, 900, 99), "Open at 21:30"), TrueBlock((0, 200, 900, 299), "# Head"))


def view(comparison: Comparison, truth: tuple[TrueBlock, ...] = ()) -> PairView:
    return PairView(comparison, NAMES, rows_of(comparison), None, lambda _: None, truth=truth)


def read(*texts: str, backend: str = "eager", **inputs: str) -> OcrResult:
    blocks = (BLOCK.format(200 * at, 200 * at + 99, text) for at, text in enumerate(texts))
    return make_result("\n".join(blocks), backend, image_size=(1000, 1000), **inputs)


def pair(a: OcrResult, b: OcrResult) -> Comparison:
    return Comparison(a.request, a, replace(b, backend="vendor"))


# --- the sentence ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "truth", "said"),
    [
        (read("same"), read("same"), (), "Both read the same."),
        (read("same", dtype="bfloat16"), read("same", dtype="float32"), (), "The settings differ: dtype"),
        (read("At 21-30. Go"), read("At 21:30. Go"), (), "A reads 21-30, B 21:30."),
        (read("# Alpha"), read("# Beta"), (), "A reads Alpha, B Beta."),
        (read("At ten to 8"), read("At half past 8"), (), "A reads “ten to”, B “half past”."),
        (read("Open at 21-30"), read("Open at 21:30"), TRUE, "The page says 21:30: B is right."),
        (read("Opem at 21:30"), read("Opem at 21-30"), TRUE, "The page says 21:30: A is right."),
        (read("Open at 21/30"), read("Open at 21-30"), TRUE, "Neither is what the page says."),
        (read("one", "two", "three"), read("one"), (), "2 boxes are only in A: box 2 (text)"),
        (read("one 1", "two 2"), read("one 7", "two 8"), (), "A reads 1, B 7. 1 more difference."),
        (
            read("1", dtype="bfloat16"), read("7", dtype="float32"), (),
            "Likely cause: the number types differ: bfloat16 and float32.",
        ),
    ],
)  # fmt: skip
def test_the_sentence_says_what_differs_who_is_right_and_why(
    a: OcrResult, b: OcrResult, truth: tuple[TrueBlock, ...], said: str
) -> None:
    assert said in answer(view(pair(a, b), truth))


def test_the_page_says_its_text_without_the_mark_of_a_heading_and_only_a_sample_is_known() -> None:
    block = TrueBlock((0, 0, 9, 9), "Head")
    assert block.says("# Head") and not block.says("Heads")
    assert truth_of(PROJECT_ROOT / "data" / "samples" / "03-tall-notice.png")
    assert not truth_of(PROJECT_ROOT / "docs" / "03-tall-notice.png")


# --- rows and tables ------------------------------------------------------------------------------


@pytest.fixture
def results(tmp_path: Path) -> tuple[OcrResult, OcrResult]:
    blocks = fabricated.draw_page(tmp_path / "page.png", 600, 800)
    blocks[1] = ("image", *blocks[1][1:])
    request = OcrRequest(tmp_path / "page.png", "small")
    a = fabricated.result_of("eager", request, blocks, (600, 800))
    return a, fabricated.result_of("vendor", request, fabricated.disturbed(blocks), (600, 800))


def test_blocks_follow_reading_order_and_their_csv_is_safe(results: tuple[OcrResult, OcrResult]) -> None:
    table = tabs.block_table(view(pair(*results)))
    assert list(table["status"][:5]) == ["matched", "moved", "relabelled", "only A", "only B"]
    assert list(tabs.block_table(view(pair(read("one"), read("two"))))["status"]) == ["text differs"]
    table.loc[0, "A text"] = "=cmd|' /C calc'!A0"
    back = pd.read_csv(io.BytesIO(csv_of(table)))
    assert back["A text"][0] == "'=cmd|' /C calc'!A0" and back["IoU"][0] == pytest.approx(1.0)
    lines = (InputLine("prompt", "a", "b"), InputLine("grid", None, "1, 1"), InputLine("dtype", "x", "x"))
    assert tabs.input_table(lines)["same"].tolist() == ["✗", "?", "✓"]


# --- the archive ----------------------------------------------------------------------------------


def test_the_archive_has_both_sides_files_with_the_crops(results: tuple[OcrResult, OcrResult]) -> None:
    comparison = pair(*results)
    with zipfile.ZipFile(io.BytesIO(files.archive(view(comparison)))) as archive:
        assert archive.testzip() is None
        for side in ("a-eager", "b-vendor"):
            assert {f"{side}/images/0.jpg", f"{side}/info.json"} <= {*archive.namelist()}
        assert json.loads(archive.read("parity.json"))["verdict"] == "differs"
        with Image.open(io.BytesIO(archive.read("a-eager/result_with_boxes.jpg"))) as picture:
            assert picture.size == (600, 800)
        assert archive.read("boxes.csv").decode().startswith("#,status,label,")


# --- layers ---------------------------------------------------------------------------------------


def output(name: str, call: int = 0, error: float = 0.0, view: int = 0) -> TensorDifference:
    share, ulp = (0.5, 3) if error else (0.0, 0)
    return TensorDifference(name, call, view, 100, share, ulp, 2 * error, error, "bfloat16", "bfloat16")


ROWS = (
    output("sam.out"), output("sam.out", view=1), output("clip.block0.fc2", error=1e-3),
    output("clip.block0.out", error=2e-3), output("decoder.layer0.out", error=4e-3),
    output("logits", error=1e-2), output("decoder.layer0.out", 1), output("logits", 1, error=5e-3),
)  # fmt: skip
CAUSES = (Cause("rounding", ROWS[2].name, "rounding order, not weights"),)
FOUND = TraceSummary("page.png", "eager", "vendor", 1, ROWS, ROWS[2], CAUSES, "A sentence.")


def test_the_heat_map_has_a_cell_for_every_block_and_step_and_marks_the_first_difference() -> None:
    figure = layers.heat_map(FOUND)
    equal, amounts = figure.data
    assert list(figure.layout.yaxis.ticktext) == ["sam.out", "clip.block0", "decoder.layer0", "logits"]
    assert [list(row) for row in equal.z] == [[0.0, None], [None, None], [None, 0.0], [None, None]]
    drawn = [[None if value is None else round(value, 2) for value in row] for row in amounts.z]
    assert drawn == [[None, None], [-2.7, None], [-2.4, None], [-2.0, -2.3]]  # logarithms of the errors
    assert "error 0.00200 of A's std, at most 3 ULP" in amounts.customdata[1][0]
    (mark,) = figure.layout.shapes
    assert (mark.x0, mark.x1, mark.y0, mark.y1) == (-0.5, 0.5, 0.5, 1.5)


def test_review_shows_the_newest_trace_of_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(history=str(tmp_path), device="cpu")
    request = settings.request(PROJECT_ROOT / "data/samples/06-small-ticket.png")
    for sentence in ("A sentence.", "Another sentence."):
        record_trace(settings, request, TracePlan(), replace(FOUND, sentence=sentence))
    with History(tmp_path, SEED_LOCATION) as made:
        # D18: on Runs it had no device.
        names = run_labels(made.runs(limit=2)).values()
        assert all("trace of eager and vendor on cpu" in name for name in names)
        monkeypatch.setattr(resources, "history", lambda: made)
        page = opened("review", page="06-small-ticket.png", tab="Cause")
        assert "Another sentence" in words(page) and len(page.get("plotly_chart")) == 1
        assert re.search(r"recorded [-\d :UTC]+ with preset \w+, \w+, cpu\.", words(page)), words(page)
        other = opened("review", page="01-letter.png", tab="Cause")
        assert "No trace of this page is recorded" in words(other)
        resources.prefetcher().submit(int).result()
        st.cache_resource.clear()
