"""The two best logits where the tokens part: from a recorded run to the words, the report and the JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dsocr_core.reading.records import OcrResult, TopTwo
from dsocr_core.review.document import document
from dsocr_core.review.html import html_report
from dsocr_core.review.page import PageReview
from dsocr_core.review.review import open_review
from dsocr_core.runs.history import History
from dsocr_core.runs.results import result_table
from tests.support.results import make_result
from tests.support.review_sides import changed, markup, record, write

OTHER = markup(changed(2, text="the second paragraph of a page"))
STEP = next(step for step, (a, b) in enumerate(zip(OTHER, markup(), strict=False)) if a != b)


def recorded(text: str, backend: str, margin: float, dtype: str = "bfloat16") -> OcrResult:
    """Logits that name their step, so that another step's would be seen."""
    top = tuple(TopTwo((ord(letter), 81), (64.0 + n, 64.0 + n - margin)) for n, letter in enumerate(text))
    return replace(make_result(text, backend, dtype=dtype), top_two=top)  # type: ignore[arg-type]


PLAIN = make_result(markup(), "vendor", dtype="bfloat16")
PAGES = {
    "equal": {"eager": recorded(markup(), "eager", 1.0), "vendor": recorded(markup(), "vendor", 1.0)},
    "tie": {"eager": recorded(OTHER, "eager", 1.0), "vendor": recorded(markup(), "vendor", 0.0)},
    "bug": {"eager": recorded(OTHER, "eager", 30.0), "vendor": PLAIN},
    "before": {"eager": make_result(OTHER), "vendor": make_result(markup(), "vendor")},
}  # fmt: skip


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    with History(tmp_path_factory.mktemp("h")) as history:
        write(history, "run-1", PAGES)  # type: ignore[arg-type]
        yield history


def causes_of(page: PageReview) -> list[str]:
    return [cause.name for cause in page.causes]


def test_every_page_says_it_when_the_review_is_opened(history: History) -> None:
    review = open_review(history, "run-1")
    assert {page.name: causes_of(page) for page in review.pages} == {
        "equal": [], "tie": ["tie"], "bug": ["not a tie"], "before": [],
    }  # fmt: skip
    rows = {row["image"]: row for row in document(review)["pages"]}
    best = 64.0 + STEP
    assert 256 <= best < 512, "where numbers of bfloat16 lie 2 apart"
    assert rows["tie"]["margins"] == {
        "a": {"ids": [ord(OTHER[STEP]), 81], "logits": [best, best - 1], "margin": 1.0},
        "b": {"ids": [ord(markup()[STEP]), 81], "logits": [best, best], "margin": 0.0},
        "dtype": "bfloat16", "ulps": 0.5, "tie": True,
    }  # fmt: skip
    assert (rows["bug"]["margins"]["b"], rows["bug"]["margins"]["tie"]) == (None, False)
    assert rows["equal"]["margins"] is None and rows["before"]["margins"] is None
    report = html_report(review)
    assert "not a tie: margin 30 of A and not recorded of B" in report
    assert "a tie: margin 1 of A and 0 of B" in report


def test_two_runs_that_call_the_page_otherwise(history: History, tmp_path: Path) -> None:
    image = tmp_path / "page.png"
    image.write_bytes(b"the same content")
    for run, name, text, backend in (
        ("run-2", "x.png", OTHER, "eager"),
        ("run-3", "y.jpg", markup(), "vendor"),
    ):
        result = recorded(text, backend, 0.0)
        result = replace(result, request=replace(result.request, image=image))
        write(history, run, {name: {backend: result}})  # type: ignore[dict-item]
    (page,) = open_review(history, "run-2", "run-3").pages
    assert page.report is not None and page.report.first_divergence is not None
    margins = page.report.first_divergence.margins
    assert margins is not None and margins.a is not None and margins.b is not None
    assert (margins.a.ids[0], margins.b.ids[0]) == (ord(OTHER[STEP]), ord(markup()[STEP]))


def test_what_no_backend_wrote_is_not_recorded(history: History) -> None:
    cases: list[tuple[list[int | None] | None, list[float]]] = [
        ([1, 2] * 400, [float("nan"), 1.0] * 400),
        ([1, 2] * 400, [1.0, 2.0] * 400),
        ([None, None] * 400, [2.0, 1.0] * 400),
        ([1, 2] * 400, [2.0]),
        (None, [2.0, 1.0] * 400),
    ]
    with history.writer(record("odd")) as run:
        for number, (ids, logits) in enumerate(cases):
            page = f"p{number}"
            for text, backend in ((OTHER, "eager"), (markup(), "vendor")):
                result = replace(make_result(text, backend, dtype="bfloat16"), token_texts=())  # type: ignore[arg-type]
                [row] = result_table(page, result, files=[None]).to_pylist()
                run.add_rows("readings", [row | {"top_ids": ids, "top_logits": logits}])
    history.refresh()
    review = open_review(history, "odd")
    json.dumps(document(review), allow_nan=False)
    assert {page.name: causes_of(page) for page in review.pages} == {f"p{n}": [] for n in range(len(cases))}
    for page in review.pages:
        detail = review.detail(page.name)
        assert detail.a is not None and detail.b is not None
        assert detail.a.top_two == detail.b.top_two == ()
        assert detail.report is not None and detail.report.first_divergence is not None
