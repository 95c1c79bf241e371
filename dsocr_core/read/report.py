"""Outcome of many pages: a table for people, one JSON document for programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from tempfile import TemporaryFile
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.text import Text

from dsocr_core.base.console import Name, PageTable, verdict_text
from dsocr_core.base.formatting import duration, percent
from dsocr_core.base.sanitise import json_line, visible
from dsocr_core.engine.drafts.given import Given
from dsocr_core.models.stages import Stage
from dsocr_core.page.compression import compression
from dsocr_core.read.prefetch import PageDone, PageFailed
from dsocr_core.read.recorders import PageRead, Recorder
from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.markup import Span
from dsocr_core.reading.parity import to_document
from dsocr_core.reading.parity_records import NOT_KNOWN, Difference, passes
from dsocr_core.reading.postprocess import clean_text
from dsocr_core.reading.records import POSTPROCESS_ERROR, SIDES, BackendName, OcrResult
from dsocr_core.reading.ties import Ties, ties_document
from dsocr_core.runs.texts import UnmatchedTexts

PARITY_WORDS = "Blocks: A / B. Shift: the largest of matched boxes. Tokens: the first that differs."
SHOWN = 100
"""Pages that people are shown; a longer table is of no use to them."""


@dataclass(frozen=True)
class _PageOutcome:
    """One page: what came out, or why nothing did."""

    source: str
    comparison: Comparison | None
    error: str | None

    def passed(self, backends: Sequence[BackendName]) -> bool:
        if self.error or self.comparison is None:
            return False
        report = self.comparison.report
        return len(backends) == 1 or (report is not None and passes(report.verdict))

    @property
    def stopped(self) -> bool:
        """Tell whether A ended at the token limit."""
        result = self.comparison.a if self.comparison else None
        return result is not None and result.finish_reason == "length"


class Report(Recorder):
    """Outcome of all pages. Holds figures, not results: those of the first pages for the table, all
    rows of the JSON document in a temporary file.
    """

    def __init__(self, backends: tuple[BackendName, ...], spans: int = 0) -> None:
        """`backends` are A and, where pages are compared, B; `spans` of each and page are shown to people."""
        self.backends, self._spans = backends, spans
        self.passed = self.stopped = self.failed = self.skipped = 0
        """`stopped` pages of a run without comparison ended at the token limit: what they show is a part.
        `skipped` pages were done before."""
        self.read = self.boxes = 0
        """Pages that A read, and the blocks it found on them."""
        self.left_over: Mapping[BackendName, UnmatchedTexts] = {}
        """By backend, what lies in its folder and belongs to no page of the run."""
        self.ties = Ties()
        self.drafts = Given()
        """Gains of the drafts of all sides."""
        self._rows = TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._cells: list[list[RenderableType]] = []
        self._lines: list[Text] = []

    def skip(self, page: PageDone) -> None:
        self.skipped += 1

    def add(self, read: PageRead) -> None:
        self.take(read.page.source, read.comparison)

    def take(self, source: str, comparison: Comparison) -> None:
        """Add what the backends gave on a page of that name."""
        names = dict(zip(SIDES, self.backends, strict=False))
        errors = [f"{names[side]}: {message}" for side, message in comparison.errors.items()]
        self._add(_PageOutcome(source, comparison, "; ".join(errors) or None))

    def add_failure(self, page: PageFailed) -> None:
        self._add(_PageOutcome(page.source, None, page.error))

    def _add(self, outcome: _PageOutcome) -> None:
        passed = outcome.passed(self.backends)
        stopped = passed and not self._compares and outcome.stopped
        self.stopped += stopped
        self.passed += passed and not stopped
        self.failed += not passed
        comparison = outcome.comparison
        if comparison is not None and comparison.a is not None:
            self.read += 1
            self.boxes += len(comparison.a.blocks)
        self.ties.add(comparison.report if comparison else None)
        for result in _results(comparison):
            self.drafts.add(result.environment)
        row, cells = (_compare_row, _compare_cells) if self._compares else (_run_row, _run_cells)
        self._rows.write(json_line(row(outcome)) + "\n")
        if len(self._cells) < SHOWN:
            self._cells.append(cells(outcome))
        if len(self._lines) < SHOWN * (1 + 2 * self._spans):
            self._lines += _lines(outcome, self._spans)

    @property
    def _compares(self) -> bool:
        return len(self.backends) == 2

    def write_json(self, stream: TextIO) -> None:
        """The JSON document of `--json`, a row at a time."""
        self._rows.seek(0)
        stream.write('{"pages": [')
        for number, line in enumerate(self._rows):
            stream.write((", " if number else "") + line.rstrip("\n"))
        totals: dict[str, Any] = {"passed": self.passed, "failed": self.failed, "skipped": self.skipped}
        if self._compares:
            totals["ties"] = ties_document(self.ties)
        else:
            totals["stopped_at_limit"] = self.stopped
        totals["drafts"] = self.drafts.document()
        totals["left_over"] = {name: left.document() for name, left in self.left_over.items()}
        stream.write("], " + json.dumps(totals)[1:] + "\n")

    def print(self, console: Console) -> None:
        """A table for people, and the first spans of each backend."""
        table = PageTable(*(PARITY_COLUMNS if self._compares else _RUN_COLUMNS), words="Why")
        for cells in self._cells:
            table.add_row(*cells)
        console.print(table)
        for line in self._lines:
            console.print(line, no_wrap=line.no_wrap)
        hidden = self.passed + self.stopped + self.failed - len(self._cells)
        if hidden:
            console.print(f"... and {hidden} more; every page is in the run directory")
        if self._compares:
            console.print(PARITY_WORDS)
            console.print(Text(f"A: {self.backends[0]}   B, the reference: {self.backends[1]}"))
            if finding := self.ties.finding:
                console.print(Text(finding))
        for text in left_over_lines(self.left_over):
            console.print(text)
        if self.drafts.words:
            console.print(self.drafts.words)
        stopped = f"{self.stopped} stopped at the token limit, " if self.stopped else ""
        skipped = f", {self.skipped} done before" if self.skipped else ""
        console.print(f"{self.passed} passed, {stopped}{self.failed} failed{skipped}")


def left_over_lines(left_over: Mapping[BackendName, UnmatchedTexts]) -> list[Text]:
    """For people, what lies in folders and belongs to no page of the run."""
    return [
        Text(f"{name}: {line}", style="yellow") for name, left in left_over.items() for line in left.lines()
    ]


PARITY_COLUMNS = ("Page", "Verdict", "Blocks", "Shift", "CER", "Tokens", "Why")
_RUN_COLUMNS = ("Page", "Blocks", "Tokens", "End", "Prefill", "Decode", "Tokens/s", "Total")


def parity_cells(name: str, row: Mapping[str, Any], why: str) -> list[RenderableType]:
    """Make the cells of a compared page from its `to_document`, whatever it was compared for."""
    boxes, rate, equal = row["boxes"], row["character_error_rate"], row["tokens_equal"]
    first, margins = row["first_divergence"], row["margins"]
    tie = "" if margins is None else ", a tie" if margins["tie"] else ", no tie"
    diverging = "at the end" if first is None else f"from {first}{tie}"
    return [
        Name(name),
        verdict_text(row["verdict"]),
        "-" if boxes["a"] is None else f"{boxes['a']} / {boxes['b']}",
        percent(row["max_coordinate_difference_percent"], "-"),
        "-" if rate is None else f"{rate:.1%}",
        NOT_KNOWN if equal is None else "equal" if equal else diverging,
        Text(why),
    ]


def _compare_cells(outcome: _PageOutcome) -> list[RenderableType]:
    row = _parity(outcome)
    return parity_cells(outcome.source, row, "; ".join(row["reasons"]))


def _parity(outcome: _PageOutcome) -> dict[str, Any]:
    """The figures of a page and its differences; a page that could not be opened has only failed."""
    if outcome.comparison is None:
        return to_document(None, [Difference("failed", outcome.error or "")])
    return to_document(outcome.comparison.report, outcome.comparison.differences)


def _run_cells(outcome: _PageOutcome) -> list[RenderableType]:
    result = outcome.comparison.a if outcome.comparison else None
    name = Name(outcome.source)
    if result is None:
        return [name, *["-"] * 7]
    tokens, decode_ms = _new_tokens(result), result.milliseconds(Stage.DECODE)
    return [
        name,
        str(len(result.blocks)),
        NOT_KNOWN if tokens is None else str(tokens),
        "limit"
        if result.finish_reason == "length"
        else result.finish_reason or visible(result.environment.get("finish_reason", NOT_KNOWN)),
        duration(result.milliseconds(Stage.PREFILL)),
        duration(decode_ms),
        f"{tokens / decode_ms * 1e3:.3g}" if tokens and decode_ms else "not measured",
        duration(result.total_ms if result.timings else None),
    ]


def _compare_row(outcome: _PageOutcome) -> dict[str, Any]:
    return {
        "image": outcome.source,
        **_parity(outcome),
        "timings_ms": _timings(outcome.comparison),
        "compression": _compression(outcome.comparison),
        "returned": _returned(outcome.comparison),
        "notes": _notes(outcome.comparison),
        "error": outcome.error,
    }


def _run_row(outcome: _PageOutcome) -> dict[str, Any]:
    result = outcome.comparison.a if outcome.comparison else None
    return {
        "image": outcome.source,
        "text_raw": result.text_raw if result else None,
        "tokens": _new_tokens(result),
        "finish_reason": result.finish_reason if result else None,
        "timings_ms": _timings(outcome.comparison),
        "compression": _compression(outcome.comparison),
        "returned": _returned(outcome.comparison),
        "notes": _notes(outcome.comparison),
        "error": outcome.error,
    }


def _new_tokens(result: OcrResult | None) -> int | None:
    """Count new tokens; None where nothing was read or the backend cannot tell."""
    return None if result is None or result.token_ids is None else len(result.token_ids)


def _results(comparison: Comparison | None) -> list[OcrResult]:
    return list(comparison.results.values()) if comparison else []


def _timings(comparison: Comparison | None) -> dict[str, dict[str, float]]:
    return {
        result.backend: {timing.stage.value: round(timing.milliseconds, 3) for timing in result.timings}
        for result in _results(comparison)
    }


def _compression(comparison: Comparison | None) -> dict[str, dict[str, Any]]:
    """By backend; empty unless it was asked for."""
    return {
        result.backend: asdict(figures) | {"ratio": figures.ratio}
        for result in _results(comparison)
        if (figures := compression(result)) is not None
    }


def _returned(comparison: Comparison | None) -> dict[str, str]:
    """By backend, what the published `infer` returns in its evaluation mode; empty in the other."""
    return {
        result.backend: clean_text(result.text_raw)
        for result in _results(comparison)
        if result.request.eval_mode
    }


def _notes(comparison: Comparison | None) -> list[str]:
    """List what was odd about results that are there."""
    notes = []
    for result in _results(comparison):
        if problem := result.environment.get(POSTPROCESS_ERROR):
            notes.append(
                f"{result.backend}: failed after its text was there ({problem}); its tokens are kept"
            )
        notes += [f"{result.backend}: {note}" for note in result.notes]
    return notes


def _lines(outcome: _PageOutcome, spans: int) -> list[Text]:
    """The page's error, or the first spans of each backend, its compression and what was odd."""
    if outcome.error:
        return [Text(f"{outcome.source}: {outcome.error}", style="red")]
    results = _results(outcome.comparison)
    lines = [
        Text(f"{outcome.source} {result.backend}: {_span_text(span)}", overflow="ellipsis", no_wrap=True)
        for result in results
        for span in result.blocks[:spans]
    ]
    lines += [
        Text(f"{outcome.source} {result.backend}: {figures}")
        for result in results
        if (figures := compression(result)) is not None
    ]
    return lines + [Text(f"{outcome.source} {note}", style="yellow") for note in _notes(outcome.comparison)]


def _span_text(span: Span) -> str:
    boxes = " ".join(str([int(value) for value in box]) for box in span.boxes)
    return f"{span.label} {boxes or span.malformed} {' '.join(span.text.split())[:60]}"
