"""One story about a pair: what the strip, Layers, Review, its report and JUnit say do not contradict."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from xml.etree import ElementTree

import pytest
from PIL import Image

from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.parity_records import VERDICT_WORDS, ParityReport
from dsocr_core.reading.trace_records import TensorDifference, TraceSummary
from dsocr_core.review.document import document
from dsocr_core.review.html import html_report
from dsocr_core.review.junit import junit_report
from dsocr_core.review.page import PageReview
from dsocr_core.review.review import open_review
from dsocr_core.runs.recorder import RunRecorder
from dsocr_core.runs.store import History
from dsocr_core.settings import Settings
from dsocr_core.trace.causes import sentence_of
from pages.widgets.compare import verdict
from pages.widgets.review.view import _strip
from pages.widgets.shared import layers_tab
from pages.widgets.shared.runner import PageResults
from pages.widgets.shared.strip import Strip, parity_facts, said
from tests.support.drawn_pairs import drawn_pair

PAIRS = 40


@dataclass(frozen=True)
class Story:
    """All that is said of one page."""

    comparison: Comparison
    strip: Strip
    page: PageReview
    row: dict[str, object]
    html: str
    junit: str

    @property
    def report(self) -> ParityReport | None:
        return self.comparison.report


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Story]]:
    image = tmp_path_factory.mktemp("pages") / "page.png"
    Image.new("RGB", (10, 8), "white").save(image)
    drawn = {f"p{seed:03d}.png": drawn_pair(seed, ("eager", "fast"), image) for seed in range(PAIRS)}
    location = tmp_path_factory.mktemp("history")
    with RunRecorder(Settings(a="eager", b="fast", history=str(location))) as recorder:
        for name, comparison in drawn.items():
            recorder.add(name, comparison)
    with History(location) as history:
        review = open_review(history, str(recorder.id))
        html, suite = html_report(review, worst=0), ElementTree.fromstring(junit_report(review))[0]
        rows = {row["image"]: row for row in document(review)["pages"]}
        cases = {case.get("name"): case.find("properties/property") for case in suite}
        yield [
            Story(
                comparison,
                verdict.strip_of(PageResults(comparison), {"a": "A", "b": "B"}),
                review.page(name),
                rows[name],
                html[html.index(f">{name}<") :].split("</tr>")[0],
                str(cases[name].get("value")),  # type: ignore[union-attr]
            )
            for name, comparison in drawn.items()
        ]


def test_all_give_one_verdict_its_reasons_and_its_figures(stories: list[Story]) -> None:
    assert {story.page.verdict for story in stories} == set(VERDICT_WORDS)
    for story in stories:
        words, shown = VERDICT_WORDS[story.page.verdict], _strip(story.page, "")
        assert story.row["verdict"] == story.page.verdict and words in story.html
        assert story.junit.startswith(words)
        if story.report is None:
            assert story.page.verdict == "not_comparable" and story.strip.tone != "identical"
            continue
        assert (story.strip.word, story.strip.tone) == (shown.word, shown.tone)
        assert story.strip.reasons == said(story.report.reasons, story.report.causes)
        assert story.page.reasons == story.report.reasons == tuple(story.row["reasons"])  # type: ignore[arg-type]
        figures = set(parity_facts(story.report))
        assert figures <= set(story.strip.facts) and figures <= set(shown.facts)


def summary_of(steps: int, differs_at: int | None) -> TraceSummary:
    rows = tuple(
        TensorDifference(
            "decoder.layer5.out", call, 0, 100, 0.3 * (call == differs_at), 4 * (call == differs_at), 0, None,
            "bfloat16", "bfloat16",
        )
        for call in range(steps + 1)
    )  # fmt: skip
    first = next((row for row in rows if row.differs), None)
    return TraceSummary(
        "p", "eager", "fast", steps, rows, first, (), sentence_of(first, (), len(rows), steps)
    )


def test_layers_never_call_a_pair_equal_beyond_the_steps_they_looked_at(stories: list[Story]) -> None:
    """As far as the diverging token, as the tab asks for, and less far."""
    for story in stories:
        divergence = story.report.first_divergence if story.report else None
        for steps in {8, min(divergence.index, 40) if divergence else 8}:
            none = layers_tab._strip(summary_of(steps, None), "")
            assert "dsocr-none" in none and f"NONE IN {steps} STEP" in none
            assert "identical" not in none.lower() and "Equal" not in none and f"{steps} decode step" in none
            first = layers_tab._strip(summary_of(steps, steps), "")
            assert "FIRST DEVIATION" in first and "NONE IN" not in first
