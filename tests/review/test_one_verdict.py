"""One saved run, judged by whatever judges: verdicts, differences and counts are `compare_results`'."""

from __future__ import annotations

import html
import io
import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from xml.etree import ElementTree

import pytest
from PIL import Image

from dsocr_core.base.sanitise import encodable
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.pages import PageReading, PageRef
from dsocr_core.read.report import report_of
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.parity_records import KINDS, SETTINGS, VERDICT_WORDS, passes
from dsocr_core.reading.records import SIDES, Side
from dsocr_core.review.document import document
from dsocr_core.review.html import html_report
from dsocr_core.review.junit import junit_report, xml_text
from dsocr_core.review.review import Review, open_review
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.record import Recording
from dsocr_core.settings import Settings
from pages.widgets.pair.answer import answer
from pages.widgets.pair.shown import PairView, rows_of
from pages.widgets.review.grid import grid_item
from pages.widgets.review.queue import SAME, Queue, group_of
from tests.cluster.made_up_output import committed, planned
from tests.reading.test_text_diff import pairs
from tests.review.drawn_pairs import drawn_pair
from tests.support.results import make_result
from tests.support.review_sides import of_one_file

NAMES: dict[Side, str] = {"a": "eager", "b": "fast"}
SECTIONS = ("differs", "spelt", "words")


@dataclass(frozen=True)
class Judged:
    """Pages as they were read, and the run of them opened as a review."""

    pages: dict[str, Comparison]
    review: Review

    @property
    def differences(self) -> dict[str, list[dict[str, Any]]]:
        """Every page's differences; a run is of UTF-8, and so are its errors."""
        return {
            name: [
                item.document() | {"words": encodable(item.words) if of.errors else item.words}
                for item in of.differences
            ]
            for name, of in self.pages.items()
        }


def drawn(count: int, image: Path) -> dict[str, Comparison]:
    """Drawn pairs, and as many pairs of the careful reader's list; all of it from 300 on."""
    found = {f"p{seed:03d}.png": drawn_pair(seed, (NAMES["a"], NAMES["b"]), image) for seed in range(count)}
    listed = [of for section in SECTIONS for of in pairs(section)]
    if count < 300:
        listed = random.Random(0).sample(listed, count)
    for number, of in enumerate(listed):
        a, b = (
            of_one_file(make_result(text, NAMES[side], image)) for side, text in zip(SIDES, of, strict=True)
        )
        found[f"reader{number:03d}.png"] = Comparison(a.request, a, b)
    return found


@pytest.fixture(scope="module", params=[40, pytest.param(300, marks=pytest.mark.slow)])
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judged]:
    image = tmp_path_factory.mktemp("pages") / "page.png"
    Image.new("RGB", (10, 8), "white").save(image)
    pages = drawn(request.param, image)
    assert {of.verdict for of in pages.values()} == set(VERDICT_WORDS)  # each is drawn
    location = tmp_path_factory.mktemp("history")
    with Recording(Settings(a=NAMES["a"], b=NAMES["b"], history=str(location))) as recorder:
        for page, comparison in pages.items():
            recorder.add(page, comparison)
    assert recorder.id is not None
    with History(location) as history:
        yield Judged(pages, open_review(history, recorder.id))


