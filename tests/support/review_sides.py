"""Small reviews with known content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dsocr_core.reading.parity import Comparison, compare_results
from dsocr_core.reading.records import BackendName, OcrResult, PageFile
from dsocr_core.review.page import PageReview, page_review
from dsocr_core.runs.history import History
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.results import PageResults, parity_row
from tests.support import results
from tests.support.results import make_result

Block = tuple[str, tuple[int, int, int, int], str]

BLOCKS: tuple[Block, ...] = (
    ("title", (100, 50, 900, 100), "# Alpha"),
    ("text", (100, 150, 900, 250), "the first paragraph of the page"),
    ("text", (100, 300, 900, 400), "the second paragraph of the page"),
    ("table", (100, 450, 900, 600), "<table><tr><td>1</td></tr></table>"),
    ("text", (100, 650, 900, 750), "the last words of it"),
)
SETTINGS = {"prompt": "markdown", "infer": {"max_new_tokens": 8192, "no_repeat_ngram_size": 20}}


def markup(blocks: Sequence[Block] = BLOCKS) -> str:
    return results.markup(blocks)


def changed(number: int, **changes: Any) -> tuple[Block, ...]:
    """The blocks with one of them changed: label, box or text."""
    label, box, text = BLOCKS[number]
    block = (changes.get("label", label), changes.get("box", box), changes.get("text", text))
    return (*BLOCKS[:number], block, *BLOCKS[number + 1 :])


def record(run_id: str = "run-1", **values: Any) -> RunRecord:
    standard: dict[str, Any] = {
        "created": "2026-01-02T03:04:05+00:00", "source": "dsocr", "backends": ("eager", "vendor"),
        "engine": "eager", "dtype": "float32", "attention": "eager", "settings": SETTINGS,
    }  # fmt: skip
    return RunRecord(id=run_id, **standard | values)


def page(ours: OcrResult, vendor: OcrResult) -> PageReview:
    """Two results as a page of a review, without a history."""
    a, b = (_of_one_file(result) for result in (ours, vendor))
    return page_review(("page.png", "page.png"), Comparison(a.request, a, b))


def texts(ours: str, vendor: str | None = None, **changes: Any) -> PageReview:
    """A page whose sides wrote these texts; `changes` concern A alone."""
    a = replace(make_result(ours, "eager"), **changes)
    return page(a, make_result(markup() if vendor is None else vendor, "vendor"))


def _of_one_file(result: OcrResult) -> OcrResult:
    return replace(result, request=replace(result.request, file=PageFile(1, "ab")))


def write(
    history: History, run_id: str, pages: dict[str, dict[BackendName, OcrResult | str]], **values: Any
) -> None:
    """A run with these pages; a text in a result's place is the backend's error."""
    backends = tuple(dict.fromkeys(backend for results in pages.values() for backend in results))
    with history.writer(record(run_id, **{"backends": backends} | values)) as run:
        for name, results in pages.items():
            for backend, result in results.items():
                if isinstance(result, str):
                    run.add(PageResults.failed(name, [backend], result))
                else:
                    run.add(PageResults(name, results=[result]))
            ours, vendor = results.get("eager"), results.get("vendor")
            if isinstance(ours, OcrResult) and isinstance(vendor, OcrResult):
                run.add_rows("parity", [parity_row(name, compare_results(ours, vendor))])
    history.refresh()


def both(
    ours: str, vendor: str | None = None, image: Path = Path("page.png")
) -> dict[BackendName, OcrResult | str]:
    return {
        "eager": make_result(ours, "eager", image=image),
        "vendor": make_result(markup() if vendor is None else vendor, "vendor", image=image),
    }
