"""Runs of the history on the FLOPs page, driven without a browser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

from dsocr_core.models.stages import Stage
from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.records import SIDES
from dsocr_core.runs.recorder import RunRecorder
from dsocr_core.runs.store import History
from dsocr_core.settings import Settings
from pages.widgets.shared import resources, sources
from pages.widgets.shared.runner import Runner
from tests.support.fabricated_results import STAGE_MS, FabricatedPipeline, make_samples
from tests.support.opened_page import checked, errors, opened, strips, words

HOSTILE = "<img src=x onerror=alert(1)> ![](http://x/y) 'q' $1$"


class Desk:
    """The page with made-up samples and runs of them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        samples = folder / "samples"
        self.pipeline = FabricatedPipeline(make_samples(samples))
        runner = Runner(lambda settings: self.pipeline)
        monkeypatch.setattr(resources, "runner", lambda: runner)
        monkeypatch.setattr(sources, "SAMPLES", samples)
        self.history = History(folder / "history")
        monkeypatch.setattr(resources, "history", lambda: self.history)

    def run(self, *names: str, page: str | None = None, failed: str = "", **settings: Any) -> str:
        """Make a run of these samples, the vendor failing on one of them; returns its id."""
        chosen = Settings(preset="small", history=str(self.folder / "history"), **settings)
        with RunRecorder(chosen) as recorder:
            for name in names:
                request = chosen.request(self.folder / "samples" / name, name)
                self.pipeline.record(request)
                a, b = (self.pipeline.results[side, request] for side in SIDES)
                comparison = Comparison(request, a, b)
                if name == failed:
                    comparison = replace(comparison, b=None, errors={"b": "killed"})
                recorder.add(page or name, comparison)
        assert recorder.id is not None
        return recorder.id

    def open(self, **address: str) -> AppTest:
        return opened("flops", **({"work": "Run", "view": "Against measured"} | address))


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    st.cache_data.clear()
    return Desk(tmp_path, monkeypatch)


def strip(test: AppTest) -> str:
    (found,) = strips(test)
    return found


def test_a_run_shows_what_it_recorded(desk: Desk) -> None:
    run_id = desk.run("invoice.png", "letter_tall.png")
    for backend in ("eager", "vendor"):
        of_run = desk.open(page="invoice.png", backend=backend)
        assert not of_run.error
        recorded = of_run.dataframe[0].value.set_index("stage")["measured_s"]
        assert recorded["decode"] == pytest.approx(STAGE_MS[backend][Stage.DECODE] / 1000)
    assert desk.open().selectbox(key="flops run").value == run_id


def test_a_link_opens_a_run_and_its_page(desk: Desk) -> None:
    older = desk.run("invoice.png", "letter_tall.png")
    desk.run("receipt_small.png")
    test = desk.open(run=older, page="letter_tall.png", backend="vendor")
    assert "700 x 1,600 px" in strip(test)
    listed = {"view": "Against measured", "run": older, "page": "letter_tall.png", "backend": "vendor"}
    assert test.query_params == listed
    test = checked(test.selectbox(key="flops page").set_value("invoice.png").run())
    assert "900 x 1,200 px" in strip(test) and test.query_params["page"] == "invoice.png"


def test_a_run_that_is_not_here_is_named(desk: Desk) -> None:
    desk.run("invoice.png")
    test = desk.open(run=HOSTILE)
    (error,) = errors(test)
    # An address in it is text: a word joiner keeps it from becoming a link.
    assert "is not there" in error and HOSTILE[:40] in error.replace("\u2060", "")
    assert not test.dataframe


def test_a_history_without_runs_says_what_to_do(desk: Desk) -> None:
    test = desk.open()
    assert "Read a page on Compare" in words(test)
    assert test.button(key="flops compare").label == "Go to Compare"
    assert not test.error


def test_new_runs_wait_for_the_reader(desk: Desk) -> None:
    first = desk.run("invoice.png")
    test = desk.open()
    desk.run("letter_tall.png")
    test = checked(test.run())
    assert test.selectbox(key="flops run").options and len(test.selectbox(key="flops run").options) == 1
    assert test.selectbox(key="flops run").value == first
    checked(test.button(key="history refresh").click().run())
    assert len(test.selectbox(key="flops run").options) == 2


def test_a_page_that_a_backend_did_not_read_offers_another_backend(desk: Desk) -> None:
    desk.run("invoice.png", "letter_tall.png", failed="invoice.png")
    test = desk.open(page="invoice.png", backend="vendor")
    assert errors(test) == ["vendor did not read invoice.png in this run; choose another backend on the left"]
    checked(test.segmented_control(key="flops backend").set_value("eager").run())
    assert not test.error


def test_a_checkpoint_that_is_not_here_leaves_a_choice(desk: Desk) -> None:
    desk.run("invoice.png", checkpoint="/models/away")
    test = desk.open()
    (error,) = errors(test)
    assert "/models/away" in error and "choose another model on the left" in error
    checked(test.selectbox(key="flops run_model").set_value("Published").run())
    assert not test.error and "900 x 1,200 px" in strip(test)
    assert test.query_params["run_model"] == "Published"


def test_a_run_with_foreign_values_is_one_line(desk: Desk) -> None:
    desk.run("invoice.png")
    desk.history.refresh()
    good = desk.history.record(desk.history.run_ids()[0])
    shape = {"page": "p", "backend": "eager", "width": 10, "height": 10, "preset": "small", "new_tokens": 3}
    for name, record, row, said in (
        ("short", good, {"prompt_tokens": 5}, "prompt_tokens is"),
        ("odd", replace(good, dtype="fp8"), {"prompt_tokens": 120}, "dtype is 'fp8'"),
        ("no-preset", good, {"prompt_tokens": 120, "preset": HOSTILE}, "preset"),
        ("no-shape", good, {"width": None}, "does not say what its pages were"),
    ):
        with desk.history.writer(replace(record, id=name)) as run:
            run.add("readings", [shape | row])
        assert said in errors(desk.open(run=name))[0]


def test_a_page_without_times_says_so(desk: Desk) -> None:
    desk.run("invoice.png")
    desk.history.refresh()
    bare = replace(desk.history.record(desk.history.run_ids()[0]), id="bare")
    shape = {"width": 900, "height": 1200, "preset": "small", "prompt_tokens": 114, "new_tokens": 3}
    with desk.history.writer(bare) as run:
        run.add("readings", [{"page": "p", "backend": "eager"} | shape])
    test = desk.open(run="bare", view="Against measured")
    assert "Time of this page: **not measured** in this run." in [item.value for item in test.markdown]
    assert not test.dataframe
