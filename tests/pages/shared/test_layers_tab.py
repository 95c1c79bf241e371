"""The figure and the tables of a trace, on made-up figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import streamlit as st

from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.reading.records import OcrRequest
from dsocr_core.reading.trace_records import TraceSummary
from dsocr_core.runs.history import SEED_LOCATION, History
from dsocr_core.settings import Settings
from dsocr_core.trace import run
from dsocr_core.trace.recorder import record_trace
from dsocr_core.trace.run import TracePlan
from pages.widgets.shared import resources
from pages.widgets.shared.app_session import AppSession
from pages.widgets.shared.runner import Runner
from pages.widgets.shared.trace_charts import trace_figure
from tests.support.made_up_trace import FOUND
from tests.support.opened_page import bodies, checked, opened

BLOCKS = ["sam.out", "clip.block0", "decoder.layer0", "logits"]


def test_the_heat_map_has_a_cell_for_every_block_and_step() -> None:
    figure = trace_figure(FOUND)
    equal, amounts = figure.data[:2]
    assert list(figure.layout.yaxis.ticktext) == BLOCKS
    assert [list(row) for row in equal.z] == [[0.0, None], [None, None], [None, 0.0], [None, None]]
    drawn = [[None if value is None else round(value, 2) for value in row] for row in amounts.z]
    assert drawn == [[None, None], [-2.7, None], [-2.4, None], [-2.0, -2.3]]  # logarithms of what blocks give
    assert "takes error 0, gives 0.00200 of A's std" in amounts.customdata[1][0]
    assert "50.0 % of what it gives differs, at most 3 ULP" in amounts.customdata[1][0]


def test_the_first_difference_is_marked_in_its_cell() -> None:
    figure = trace_figure(FOUND)
    (mark,) = figure.layout.shapes
    assert (mark.x0, mark.x1, mark.y0, mark.y1) == (-0.5, 0.5, 0.5, 1.5)
    assert figure.layout.annotations[0].text == "first: clip.block0 fc2"


def test_review_shows_the_recorded_trace_of_its_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def record(page: str, sentence: str, **others: str) -> None:
        settings = Settings(history=str(tmp_path), **others)  # type: ignore[arg-type]
        request = settings.request(PROJECT_ROOT / f"data/samples/{page}.png")
        record_trace(settings, request, TracePlan(), replace(FOUND, sentence=sentence))

    record("06-small-ticket", "A sentence.")
    record("06-small-ticket", "Another sentence.", preset="tiny")  # newer, and no trace of these readings
    record("02-invoice", "Of others.", preset="tiny", dtype="bfloat16", prompt="free_ocr")
    with History(tmp_path, SEED_LOCATION) as made:
        monkeypatch.setattr(resources, "history", lambda: made)
        page = opened("review", page="06-small-ticket.png", tab="Layers")
        assert any("A sentence." in html.proto.body for html in page.get("html"))
        assert len(page.get("plotly_chart")) == 1 and not page.warning
        (chosen,) = [box for box in page.selectbox if box.label == "Trace"]
        assert [option.endswith("other settings") for option in chosen.options] == [False, True]
        (warning,) = opened("review", page="02-invoice.png", tab="Layers").warning
        assert (
            "preset tiny, here small; dtype bfloat16, here float32; prompt free_ocr, here markdown."
            in warning.value.replace("\\", "")
        )
        other = opened("review", page="01-letter.png", tab="Layers")
        assert any("No trace of this page is recorded" in caption.value for caption in other.caption)
        resources.prefetcher().submit(int).result()
        st.cache_resource.clear()


def test_the_button_on_compare_traces_the_page_and_the_history_keeps_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, TracePlan]] = []

    def trace(settings: Settings, request: OcrRequest, plan: TracePlan, *_: object) -> TraceSummary:
        asked.append((request.name, plan))
        return FOUND

    monkeypatch.setattr(run, "trace_page", trace)
    runner = Runner(AppSession)
    monkeypatch.setattr(resources, "runner", lambda: runner)
    monkeypatch.setattr(resources, "base_settings", lambda: Settings(history=str(tmp_path), device="cpu"))
    link = {"page": "06-small-ticket", "tab": "Layers"}
    with History(tmp_path) as made:
        monkeypatch.setattr(resources, "history", lambda: made)
        page = opened("compare", **link)
        assert any("No trace of this page is recorded" in caption.value for caption in page.caption)
        checked(page.button(key="find first").click().run())
        page.session_state["trace job"].join(60)
        checked(page.run())
        assert asked == [("06-small-ticket.png", TracePlan("eager", "vendor", 8))]
        for shown, when in ((page, "traced just now"), (opened("compare", **link), "recorded 20")):
            (strip,) = [body for body in bodies(shown) if "FIRST DEVIATION" in body]
            assert FOUND.sentence in strip and when in strip
            assert len(shown.get("plotly_chart")) == 1 and len(shown.dataframe) == 1
