"""What became of many pages: a table for people, one JSON document for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsocr_core.outputs.markup import Span, parse
from dsocr_core.records import Divergence, Road
from dsocr_core.results import Comparison
from dsocr_core.stages import Stage


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


@dataclass
class Report:
    """What became of all pages."""

    roads: tuple[Road, ...]
    outcomes: list[PageOutcome] = field(default_factory=list)

    @property
    def passed(self) -> int:
        return sum(outcome.passed(self.roads) for outcome in self.outcomes)

    @property
    def failed(self) -> int:
        return len(self.outcomes) - self.passed

    def document(self) -> dict[str, Any]:
        """The JSON document of `--json`."""
        row = _compare_row if len(self.roads) == 2 else _run_row
        pages = [row(outcome, outcome.passed(self.roads)) for outcome in self.outcomes]
        return {"pages": pages, "passed": self.passed, "failed": self.failed}

    def print(self, console: Console, spans: int = 0) -> None:
        """A table for people, and the first spans of each road."""
        console.print(self._compare_table() if len(self.roads) == 2 else self._run_table())
        for outcome in self.outcomes:
            if outcome.error:
                console.print(Text(f"{outcome.source}: {outcome.error}", style="red"))
            elif spans and outcome.comparison:
                _print_spans(console, outcome, spans)
        if len(self.roads) == 2:
            console.print("Blocks: ours / vendor. Shift: the largest of matched boxes, of the page's side.")
        console.print(f"{self.passed} passed, {self.failed} failed")

    def _compare_table(self) -> Table:
        table = _table("Page", "Verdict", "Blocks", "Matched", "Shift", "CER", "Tokens", "Inputs")
        for outcome in self.outcomes:
            report = outcome.comparison.report if outcome.comparison else None
            name = Text(outcome.source)
            if report is None:
                table.add_row(name, Text("error", style="red"), *["-"] * 6)
                continue
            good = report.verdict == "pass"
            table.add_row(
                name,
                Text(report.verdict, style="green" if good else "red"),
                f"{report.boxes_ours} / {report.boxes_vendor}",
                str(report.boxes_matched),
                _percent(report.max_coordinate_difference_percent),
                f"{report.character_error_rate:.1%}",
                "equal" if report.tokens_equal else f"differ at {_divergence(report.first_divergence)}",
                "equal" if report.input_parity else "differ",
            )
        return table

    def _run_table(self) -> Table:
        table = _table("Page", "Blocks", "Tokens", "Ends with", "Prefill", "Decode", "Tokens/s", "Total")
        for outcome in self.outcomes:
            result = outcome.comparison.ours if outcome.comparison else None
            name = Text(outcome.source)
            if result is None:
                table.add_row(name, *["-"] * 7)
                continue
            decode_ms = result.milliseconds(Stage.DECODE)
            table.add_row(
                name,
                str(len(parse(result.text_raw))),
                str(len(result.token_ids)),
                result.finish_reason,
                _time(result.milliseconds(Stage.PREFILL)),
                _time(decode_ms),
                f"{len(result.token_ids) / decode_ms * 1e3:.3g}" if decode_ms else "not measured",
                _time(result.total_ms),
            )
        return table


# --- rows ---------------------------------------------------------------------------------------


def _compare_row(outcome: PageOutcome, passed: bool) -> dict[str, Any]:
    report = outcome.comparison.report if outcome.comparison else None
    return {
        "image": outcome.source,
        "verdict": "pass" if passed else "fail",
        "tokens_equal": report.tokens_equal if report else None,
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
        "error": outcome.error,
    }


def _timings(comparison: Comparison | None) -> dict[str, dict[str, float]]:
    results = (comparison.ours, comparison.vendor) if comparison else ()
    return {
        result.road: {timing.stage.value: round(timing.milliseconds, 3) for timing in result.timings}
        for result in results
        if result is not None
    }


def _print_spans(console: Console, outcome: PageOutcome, count: int) -> None:
    comparison = outcome.comparison
    assert comparison is not None
    for result in (comparison.ours, comparison.vendor):
        if result is None:
            continue
        for span in parse(result.text_raw)[:count]:
            line = f"{outcome.source} {result.road}: {_span_text(span)}"
            console.print(Text(line, overflow="ellipsis", no_wrap=True))


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
    return "the end" if divergence is None else f"token {divergence.index}"
