"""The verdict strip and the progress lines: our words, their values escaped."""

from dataclasses import replace
from pathlib import Path

import pytest

from dsocr_core.outputs.comparison import Comparison
from dsocr_core.records import OcrRequest
from dsocr_core.stages import Stage
from pages.widgets.compare.progress import backend_line, headline
from pages.widgets.compare.verdict import Strip, strip_html, strip_of
from pages.widgets.shared import reading
from pages.widgets.shared.run_job import BackendView, JobView, StageView
from pages.widgets.shared.runner import Known
from tests.support import fabricated_results as fabricated


@pytest.fixture
def comparison(tmp_path: Path) -> Comparison:
    blocks = fabricated.draw_page(tmp_path / "page.png", 600, 800)
    request = OcrRequest(tmp_path / "page.png", "small")
    ours = fabricated.result_of("ours", request, blocks, (600, 800))
    return Comparison(request, ours, fabricated.result_of("vendor", request, blocks, (600, 800)))


def test_agreement_passes_with_its_numbers(comparison: Comparison) -> None:
    strip = strip_of(Known(comparison))
    count = comparison.report.boxes_a
    assert (strip.word, strip.tone, strip.recorded) == ("PASS", "pass", "")
    assert dict(strip.facts) == {
        "boxes": f"{count} = {count}", "largest shift": "0 %", "CER": "0 %", "first divergence": "none",
        "inputs": "equal", "ours": "1.18 s", "vendor": "6.32 s", "ours is": "5.37x faster",
    }  # fmt: skip


def test_disagreement_fails_and_says_why(comparison: Comparison) -> None:
    blocks = [
        (box.label, (box.x1, box.y1, box.x2, box.y2), box.text) for box in reading.boxes_of(comparison.a)
    ]
    vendor = fabricated.result_of("vendor", comparison.request, fabricated.disturbed(blocks), (600, 800))
    strip = strip_of(Known(replace(comparison, b=vendor)))
    assert (strip.word, strip.tone) == ("FAIL", "fail")
    assert strip.reasons


@pytest.mark.parametrize(
    ("recorded", "words"),
    [
        (("ours", "vendor"), "recorded 2026-11-21 09:30 UTC"),
        (("vendor",), "vendor recorded 2026-11-21 09:30 UTC"),
        ((), ""),
    ],
)
def test_recorded_results_are_marked(comparison, recorded, words: str) -> None:
    known = Known(comparison, recorded, "2026-11-21T09:30:00+00:00" if recorded else "")
    assert strip_of(known).recorded == words


def test_no_evidence_is_neutral(comparison: Comparison) -> None:
    assert strip_of(Known()).tone == "none"
    assert strip_of(Known(cancelled=True)).word == "CANCELLED"
    alone = strip_of(Known(replace(comparison, b=None)))
    assert (alone.word, alone.tone) == ("NO VERDICT", "none")
    assert alone.facts[0][1] == "only ours has a result; run both to compare"


def test_values_are_escaped() -> None:
    assert "<b>x</b>" not in strip_html(Strip("PASS", "pass", (("<b>x</b>", "<b>x</b>"),), "<b>x</b>"))
    backend = BackendView("vendor", "waiting", 0.0, (), "", 0, waiting_for="<b>x</b>.png")
    assert "<b>x</b>" not in backend_line(backend)


def test_progress_names_the_running_stage_with_its_time() -> None:
    stages = (StageView(Stage.PREFILL, 118.0, False), StageView(Stage.DECODE, 1042.0, True))
    line = backend_line(BackendView("ours", "running", 1.3, stages, "text", 1234))
    assert "prefill <b>118 ms</b>" in line
    assert "dsocr-now" in line.split("prefill")[1]
    assert "1,234 characters" in line


def test_the_headline_says_who_is_waited_for() -> None:
    waiting = BackendView("ours", "waiting", 0.0, (), "", 0, waiting_for="vendor on other.png")
    assert (
        headline(JobView("running", 2.0, False, (waiting,)), "page.png") == "Waiting for vendor on other.png"
    )
    assert headline(JobView("running", 2.0, True, (waiting,)), "page.png") == "Cancelling page.png…"
    assert headline(JobView("running", 2.0, False, ()), "page.png") == "Reading page.png, 2.00 s"
