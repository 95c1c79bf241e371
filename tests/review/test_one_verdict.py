"""One saved run, judged by whatever judges: every verdict and every reason is the one that `compare` gave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image

from dsocr_core.base.sanitise import encodable
from dsocr_core.cluster.compare import ShardOf, comparisons
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.pages import PageRef
from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.parity_records import VERDICT_WORDS, Tolerance
from dsocr_core.reading.records import Side
from dsocr_core.review.document import document
from dsocr_core.review.html import html_report
from dsocr_core.review.junit import junit_report, xml_text
from dsocr_core.review.review import Review, open_review
from dsocr_core.runs.recorder import RunRecorder
from dsocr_core.runs.results import pair, results
from dsocr_core.runs.sharded import Marker, PageReading
from dsocr_core.runs.store import History
from dsocr_core.settings import Settings
from tests.support.drawn_pairs import drawn_pair
from tests.support.made_up_output import committed, planned

PAGES = 300
NAMES = ("eager", "fast")
Told = dict[str, tuple[str, tuple[str, ...]]]
"""Verdict and reasons by page."""


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pages") / "page.png"
    Image.new("RGB", (10, 8), "white").save(path)
    return path


@pytest.fixture(scope="module")
def drawn(image: Path) -> dict[str, Comparison]:
    return {f"p{seed:03d}.png": drawn_pair(seed, NAMES, image) for seed in range(PAGES)}


@pytest.fixture(scope="module")
def told(drawn: dict[str, Comparison]) -> Told:
    """What `compare` says; a run is of UTF-8, and so are its errors."""
    found = {
        page: (of.verdict, tuple(map(encodable, of.reasons)) if of.errors else of.reasons)
        for page, of in drawn.items()
    }
    assert {verdict for verdict, _ in found.values()} == set(VERDICT_WORDS)  # each is drawn
    return found


@pytest.fixture(scope="module")
def review(drawn: dict[str, Comparison], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Review]:
    """All pages saved as one run, and opened."""
    location = tmp_path_factory.mktemp("history")
    with RunRecorder(Settings(a=NAMES[0], b=NAMES[1], history=str(location))) as recorder:
        for page, comparison in drawn.items():
            recorder.add(page, comparison)
    assert recorder.id is not None
    with History(location) as history:
        yield open_review(history, recorder.id)


def test_results_are_read_back_equal(drawn: dict[str, Comparison], review: Review) -> None:
    found = results(review.history, review.a.record.id)
    given = {
        (page, result.backend): result
        for page, comparison in drawn.items()
        for result in comparison.results.values()
    }
    assert found.keys() == given.keys()
    assert [key for key in given if found[key] != given[key]] == []


def test_review_its_report_and_one_page_of_it_say_what_compare_said(told: Told, review: Review) -> None:
    assert {page.name: (page.verdict, page.reasons) for page in review.pages} == told
    rows = document(review)["pages"]
    assert {row["image"]: (row["verdict"], tuple(row["reasons"])) for row in rows} == told
    shown = {
        page: pair(review.history, review.a.run, review.b.run, page) for page in list(told)[:: PAGES // 30]
    }
    assert {page: (of.verdict, of.reasons) for page, of in shown.items()} == {
        page: told[page] for page in shown
    }


def test_figures_are_compare_s(drawn: dict[str, Comparison], review: Review) -> None:
    for page in review.pages:
        assert page.report == drawn[page.name].report, page.name


def test_junit_says_what_compare_said(told: Told, review: Review) -> None:
    suite = ElementTree.fromstring(junit_report(review))[0]
    found = {case.get("name"): case.find("properties/property").get("value") for case in suite}  # type: ignore[union-attr]
    assert found == {
        page: xml_text("; ".join((VERDICT_WORDS[verdict], *reasons)))
        for page, (verdict, reasons) in told.items()
    }
    failing = [
        case.get("name")
        for case in suite
        if case.find("failure") is not None or case.find("error") is not None
    ]
    assert failing == [page for page in told if told[page][0] in ("differs", "not_comparable")]


def test_the_html_report_names_every_page_with_its_verdict(told: Told, review: Review) -> None:
    page = html_report(review, worst=3)
    for name, (verdict, _) in told.items():
        row = page[page.index(f">{name}<") :].split("</tr>")[0]
        assert VERDICT_WORDS[verdict] in row, name  # type: ignore[index]


def test_the_recorded_rows_say_what_compare_said(told: Told, review: Review) -> None:
    frame = review.history.query("parity", run_ids=[review.a.record.id])[0]
    rows = zip(frame["page"], frame["verdict"], frame["reasons"], strict=True)
    found = {page: (verdict, tuple(map(str, reasons))) for page, verdict, reasons in rows}
    assert found == {
        page: (verdict, tuple(map(encodable, reasons))) for page, (verdict, reasons) in told.items()
    }


def test_outputs_of_a_cluster_are_judged_alike(
    drawn: dict[str, Comparison], told: Told, tmp_path: Path
) -> None:
    a, b = (ShardOf(str(tmp_path / side), _shard(tmp_path / side, side, drawn)) for side in NAMES_OF)
    assert {page.name: (of.verdict, of.reasons) for page, of in comparisons(a, b, Tolerance())} == told


NAMES_OF: dict[Side, str] = dict(zip(("a", "b"), NAMES, strict=True))  # type: ignore[arg-type]


def _shard(folder: Path, side: Side, drawn: dict[str, Comparison]) -> Marker:
    """One shard of all pages as that side read them."""
    output = Output(str(folder))
    job = Job.of(Settings(a=NAMES_OF[side], preset="small"), ("pages",), PAGES)
    (shard,) = planned(output, job, list(drawn))

    def read(page: PageRef) -> PageReading:
        comparison = drawn[page.path]
        result = comparison.results.get(side)
        return page.failed(comparison.errors[side]) if result is None else page.read(result)

    return committed(output, shard, read)
