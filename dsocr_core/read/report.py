"""Outcome of many pages: a table for people, one JSON document for programs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import zip_longest
from tempfile import TemporaryFile
from typing import Any, TextIO

from rich.console import Console, Group, RenderableType
from rich.text import Text

from dsocr_core.base.console import titled_table
from dsocr_core.base.formatting import duration, percent
from dsocr_core.base.sanitise import json_line, visible
from dsocr_core.engine.drafts.statistics import DraftStatistics
from dsocr_core.models.stages import Stage
from dsocr_core.page.compression import compression
from dsocr_core.read.loop import PageOutcome
from dsocr_core.read.prefetch import PageDone
from dsocr_core.reading.parity import Comparison, to_document
from dsocr_core.reading.parity_records import (
    NOT_KNOWN,
    VERDICTS,
    Cause,
    Difference,
    Verdict,
    passes,
)
from dsocr_core.reading.postprocess import clean_text
from dsocr_core.reading.records import POSTPROCESS_ERROR, BackendName, OcrResult

PARITY_WORDS = "Blocks: A / B. Shift: the largest of matched boxes. Tokens: the first that differs."
PARITY_COLUMNS: Sequence[str] = ("Verdict", "Blocks", "Shift", "CER", "Tokens")
SHOWN = 100
"""Pages that people are shown; a longer table is of no use to them."""
_MOST_NAMED = 5
Pairs = Sequence[Comparison]
Cells = Sequence[RenderableType]
Shown = tuple[str, Cells, str]  # a page's name, the cells of its row, and why it differs


def report_of(backends: Sequence[BackendName], spans: int = 0) -> Report:
    """An empty report of A, of A and B, or of A and several B. It shows `spans` spans a page and backend."""
    kind = (RunReport, Report, SeveralReport)[min(len(backends), 3) - 1]
    return kind(tuple(backends), spans)


class Report:
    """Outcome of all pages; this one of A and B. In memory are figures and the table's first pages; the rows
    of the JSON document are in a temporary file.
    """

    columns = PARITY_COLUMNS

    def __init__(self, backends: tuple[BackendName, ...], spans: int = 0) -> None:
        self.backends, self._spans = backends, spans
        self.pages = self.passed = self.stopped = self.failed = self.skipped = 0
        """`stopped` pages of a run without comparison ended at the token limit: what they show is a part.
        `skipped` pages were done before."""
        self.read = self.boxes = 0  # pages that A read, and the blocks it found on them
        self.left_over: Mapping[BackendName, Mapping[str, Sequence[str]]] = {}
        """By backend, what lies in its folder and belongs to no page of the run."""
        self.run_ids: Sequence[str | None] = ()  # of the runs of the history that hold the pages, by B
        self.drafts = DraftStatistics()
        self._rows = TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
        self._shown: list[Shown] = []
        self._lines: list[Text] = []

    def add(self, outcome: PageOutcome) -> None:
        """Add what became of a page."""
        if isinstance(outcome.page, PageDone):
            self.skipped += 1
        else:
            self.take(outcome.page.source, outcome.comparisons, getattr(outcome.page, "error", None))

    def take(self, source: str, comparisons: Pairs, error: str | None = None) -> None:
        """Add a page of that name. `error` says why no backend could read it."""
        results, failed = _results(comparisons), dict.fromkeys([error] if error else [])
        for number, comparison in enumerate(comparisons, start=1):
            for side, why in comparison.errors.items():
                failed[f"{self.backends[0 if side == 'a' else number]}: {why}"] = None
        self.pages += 1
        if a := next((each.a for each in comparisons if each.a), None):
            self.read += 1
            self.boxes += len(a.blocks)
        for result in results:
            self.drafts.add(result.environment)
        row, cells = self._page(comparisons, "; ".join(failed) or None)
        self._rows.write(json_line({"image": source} | row) + "\n")
        if len(self._shown) < SHOWN:
            self._shown.append((source, cells, _why(row)))
        if len(self._lines) < SHOWN * (1 + 2 * self._spans):
            self._lines += [Text(f"{source}: {each}", style="red") for each in failed]
            self._lines += [] if failed else _lines(source, results, self._spans)

    def write_json(self, stream: TextIO) -> None:
        """The JSON document of `--json`, a row at a time."""
        self._rows.seek(0)
        stream.write('{"pages": [')
        for number, line in enumerate(self._rows):
            stream.write((", " if number else "") + line.rstrip("\n"))
        stream.write("], " + json.dumps(self._totals() | {"left_over": self.left_over})[1:] + "\n")

    def print(self, console: Console) -> None:
        """A table for people, errors, and the first spans of each backend."""
        console.print(_table("Page", self.columns, self._shown))
        if more := self.pages - len(self._shown):
            console.print(f"... and {more} more; every page is in the run directory, and in --json")
        for line in self._lines:
            console.print(line, no_wrap=line.no_wrap)
        if len(self.backends) == 2:
            console.print(PARITY_WORDS)
            console.print(Text(f"A: {self.backends[0]}   B, the reference: {self.backends[1]}"))
        for name, left in self.left_over.items():
            for what, names in left.items():
                first = ", ".join([*names[:_MOST_NAMED], *["..."] * (len(names) > _MOST_NAMED)])
                words = f"{name}: {what.replace('_', ' ')} ({len(names)}): {first}"
                console.print(Text(words, style="yellow"))
        if self.drafts.words:
            console.print(self.drafts.words)
        self._print_totals(console)

    # --- of A and B -----------------------------------------------------------------------------

    def _page(self, comparisons: Pairs, error: str | None) -> tuple[dict[str, Any], Cells]:
        """Count a page. Returns its row of the document, and its cells by `columns`."""
        passed = not error and all(passes(each.verdict) for each in comparisons)
        self.passed += passed
        self.failed += not passed
        # A page that could not be opened has only failed.
        parity = to_document(None, [Difference("failed", error or "")])
        for each in comparisons:
            parity = to_document(each.report, each.differences)
        row = {**parity, **_figures(comparisons), "error": error}
        return row, _parity_cells(row)

    def _totals(self) -> dict[str, Any]:
        counts = {"passed": self.passed, "failed": self.failed, "skipped": self.skipped}
        return counts | {"drafts": self.drafts.document()}

    def _print_totals(self, console: Console) -> None:
        stopped = f"{self.stopped} stopped at the token limit, " if self.stopped else ""
        skipped = f", {self.skipped} done before" if self.skipped else ""
        console.print(f"{self.passed} passed, {stopped}{self.failed} failed{skipped}")


class RunReport(Report):
    """Pages that A alone reads."""

    columns = ("Blocks", "Tokens", "End", "Prefill", "Decode", "Total", "Tokens/s")

    def _page(self, comparisons: Pairs, error: str | None) -> tuple[dict[str, Any], Cells]:
        result = next(iter(_results(comparisons)), None)
        stopped = not error and result is not None and result.finish_reason == "length"
        self.failed += bool(error)
        self.stopped += stopped
        self.passed += not (error or stopped)
        names = {"text_raw": "text_raw", "tokens": "new_tokens", "finish_reason": "finish_reason"}
        values = {name: getattr(result, attribute, None) for name, attribute in names.items()}
        row = {**values, **_figures(comparisons), "error": error}
        if result is None:
            return row, ["-"] * len(self.columns)
        tokens, decode_ms = result.new_tokens, result.milliseconds(Stage.DECODE)
        total_ms = result.total_ms if result.timings else None
        times = result.milliseconds(Stage.PREFILL), decode_ms, total_ms
        end = result.finish_reason or visible(result.environment.get("finish_reason", NOT_KNOWN))
        return row, [
            str(len(result.blocks)),
            NOT_KNOWN if tokens is None else str(tokens),
            "limit" if end == "length" else end,
            *("-" if ms is None else duration(ms) for ms in times),
            f"{tokens / decode_ms * 1e3:.3g}" if tokens and decode_ms else "-",
        ]

    def _totals(self) -> dict[str, Any]:
        return super()._totals() | {"stopped_at_limit": self.stopped}


class SeveralReport(Report):
    """Pages of A and several B, each compared with A; `failed` counts pairs."""

    def __init__(self, backends: tuple[BackendName, ...], spans: int = 0) -> None:
        super().__init__(backends, 0)
        self.columns = backends[1:]
        self._verdicts = {name: Counter[str]() for name in self.columns}

    def _page(self, comparisons: Pairs, error: str | None) -> tuple[dict[str, Any], Cells]:
        for name, comparison in zip_longest(self.columns, comparisons):
            verdict: Verdict = comparison.verdict if comparison else "not_comparable"
            self._verdicts[name][verdict] += 1
            self.failed += not passes(verdict)
        documents = (to_document(each.report, each.differences) for each in comparisons)
        row = {
            "error": None if comparisons else error,
            "against": dict(zip(self.columns, documents, strict=False)),
        }
        failed = [Text("error", style="red")] * len(self.columns)
        return row, [_verdict_text(each.verdict) for each in comparisons] or failed

    def _totals(self) -> dict[str, Any]:
        ids = (*self.run_ids, *[None] * len(self.columns))
        backends = [
            {
                "name": name, "verdicts": {verdict: of[verdict] for verdict in VERDICTS},
                "failed": sum(of[verdict] for verdict in VERDICTS if not passes(verdict)), "run_id": run_id,
            }
            for (name, of), run_id in zip(self._verdicts.items(), ids, strict=False)
        ]  # fmt: skip
        return {"a": self.backends[0], "backends": backends}

    def _print_totals(self, console: Console) -> None:
        columns = ("Identical", "Within", "Differs", "Failed")
        rows = [
            (row["name"], [*map(str, row["verdicts"].values())], "") for row in self._totals()["backends"]
        ]
        console.print(_table(f"Against {self.backends[0]}", columns, rows))


# --- one page -------------------------------------------------------------------------------------


def parity_table(rows: Iterable[tuple[str, Mapping[str, Any]]]) -> RenderableType:
    """A table of pages that were compared, each a name and its `to_document`."""
    return _table("Page", PARITY_COLUMNS, [(name, _parity_cells(row), _why(row)) for name, row in rows])


def _table(first: str, columns: Sequence[str], rows: Sequence[Shown]) -> RenderableType:
    """A table of figures, and below it a line a page that differs: why."""
    table = titled_table("", first, *columns)
    for name, cells, _ in rows:
        table.add_row(Text(" ".join(name.split())), *cells)
    return Group(table, *(Text(f"{name}: {words}") for name, _, words in rows if words))


def _parity_cells(row: Mapping[str, Any]) -> Cells:
    """The cells of `PARITY_COLUMNS`."""
    boxes, rate, equal = row["boxes"], row["character_error_rate"], row["tokens_equal"]
    first, margins = row["first_divergence"], row["margins"]
    tie = "" if margins is None else ", a tie" if margins["tie"] else ", no tie"
    diverging = "at the end" if first is None else f"from {first}{tie}"
    return [
        _verdict_text(row["verdict"]),
        "-" if boxes["a"] is None else f"{boxes['a']} / {boxes['b']}",
        percent(row["max_coordinate_difference_percent"], "-"),
        "-" if rate is None else f"{rate:.1%}",
        NOT_KNOWN if equal is None else "equal" if equal else diverging,
    ]


def _why(row: Mapping[str, Any]) -> str:
    """Reasons of a compared page, and its likeliest cause."""
    causes = [Cause(each["cause"], each["words"]).sentence for each in row.get("causes", ())[:1]]
    return "; ".join([*row.get("reasons", ()), *causes])


def _results(comparisons: Iterable[Comparison]) -> list[OcrResult]:
    """Each backend's result once, A's first."""
    found = {result.backend: result for each in comparisons for result in each.results.values()}
    return [*found.values()]


def _figures(comparisons: Pairs) -> dict[str, Any]:
    """By backend its times, its compression and what `infer` returns, where these were asked for; notes."""
    results = _results(comparisons)
    counted = [(result.backend, figures) for result in results if (figures := compression(result))]
    return {
        "timings_ms": {
            result.backend: {timing.stage.value: round(timing.milliseconds, 3) for timing in result.timings}
            for result in results
        },
        "compression": {name: figures._asdict() | {"ratio": figures.ratio} for name, figures in counted},
        "returned": {each.backend: clean_text(each.text_raw) for each in results if each.request.eval_mode},
        "notes": [note for result in results for note in _notes(result)],
    }


def _notes(result: OcrResult) -> list[str]:
    """List what was odd about a result that is there."""
    problem = result.environment.get(POSTPROCESS_ERROR)
    failed = [f"failed after its text was there ({problem}); its tokens are kept"] if problem else []
    return [f"{result.backend}: {note}" for note in (*failed, *result.notes)]


def _lines(source: str, results: Sequence[OcrResult], spans: int) -> list[Text]:
    """The first spans of each backend, its compression and what was odd."""
    lines = []
    for result in results:
        for span in result.blocks[:spans]:
            boxes = " ".join(str([int(value) for value in box]) for box in span.boxes) or span.malformed
            words = f"{source} {result.backend}: {span.label} {boxes} {' '.join(span.text.split())[:60]}"
            lines.append(Text(words, overflow="ellipsis", no_wrap=True))
    counted = [(result.backend, figures) for result in results if (figures := compression(result))]
    lines += [Text(f"{source} {name}: {figures}") for name, figures in counted]
    return lines + [Text(f"{source} {note}", style="yellow") for each in results for note in _notes(each)]


_STYLES = {"identical": "green", "within_tolerance": "yellow", "not_comparable": "bright_black"}


def _verdict_text(verdict: str) -> Text:
    """A verdict of parity in its colour; green is for pages without a difference."""
    return Text(verdict.replace("_", " "), style=_STYLES.get(verdict, "red"))
