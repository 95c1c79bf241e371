"""One backend as A and several as B: every page read once by each, and each B compared with A."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import TextIO

from rich.console import Console
from rich.text import Text

from dsocr_core.base.console import Name, PageTable, verdict_text
from dsocr_core.base.sanitise import json_line
from dsocr_core.page.documents import expand
from dsocr_core.read.loop import read_each
from dsocr_core.read.plan import RunPlan
from dsocr_core.read.prefetch import PageFailed, PageReader, PageToRead
from dsocr_core.read.progress import Progress
from dsocr_core.read.recorders import HistoryRecorder, Recorders, RunDirectory
from dsocr_core.read.report import SHOWN, left_over_lines
from dsocr_core.read.session import Session
from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.parity import to_document
from dsocr_core.reading.parity_records import VERDICTS, passes
from dsocr_core.reading.records import BackendName, CancelToken
from dsocr_core.runs.recording import Recording
from dsocr_core.runs.texts import UnmatchedTexts

_VERDICT_COLUMNS = ("Identical", "Within", "Differs", "Failed")
"""Short for `VERDICTS`: all columns fit into 80."""


@dataclass
class Against:
    """Outcome of one B."""

    name: BackendName
    verdicts: Counter[str] = field(default_factory=Counter)
    error_rates: list[float] = field(default_factory=list)
    tokens_equal: int = 0
    tokens_known: int = 0

    def add(self, comparison: Comparison) -> None:
        self.verdicts[comparison.verdict] += 1
        report = comparison.report
        if report is not None:
            self.error_rates.append(report.character_error_rate)
            self.tokens_known += report.tokens_equal is not None
            self.tokens_equal += report.tokens_equal is True

    @property
    def error_rate(self) -> float | None:
        """Mean of the pages that both read; None without one."""
        return sum(self.error_rates) / len(self.error_rates) if self.error_rates else None

    @property
    def failed(self) -> int:
        return sum(self.verdicts[verdict] for verdict in VERDICTS if not passes(verdict))


class AgainstReport:
    """All pages against A: a table for people, one JSON document for programs."""

    def __init__(self, a: BackendName, others: Sequence[BackendName]) -> None:
        self.a, self.others = a, [Against(name) for name in others]
        self.left_over: dict[BackendName, UnmatchedTexts] = {}
        """By backend, what lies in its folder and belongs to no page of the run."""
        self.histories: Sequence[Recording] = ()
        """None, or for each B that of its run with A, which has its id once it is written."""
        self._pages: list[tuple[str, dict[BackendName, Comparison] | None, str | None]] = []

    def add(self, source: str, comparisons: dict[BackendName, Comparison]) -> None:
        for other in self.others:
            other.add(comparisons[other.name])
        self._pages.append((source, comparisons, None))

    def add_failure(self, source: str, error: str) -> None:
        """No backend could read the page."""
        for other in self.others:
            other.verdicts["not_comparable"] += 1
        self._pages.append((source, None, error))

    @property
    def failed(self) -> int:
        return sum(other.failed for other in self.others)

    def write_json(self, stream: TextIO) -> None:
        pages = [
            {
                "image": source,
                "error": error,
                "against": {
                    name: to_document(comparison.report, comparison.differences)
                    for name, comparison in (comparisons or {}).items()
                },
            }
            for source, comparisons, error in self._pages
        ]
        backends = [
            {
                "name": other.name,
                "verdicts": {verdict: other.verdicts[verdict] for verdict in VERDICTS},
                "character_error_rate": other.error_rate,
                "tokens_equal": other.tokens_equal if other.tokens_known else None,
                "failed": other.failed,
                "run_id": history.id if history else None,
            }
            for other, history in zip_longest(self.others, self.histories)
        ]
        left_over = {name: left.document() for name, left in self.left_over.items()}
        document = {"a": self.a, "backends": backends, "pages": pages, "left_over": left_over}
        stream.write(json_line(document))
        stream.write("\n")

    def print(self, console: Console) -> None:
        console.print(self._totals())
        console.print(self._verdicts())
        if len(self._pages) > SHOWN:
            console.print(f"... and {len(self._pages) - SHOWN} more pages; --json has every one")
        for source, comparisons, error in self._pages[:SHOWN]:
            for line in [error] if error else _errors(self.a, comparisons or {}):
                console.print(Text(f"{source}: {line}", style="red"))
        for text in left_over_lines(self.left_over):
            console.print(text)

    def _totals(self) -> PageTable:
        table = PageTable(f"Against {self.a}", *_VERDICT_COLUMNS, "CER", "Tokens equal")
        for other in self.others:
            rate, pages = other.error_rate, sum(other.verdicts.values())
            table.add_row(
                Name(other.name),
                *(str(other.verdicts[verdict]) for verdict in VERDICTS),
                "-" if rate is None else f"{rate:.2%}",
                f"{other.tokens_equal} / {pages}" if other.tokens_known else "not known",
            )
        return table

    def _verdicts(self) -> PageTable:
        table = PageTable("Page", *(other.name for other in self.others))
        for source, comparisons, _ in self._pages[:SHOWN]:
            cells = [
                verdict_text(comparisons[other.name].verdict) if comparisons else Text("error", style="red")
                for other in self.others
            ]
            table.add_row(Name(source), *cells)
        return table


def _errors(a: BackendName, comparisons: dict[BackendName, Comparison]) -> list[str]:
    """Each side's error once."""
    found = {}
    for name, comparison in comparisons.items():
        for side, error in comparison.errors.items():
            found[a if side == "a" else name] = error
    return [f"{name}: {error}" for name, error in found.items()]