def test_review_and_its_json_have_the_same_differences_and_counts(judged: Judged) -> None:
    for page in judged.review.pages:
        of = judged.pages[page.name]
        assert page.report == of.report and page.verdict == of.verdict, page.name
        assert page.causes == (of.report.causes if of.report else ())
    values = document(judged.review)
    rows = {row["image"]: row for row in values["pages"]}
    assert {name: row["differences"] for name, row in rows.items()} == judged.differences
    assert {name: row["verdict"] for name, row in rows.items()} == {
        name: of.verdict for name, of in judged.pages.items()
    }
    passed = sum(passes(of.verdict) for of in judged.pages.values())
    # F6: a page with other boxes counts as changed wherever it is counted.
    changed = sum(any(item.kind not in SETTINGS for item in of.differences) for of in judged.pages.values())
    assert (values["passed"], values["failed"]) == (passed, len(judged.pages) - passed)
    assert values["changed"] == changed
    kinds = Counter(kind for of in judged.differences.values() for kind in {item["kind"] for item in of})
    assert values["kinds"] == dict(kinds)
    sample = list(judged.pages)[:: max(1, len(judged.pages) // 20)]
    for name in sample:
        shown = judged.review.detail(name)
        assert [item.document() for item in shown.differences] == judged.differences[name]


def test_junit_and_html_have_them(judged: Judged) -> None:
    suite = ElementTree.fromstring(junit_report(judged.review))[0]
    page_of = html_report(judged.review, worst=len(judged.pages))
    failing = set()
    for case in suite:
        name = str(case.get("name"))
        of, found = judged.pages[name], judged.differences[name]
        parity = cast(ElementTree.Element, case.find("properties/property")).get("value")
        reasons = judged.review.page(name).reasons
        assert parity == xml_text("; ".join((VERDICT_WORDS[of.verdict], *reasons)))
        sentences = [f"{KINDS[item['kind']]}: {item['words']}" for item in found]
        if len(case) > 1:
            failing.add(name)
            assert str(case[1].text).startswith("\n".join(map(xml_text, sentences)))
        row = page_of[page_of.rindex(f">{name}<") :].split("</tr>")[0]
        assert VERDICT_WORDS[of.verdict] in row
        assert all(KINDS[item["kind"]] in row for item in found)
        if f"<h3>{name} " in page_of:
            block = page_of[page_of.index(f"<h3>{name} ") :].split("</ul>")[0]
            assert block.count("<li><b>") == min(30, len(found))
            assert all(html.escape(KINDS[item["kind"]]) in block for item in found[:30])
    assert failing == {name for name, of in judged.pages.items() if not passes(of.verdict)}
    counts = [int(suite.get(name) or 0) for name in ("failures", "errors")]
    assert sum(counts) == len(failing)
    assert f"{len(judged.pages) - len(failing)} passed, {len(failing)} failed" in page_of


def test_strip_viewer_and_grid_have_them(judged: Judged) -> None:
    for name, of in judged.pages.items():
        page, rows = judged.review.page(name), rows_of(of)
        view = PairView(of, {"a": "A", "b": "B"}, rows, None, lambda row: None)
        item = grid_item(Queue(judged.review, {}), page, None)
        outputs = dict.fromkeys(item.kind for item in of.differences if item.kind not in SETTINGS)
        assert item["words"] == (", ".join(KINDS[kind] for kind in outputs) or "same text")
        assert of.report is None or (page.reasons == of.reasons and (group_of(page) == SAME) == (not outputs))
        assert (item["tone"] == "identical") == (of.verdict == "identical")
        said = answer(view)
        assert bool(said) == (of.report is not None) and (not outputs) == ("Both read the same" in said)
        boxes = {("a", box) for item in of.differences for box in item.boxes_a}
        boxes |= {("b", box) for item in of.differences for box in item.boxes_b}
        marked = {
            (side, box.index) for row in view.differing for side in SIDES if (box := rows[row].of(side))
        }
        assert boxes <= marked


def test_the_shell_has_them(judged: Judged) -> None:
    report = report_of((NAMES["a"], NAMES["b"]))
    for name, of in judged.pages.items():
        report.take(name, [of])
    stream = io.StringIO()
    report.write_json(stream)
    values = json.loads(stream.getvalue())
    passed = sum(passes(of.verdict) for of in judged.pages.values())
    assert (values["passed"], values["failed"]) == (passed, len(judged.pages) - passed)
    for row in values["pages"]:
        of = judged.pages[row["image"]]
        assert row["verdict"] == of.verdict
        assert [item["kind"] for item in row["differences"]] == [item.kind for item in of.differences]
        assert list(map(encodable, of.reasons)) == list(map(encodable, row["reasons"]))


def test_the_recorded_rows_have_the_sentences(judged: Judged) -> None:
    frame = judged.review.history.sql(f"FROM parity WHERE run_id = '{judged.review.a.record.id}'")
    rows = zip(frame["page"], frame["verdict"], frame["reasons"], strict=True)
    found = {page: (verdict, tuple(map(str, reasons))) for page, verdict, reasons in rows}
    assert found == {
        page: (of.verdict, tuple(map(encodable, of.reasons))) for page, of in judged.pages.items()
    }


def test_outputs_of_a_cluster_are_judged_alike(judged: Judged, tmp_path: Path) -> None:
    places = [tmp_path / side for side in SIDES]
    for place, side in zip(places, SIDES, strict=True):
        _output(place, side, judged.pages)
    with History(tmp_path / "history") as history:
        review = open_review(history, *(run.run_id for run in import_paths(history, places).imported))
        found = {page.name: page for page in review.pages}
        assert {name: of.verdict for name, of in found.items()} == {
            name: of.verdict for name, of in judged.pages.items()
        }
        rows = {row["image"]: row["differences"] for row in document(review)["pages"]}
        assert rows == judged.differences


def _output(folder: Path, side: Side, pages: dict[str, Comparison]) -> None:
    """One shard of all pages as that side read them."""
    output = Output(str(folder))
    job = Job.of(Settings(a=NAMES[side], preset="small"), ("pages",), len(pages))
    (shard,) = planned(output, job, list(pages))

    def read(page: PageRef) -> PageReading:
        comparison = pages[page.path]
        result = comparison.results.get(side)
        return page.failed(comparison.errors[side]) if result is None else page.read(result)

    committed(output, shard, read)
