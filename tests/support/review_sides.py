"""Small reviews with known content."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dsocr_core.reading.parity import Comparison, compare_results
from dsocr_core.reading.records import BackendName, OcrResult, PageFile
from dsocr_core.review.page import PageReview, page_review
from dsocr_core.runs.history import History
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.results import PageResults, parity_row
from tests.support import made_up_runs, results
from tests.support.results import Block, make_result

BLOCKS: tuple[Block, ...] = (
    ("title", (100, 50, 900, 100), "# Alpha"),
    ("text", (100, 150, 900, 250), "the first paragraph of the page"),
    ("text", (100, 300, 900, 400), "the second paragraph of the page"),
    ("table", (100, 450, 900, 600), "<table><tr><td>1</td></tr></table>"),
    ("text", (100, 650, 900, 750), "the last words of it"),
)
Sides = Mapping[BackendName, OcrResult | str]
"""What each backend gave for a page: a result, or its error."""


def markup(blocks: Sequence[Block] = BLOCKS) -> str:
    return results.markup(blocks)


def changed(number: int, **changes: Any) -> tuple[Block, ...]:
    """The blocks with one of them changed: label, box or text."""
    of = dict(zip(("label", "box", "text"), BLOCKS[number], strict=True)) | changes
    return (*BLOCKS[:number], (of["label"], of["box"], of["text"]), *BLOCKS[number + 1 :])


def record(run_id: str = "run-1", **values: Any) -> RunRecord:
    infer = {"max_new_tokens": 8192, "no_repeat_ngram_size": 20}
    standard: dict[str, Any] = {
        "backends": ("eager", "vendor"), "dtype": "float32", "attention": "eager",
        "settings": {"prompt": "markdown", "infer": infer},
    }  # fmt: skip
    return made_up_runs.record(run_id, **standard | values)


def page(ours: OcrResult, vendor: OcrResult) -> PageReview:
    """Two results as a page of a review, without a history."""
    a, b = (of_one_file(result) for result in (ours, vendor))
    return page_review(("page.png", "page.png"), Comparison(a.request, a, b))


def texts(ours: str, vendor: str | None = None, **changes: Any) -> PageReview:
    """A page whose sides wrote these texts; `changes` concern A alone."""
    a, b = both(ours, vendor).values()
    return page(replace(a, **changes), b)


def of_one_file(result: OcrResult) -> OcrResult:
    return replace(result, request=replace(result.request, file=PageFile(1, "ab")))


def write(history: History, run_id: str, pages: Mapping[str, Sides], **values: Any) -> None:
    """A run with these pages."""
    backends = tuple(dict.fromkeys(backend for sides in pages.values() for backend in sides))
    with history.writer(record(run_id, **{"backends": backends} | values)) as run:
        for name, sides in pages.items():
            read = {side: given for side, given in sides.items() if isinstance(given, OcrResult)}
            errors = {side: given for side, given in sides.items() if isinstance(given, str)}
            pair = {"eager", "vendor"} <= {*read} and compare_results(read["eager"], read["vendor"])
            row = parity_row(name, pair) if pair else None
            run.add(PageResults(name, results=[*read.values()], errors=errors, parity=row))
    history.refresh()


def both(
    ours: str, vendor: str | None = None, image: Path = Path("page.png")
) -> dict[BackendName, OcrResult]:
    vendor = markup() if vendor is None else vendor
    return {
        side: make_result(text, side, image=image) for side, text in (("eager", ours), ("vendor", vendor))
    }