def read_against(
    sessions: Sequence[Session],
    plan: RunPlan,
    progress: Progress,
    cancel: CancelToken | None = None,
    histories: Sequence[Recording] = (),
) -> AgainstReport:
    """Read every page with A and each B into the run directory; `sessions` are under `settings_against`.

    `histories`, none or one for each of them, are the runs of A and that B; they end with this.

    A backend that fails on a page costs that page of its own. Raises DsocrError for what concerns all pages,
    Cancelled when `cancel` is set.
    """
    settings = [session.settings for session in sessions]
    first = settings[0]
    a, names = first.backend("a"), [each.backend("b") for each in settings]
    run = Recording(first, plan.command, out=plan.directory, save=False)
    with ExitStack() as stack:
        directory = stack.enter_context(RunDirectory(plan.directory, run, sessions[0], (a, *names)))
        for history in histories:
            stack.enter_context(history)
        rendered, limits = plan.directory / "pages", (first.pdf_dpi, first.max_pixels)
        pages = expand(plan.images, plan.pages, rendered, *limits, recursive=plan.recursive)
        pages = pages if plan.together is None else pages.together(plan.together)
        sides = [plan.sides, *[plan.sides[1:]] * (len(sessions) - 1)]  # A reads once
        both = list(zip(sessions, sides, strict=True))
        for session, own in both:
            session.check(own, plan.together is not None)
            session.expect(own, [pages.name(number) for number in range(len(pages))])
        recorders = Recorders(first, [directory])
        saved = [
            Recorders(each, [HistoryRecorder(history, each.side_names)])
            for each, history in zip(settings, histories, strict=bool(histories))
        ]
        report = AgainstReport(a, names)

        def load() -> None:
            for session, own in both:
                session.load(own)

        def read(page: PageToRead, stop: CancelToken) -> list[Comparison]:
            return [
                session.compare(page.request, own, None, stop, prepared=page.prepared)
                for session, own in both
            ]

        def keep(page: PageToRead, parts: list[Comparison]) -> None:
            keys = {each.side("b").name: each.key("b", page.request) for each in sessions}
            page, whole = replace(page, keys=page.keys | keys), parts[0]
            a_errors = {"a": whole.errors["a"]} if "a" in whole.errors else {}
            compared = {
                name: replace(part, a=whole.a, errors={**part.errors, **a_errors})  # type: ignore[dict-item]
                for name, part in zip(names, parts, strict=True)
            }
            recorders.add(page, whole, list(zip(settings, parts, strict=True))[1:])
            for recorder, name in zip(saved, names, strict=False):
                recorder.add(page, compared[name])
            report.add(page.source, compared)

        progress.start(len(pages))
        reader = PageReader(sessions[0], pages, plan.sides, load=load)
        in_flight = max(session.concurrency(plan.sides) for session in sessions)
        with closing(read_each(reader.read, len(pages), read, in_flight, cancel)) as outcomes:
            for page, parts in outcomes:
                if isinstance(page, PageToRead) and parts is not None:
                    keep(page, parts)
                elif isinstance(page, PageFailed):
                    for recorder in (recorders, *saved):
                        recorder.add_failure(page)
                    report.add_failure(page.source, page.error)
                progress.advance()
        for session, own in both:
            report.left_over |= session.left_over(own)
        report.histories = histories
    return report
