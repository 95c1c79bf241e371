"""The report of a run: what counts as passed, and what people and programs are shown."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

from dsocr_core.read.loop import PageOutcome
from dsocr_core.read.prefetch import PageFailed
from dsocr_core.read.report import Report, report_of
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import OcrRequest, OcrResult
from tests.support.results import make_result

REQUEST = OcrRequest(Path("page.png"), "small")


def comparison(a: str, b: str) -> Comparison:
    return Comparison(REQUEST, make_result(a, "fast"), make_result(b, "vendor"))


def reported(*comparisons: Comparison, backends: tuple[str, ...] = ("fast", "vendor")) -> Report:
    report = report_of(backends)
    for each in comparisons:
        report.take("page.png", [each])
    return report


def alone(**changes: Any) -> Comparison:
    result: OcrResult = replace(make_result("text", "folder"), **changes)
    return Comparison(REQUEST, result)


def shown(report: Report, width: int = 120) -> str:
    text = io.StringIO()
    report.print(Console(width=width, file=text, color_system=None))
    return text.getvalue()


def document(report: Report) -> dict[str, Any]:
    stream = io.StringIO()
    report.write_json(stream)
    return cast(dict[str, Any], json.loads(stream.getvalue()))


def test_pages_that_ended_at_the_token_limit_have_not_passed() -> None:
    pages = (alone(finish_reason=reason) for reason in ("length", "length", "eos"))
    report = reported(*pages, backends=("folder",))
    assert "1 passed, 2 stopped at the token limit, 0 failed" in shown(report)
    totals = document(report)
    assert (totals["passed"], totals["stopped_at_limit"], totals["failed"]) == (1, 2, 0)


@pytest.mark.parametrize("width", [80, 140])
def test_names_figures_and_reasons_are_whole_on_any_console(width: int) -> None:
    """As of a server, a folder or a program: neither tokens nor times."""
    report = report_of(("folder",))
    report.take("z" * 60, [alone(token_ids=None, finish_reason=None, timings=())])
    written = shown(report, width)
    assert written.count("z") == 60
    assert any(line.count("not known") == 2 for line in written.splitlines())
    report = reported(comparison("a long text of the page", "another long text of that page"))
    assert "\npage.png: text differs: " in shown(report, width)


def test_a_page_without_a_comparison_is_not_comparable_and_fails() -> None:
    report = reported()
    report.add(PageOutcome(PageFailed("torn.png", "torn.png: no image")))
    report.take("page.png", [Comparison(REQUEST, make_result("a", "fast"), errors={"b": "the worker died"})])
    assert (report.passed, report.failed) == (0, 2)
    assert [(row["verdict"], row["error"]) for row in document(report)["pages"]] == [
        ("not_comparable", "torn.png: no image"), ("not_comparable", "vendor: the worker died"),
    ]  # fmt: skip
