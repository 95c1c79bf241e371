"""The tab Why: when a cause can be looked for, the search as a job, and what is shown of its answer."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from streamlit.testing.v1 import AppTest

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.models.family import FIRST
from dsocr_core.models.hypotheses import ngram_hypothesis
from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.parity_records import input_line
from dsocr_core.reading.records import ModelInputs
from dsocr_core.settings import Settings
from dsocr_core.trace.why.match import Match
from dsocr_core.trace.why.reader import Reading
from dsocr_core.trace.why.run import PageAnswer
from dsocr_core.trace.why.search import Exclusion, Finding, Trial
from pages.widgets.compare import cause_tab
from pages.widgets.shared import resources, sources
from pages.widgets.shared.runner import Runner
from tests.support.fabricated_results import FabricatedPipeline, make_samples
from tests.support.opened_page import checked, opened, words
from tests.support.paths import SAMPLES
from tests.support.sessions import session_of

HOSTILE = "<script>alert(1)</script> ![x](http://evil)"


def answer(explained: bool = True) -> PageAnswer:
    by_name = {each.name: each for each in FIRST.hypotheses}
    far, near = (by_name["roles"],), (by_name["no-newline"], ngram_hypothesis(30, 90))
    nearest = Match(True, 1200, 1200, 0.0) if explained else Match(False, 80, 1200, 0.25)
    finding = Finding("page.png", Reading((1,), "x", "eos", inputs()), Match(False, 10, 1200, 0.5))
    finding.trials = [
        Trial(far, Match(False, 3, 1200, 0.75), 2.0, prefilled=True),
        Trial(near, nearest, 0.5, prefilled=False),
    ]
    finding.exclusions = [Exclusion(by_name["no-exif"], f"the page has no EXIF {HOSTILE}")]
    finding.cause, finding.nearest = (finding.trials[1], None) if explained else (None, finding.trials[1])
    facts = (input_line("prompt", "<image>\nFree OCR.", None), input_line("dtype", "float32", "float16"))
    return PageAnswer("page.png", "vendor", facts, finding)


def inputs() -> ModelInputs:
    return ModelInputs.__new__(ModelInputs)  # nothing here reads it


def result_pair(tmp_path: Path, a: str = "one", b: str = "two") -> tuple[Comparison, Any]:
    from dataclasses import replace

    pipeline = FabricatedPipeline(make_samples(tmp_path))
    request = Settings(preset="small").request(tmp_path / "invoice.png", "invoice.png")
    sides = {side: pipeline.result(side, request) for side in ("a", "b")}
    return Comparison(request, replace(sides["a"], text_raw=a), replace(sides["b"], text_raw=b)), request


def test_a_search_is_offered_where_texts_differ_and_a_is_ours(tmp_path: Path) -> None:
    comparison, request = result_pair(tmp_path)
    assert cause_tab.why_not(Settings(), comparison) == ""
    assert "nothing to explain" in cause_tab.why_not(Settings(), result_pair(tmp_path, "x", "x")[0])
    assert "Run both" in cause_tab.why_not(Settings(), Comparison(request, comparison.a, None))
    assert "eager or fast" in cause_tab.why_not(Settings(a="vendor", b="eager"), comparison)


def test_a_job_tells_its_run_and_keeps_its_answer(tmp_path: Path) -> None:
    comparison, request = result_pair(tmp_path)
    b, begun, go = comparison.b, threading.Event(), threading.Event()
    assert b is not None

    def find(settings, request, other, runs, job) -> PageAnswer:
        assert (other, runs) == (b, 7)
        job.say("Run 3 of at most 7: at most 6 tiles", 3 / 7)
        begun.set()
        go.wait(60)
        return answer()

    job = cause_tab.cause_job(Settings(), request, b, 7, find)
    job.start()
    assert begun.wait(60)
    view = job.view()
    assert (view.state, view.words, view.done) == ("running", "Run 3 of at most 7: at most 6 tiles", 3 / 7)
    about = cause_tab.about
    assert job.result is None and job.about == about(Settings(), request, b)
    assert job.about != about(Settings(preset="tiny", a="eager"), request, b)
    again = result_pair(tmp_path, b="another text")[0].b
    assert again is not None and job.about != about(Settings(), request, again)
    go.set()
    job.join(60)
    assert job.view().state == "done" and job.result is not None


def test_a_cancelled_and_a_failed_search_say_so(tmp_path: Path) -> None:
    comparison, request = result_pair(tmp_path)
    assert comparison.b is not None

    def waits(settings, request, other, runs, job) -> PageAnswer:
        assert job.token.wait(60)
        raise Cancelled

    def fails(*_: object) -> PageAnswer:
        raise DsocrError("no memory for float16")

    cancelled = cause_tab.cause_job(Settings(), request, comparison.b, 1, waits)
    cancelled.start()
    cancelled.cancel()
    cancelled.join(60)
    assert cancelled.view().state == "cancelled" and cancelled.result is None
    failed = cause_tab.cause_job(Settings(), request, comparison.b, 1, fails)
    failed.start()
    failed.join(60)
    assert (failed.view().state, failed.view().error) == ("failed", "no memory for float16")


def test_the_nearest_comes_first_in_the_table() -> None:
    table = cause_tab.trials_table(answer(explained=False).finding)
    assert list(table["first characters equal"]) == ["80 of 1,200", "3 of 1,200"]
    assert list(table["CER"]) == [0.25, 0.75]
    assert list(cause_tab.trials_table(answer().finding)["first characters equal"]) == ["all", "3 of 1,200"]


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """Compare on a page whose texts differ."""
    samples = tmp_path / "samples"
    pipeline = FabricatedPipeline(make_samples(samples), differ=lambda name: name.startswith("letter"))
    for name in ("letter_tall.png", "invoice.png"):
        pipeline.record(Settings(preset="small").request(samples / name, name))
    runner = Runner(lambda settings: pipeline)
    monkeypatch.setattr(sources, "SAMPLES", samples)
    monkeypatch.setattr(resources, "runner", lambda: runner)
    monkeypatch.delenv("DSOCR_CONFIG", raising=False)
    return opened("compare", page="letter_tall", preset="small")


@pytest.mark.parametrize("explained", [True, False])
def test_the_button_at_the_head_leads_to_the_search_and_its_answer(
    page: AppTest, monkeypatch: pytest.MonkeyPatch, explained: bool
) -> None:
    monkeypatch.setattr(cause_tab, "search", lambda *_: answer(explained))
    checked(page.button(key="ask why").click().run())
    assert page.session_state["compare tab"] == cause_tab.TAB
    checked(page.button(key="find cause").click().run())
    page.session_state["cause job"].join(60)
    checked(page.run())
    text = words(page)
    assert ("CAUSE NOT FOUND" in text) is not explained
    sentence = "B is reproduced exactly with no newline after <image> and n-gram 30, window 90"
    assert (sentence in text) is explained
    assert "2 runs of A, the nearest to B first" in text
    assert len(page.dataframe) == 3  # tried, excluded, facts
    assert any("dsocr_core why" in code.value and "--b vendor" in code.value for code in page.code)


def test_equal_texts_have_no_button(page: AppTest) -> None:
    equal = opened("compare", page="invoice", preset="small", tab=cause_tab.TAB)
    assert [button for button in equal.button if button.key in ("ask why", "find cause")] == []
    assert "nothing to explain" in words(equal)


def test_the_search_reads_the_page_with_other_settings_of_a(tmp_path: Path) -> None:
    """B is our engine with roles around the prompt, as chat servers write them."""
    settings = Settings(preset="tiny", device="cpu", b={"spec": "eager", "infer.template": "roles"})
    request = settings.request(SAMPLES / "06-small-ticket.png", "06-small-ticket.png")
    with closing(session_of(settings, tmp_path)) as session:
        b = session.compare(request, ["b"]).b
    assert b is not None
    job = cause_tab.cause_job(settings, request, b, 60, cause_tab.search)
    job.start()
    job.join(300)
    assert job.result is not None, job.view().error
    said = "B is reproduced exactly with role markers around the prompt"
    assert job.result.finding.sentence == said and job.view().words.startswith("Run ")
