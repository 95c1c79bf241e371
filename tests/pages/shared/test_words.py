"""The verdict strip and the progress lines: our words, their values escaped."""

from dataclasses import replace
from pathlib import Path

import pytest

from dsocr_core.models.stages import Stage
from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.records import OcrRequest
from dsocr_core.settings import Settings
from pages.widgets.compare.progress import headline, side_line
from pages.widgets.compare.verdict import strip_of
from pages.widgets.shared.job import JobView
from pages.widgets.shared.labels import side_labels
from pages.widgets.shared.run_job import SideView, StageView
from pages.widgets.shared.runner import PageResults
from tests.support import fabricated_results as fabricated

LABELS = side_labels(Settings())


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    blocks = fabricated.draw_page(tmp_path / "page.png", 600, 800)
    request = OcrRequest(tmp_path / "page.png", "small")
    a = fabricated.result_of("eager", request, blocks, (600, 800))
    return Comparison(request, a, fabricated.result_of("vendor", request, blocks, (600, 800)))


def test_equal_results_are_identical_with_their_figures(comparison: Comparison) -> None:
    strip = strip_of(PageResults(comparison), LABELS)
    count = comparison.report.boxes_a
    assert (strip.word, strip.tone, strip.note) == ("IDENTICAL", "identical", "")
    assert dict(strip.facts) == {
        "boxes": f"{count} = {count}", "largest shift": "0 %", "CER": "0 %", "first divergence": "none",
        "inputs": "equal", "A": "1.18 s (n = 1)", "B": "6.32 s (n = 1)",
    }  # fmt: skip


def test_different_results_differ_and_say_why(comparison: Comparison) -> None:
    blocks = [(box.label, (box.x1, box.y1, box.x2, box.y2), box.text) for box in comparison.a.boxes]
    vendor = fabricated.result_of("vendor", comparison.request, fabricated.disturbed(blocks), (600, 800))
    strip = strip_of(PageResults(replace(comparison, b=vendor)), LABELS)
    assert (strip.word, strip.tone) == ("DIFFERS", "differs")
    assert strip.reasons


@pytest.mark.parametrize(
    ("recorded", "words"),
    [(("a", "b"), "recorded 2026-11-21 09:30 UTC"), (("b",), "B recorded 2026-11-21 09:30 UTC"), ((), "")],
)
def test_recorded_results_are_marked(comparison, recorded, words: str) -> None:
    found = PageResults(comparison, recorded, "2026-11-21T09:30:00+00:00" if recorded else "")
    assert strip_of(found, LABELS).note == words


def test_without_two_results_there_is_no_evidence(comparison: Comparison) -> None:
    assert strip_of(PageResults(), LABELS).tone == "none"
    assert strip_of(PageResults(cancelled=True), LABELS).word == "CANCELLED"
    alone = strip_of(PageResults(replace(comparison, b=None)), LABELS)
    assert (alone.word, alone.tone) == ("NO EVIDENCE", "none")
    assert alone.facts[0][1] == "only A: eager, ours has a result; run both to compare"


def test_progress_names_the_running_stage_with_its_time() -> None:
    stages = (StageView(Stage.PREFILL, 118.0, False), StageView(Stage.DECODE, 1042.0, True))
    line = side_line(SideView("a", "running", 1.3, stages, "text", 1234), LABELS["a"])
    assert "prefill <b>118 ms</b>" in line
    assert "dsocr-now" in line.split("prefill")[1]
    assert "1,234 characters" in line


def test_the_headline_says_who_is_waited_for() -> None:
    waiting = SideView("a", "waiting", 0.0, (), "", 0, waiting_for="vendor on other.png")
    assert (
        headline(JobView("running", 2.0, False), (waiting,), "page.png") == "Waiting for vendor on other.png"
    )
    assert headline(JobView("running", 2.0, True), (waiting,), "page.png") == "Cancelling page.png…"
    assert headline(JobView("running", 2.0, False), (), "page.png") == "Reading page.png, 2.00 s"
