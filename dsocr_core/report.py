"""What became of many pages: a table for people, one JSON document for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from tempfile import TemporaryFile
from typing import Any, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsocr_core.outputs.compression import compression
from dsocr_core.outputs.margins import margins_row
from dsocr_core.outputs.markup import Span, parse
from dsocr_core.records import POSTPROCESS_ERROR, Divergence, OcrResult, Road
from dsocr_core.results import Comparison
from dsocr_core.stages import Stage

SHOWN = 100
"""Pages that people are shown; a longer table is of no use to them."""


@dataclass(frozen=True)
class PageOutcome:
    """One page: what came out, or why nothing did."""

    source: str
    """What the page is called: a file name, or `paper.pdf#3`."""
    comparison: Comparison | None
    error: str | None

    def passed(self, roads: Sequence[Road]) -> bool:
        if self.error or self.comparison is None:
            return False
        report = self.comparison.report
        return len(roads) == 1 or (report is not None and report.verdict == "pass")


class Report:
    """What became of all pages. Holds figures, not results: those of the first pages for the table, all
    rows of the JSON document in a temporary file.
    """

    def __init__(self, roads: tuple[Road, ...], spans: int = 0) -> None:
        """`spans` is how many spans of each road and page are shown to people."""
        self.roads, self._spans = roads, spans
        self.passed = self.failed = self.skipped = 0
        """`skipped` pages were done before."""
        self.read = self.boxes = 0
        """Pages that our road read, and the blocks it found on them."""
        self._rows = TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._cells: list[list[Text | str]] = []
        self._lines: list[Text] = []

    def add(self, outcome: PageOutcome) -> None:
        passed = outcome.passed(self.roads)
        self.passed += passed
        self.failed += not passed
        result = outcome.comparison.ours if outcome.comparison else None
        if result is not None:
            self.read += 1
            self.boxes += len(parse(result.text_raw))
        row = _compare_row if len(self.roads) == 2 else _run_row
        self._rows.write(json.dumps(row(outcome, passed), ensure_ascii=False) + "\n")
        if len(self._cells) < SHOWN:
            self._cells.append(_compare_cells(outcome) if len(self.roads) == 2 else _run_cells(outcome))
        if len(self._lines) < SHOWN * (1 + 2 * self._spans):
            self._lines += _lines(outcome, self._spans)

    def write_json(self, stream: TextIO) -> None:
        """The JSON document of `--json`, a row at a time."""
        self._rows.seek(0)
        stream.write('{"pages": [')
        for number, line in enumerate(self._rows):
            stream.write((", " if number else "") + line.rstrip("\n"))
        totals = {"passed": self.passed, "failed": self.failed, "skipped": self.skipped}
        stream.write("], " + json.dumps(totals)[1:] + "\n")

    def print(self, console: Console) -> None:
        """A table for people, and the first spans of each road."""
        columns = _COMPARE_COLUMNS if len(self.roads) == 2 else _RUN_COLUMNS
        table = _table(*columns)
        for cells in self._cells:
            table.add_row(*cells)
        console.print(table)
        for line in self._lines:
            console.print(line, no_wrap=line.no_wrap)
        hidden = self.passed + self.failed - len(self._cells)
        if hidden:
            console.print(f"... and {hidden} more; every page is in the run directory")
        if len(self.roads) == 2:
            console.print("Blocks: ours / vendor. Shift: the largest of matched boxes, of the page's side.")
        skipped = f", {self.skipped} done before" if self.skipped else ""
        console.print(f"{self.passed} passed, {self.failed} failed{skipped}")


_COMPARE_COLUMNS = ("Page", "Verdict", "Blocks", "Matched", "Shift", "CER", "Tokens", "Inputs")
_RUN_COLUMNS = ("Page", "Blocks", "Tokens", "Ends with", "Prefill", "Decode", "Tokens/s", "Total")


def _compare_cells(outcome: PageOutcome) -> list[Text | str]:
    report = outcome.comparison.report if outcome.comparison else None
    name = Text(outcome.source)
    if report is None:
        return [name, Text("error", style="red"), *["-"] * 6]
    good = report.verdict == "pass"
    return [
        name,
        Text(report.verdict, style="green" if good else "red"),
        f"{report.boxes_ours} / {report.boxes_vendor}",
        str(report.boxes_matched),
        _percent(report.max_coordinate_difference_percent),
        f"{report.character_error_rate:.1%}",
        "equal" if report.tokens_equal else f"differ at {_divergence(report.first_divergence)}",
        "equal" if report.input_parity else "differ",
    ]


def _run_cells(outcome: PageOutcome) -> list[Text | str]:
    result = outcome.comparison.ours if outcome.comparison else None
    name = Text(outcome.source)
    if result is None:
        return [name, *["-"] * 7]
    decode_ms = result.milliseconds(Stage.DECODE)
    return [
        name,
        str(len(parse(result.text_raw))),
        str(len(result.token_ids)),
        result.finish_reason,
        _time(result.milliseconds(Stage.PREFILL)),
        _time(decode_ms),
        f"{len(result.token_ids) / decode_ms * 1e3:.3g}" if decode_ms else "not measured",
        _time(result.total_ms if result.timings else None),
    ]


def _compare_row(outcome: PageOutcome, passed: bool) -> dict[str, Any]:
    report = outcome.comparison.report if outcome.comparison else None
    parting = report.first_divergence if report else None
    return {
        "image": outcome.source,
        "verdict": "pass" if passed else "fail",
        "tokens_equal": report.tokens_equal if report else None,
        "first_divergence": parting.index if parting else None,
        "margins": margins_row(parting.margins if parting else None),
        "input_parity": report.input_parity if report else None,
        "boxes": {
            "ours": report.boxes_ours if report else None,
            "vendor": report.boxes_vendor if report else None,
            "matched": report.boxes_matched if report else None,
        },
        "max_coordinate_difference_percent": report.max_coordinate_difference_percent if report else None,
        "character_error_rate": report.character_error_rate if report else None,
        "reasons": list(report.reasons) if report else [],
        "timings_ms": _timings(outcome.comparison),
        "compression": _compression(outcome.comparison),
        "notes": _notes(outcome.comparison),
        "error": outcome.error,
    }


def _run_row(outcome: PageOutcome, _passed: bool) -> dict[str, Any]:
    result = outcome.comparison.ours if outcome.comparison else None
    return {
        "image": outcome.source,
        "text_raw": result.text_raw if result else None,
        "tokens": len(result.token_ids) if result else None,
        "finish_reason": result.finish_reason if result else None,
        "timings_ms": _timings(outcome.comparison),
        "compression": _compression(outcome.comparison),
        "error": outcome.error,
    }


def _results(comparison: Comparison | None) -> list[OcrResult]:
    both = (comparison.ours, comparison.vendor) if comparison else ()
    return [result for result in both if result is not None]


def _timings(comparison: Comparison | None) -> dict[str, dict[str, float]]:
    return {
        result.road: {timing.stage.value: round(timing.milliseconds, 3) for timing in result.timings}
        for result in _results(comparison)
    }


def _compression(comparison: Comparison | None) -> dict[str, dict[str, Any]]:
    """By road; empty unless it was asked for."""
    return {
        result.road: asdict(figures) | {"ratio": figures.ratio}
        for result in _results(comparison)
        if (figures := compression(result)) is not None
    }


def _notes(comparison: Comparison | None) -> list[str]:
    """What was odd about results that are there."""
    return [
        f"{result.road}: failed after its text was there ({problem}); its tokens are kept"
        for result in _results(comparison)
        if (problem := result.environment.get(POSTPROCESS_ERROR))
    ]


def _lines(outcome: PageOutcome, spans: int) -> list[Text]:
    """The page's error, or the first spans of each road, its compression and what was odd."""
    if outcome.error:
        return [Text(f"{outcome.source}: {outcome.error}", style="red")]
    results = _results(outcome.comparison)
    lines = [
        Text(f"{outcome.source} {result.road}: {_span_text(span)}", overflow="ellipsis", no_wrap=True)
        for result in results
        for span in parse(result.text_raw)[:spans]
    ]
    lines += [
        Text(f"{outcome.source} {result.road}: {figures}")
        for result in results
        if (figures := compression(result)) is not None
    ]
    return lines + [Text(f"{outcome.source} {note}", style="yellow") for note in _notes(outcome.comparison)]


def _span_text(span: Span) -> str:
    boxes = " ".join(str([int(value) for value in box]) for box in span.boxes)
    return f"{span.label} {boxes or span.malformed} {' '.join(span.text.split())[:60]}"


def _table(*columns: str) -> Table:
    """A table whose figures stay whole; where space is short the pages' names wrap."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(columns[0], overflow="fold", min_width=16)
    for column in columns[1:]:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _percent(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.3g} %"


def _time(milliseconds: float | None) -> str:
    if milliseconds is None:
        return "not measured"
    return f"{milliseconds:.3g} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.3g} s"


def _divergence(divergence: Divergence | None) -> str:
    if divergence is None:
        return "the end"
    tie = "" if divergence.margins is None else ", a tie" if divergence.margins.tie else ", no tie"
    return f"token {divergence.index}{tie}"
