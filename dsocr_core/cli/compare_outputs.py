"""`compare` over many pages: two outputs of `run --cluster`."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn

from dsocr_core.base.console import Name, PageTable, SafeConsole
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.sanitise import json_line
from dsocr_core.base.system import cores
from dsocr_core.cli import over_cluster
from dsocr_core.cli.compare_runs import is_output, may_be_run
from dsocr_core.cli.read import Compared as ComparedPages
from dsocr_core.reading.parity_records import VERDICT_WORDS, VERDICTS, Tolerance
from dsocr_core.reading.records import SIDES, Side
from dsocr_core.settings import Settings, settings_of

if TYPE_CHECKING:
    from dsocr_core.cli.compare import CompareOptions
    from dsocr_core.cluster.compare import Compared
    from dsocr_core.cluster.output import Output

SHOWN = 20
"""Pages that people are shown; `--json` and the files have more."""
_MOST_PROCESSES = 32


def names_outputs(names: Sequence[str]) -> bool:
    """Tell whether these are two outputs of `run --cluster`, directories or URLs.

    Raises DsocrError for a mixture with pages, StorageError.
    """
    outputs = [name for name in names if is_output(name)]
    if len(outputs) == 1 and len(names) == 2 and all(map(may_be_run, names)):
        return False  # one of them is read as a run
    if outputs and (len(outputs) < len(names) or len(names) != 2):
        other = next((name for name in names if name not in outputs), None)
        wrong = f"'{other}' is none" if other else f"{len(names)} are given"
        raise DsocrError(
            f"compare: '{outputs[0]}' is an output of run --cluster, and {wrong}: give two of them, one and "
            "a run, or pages"
        )
    return bool(outputs)


def compare_recorded(
    settings: Settings, chosen: CompareOptions, record_in: str | None, typed: str
) -> ComparedPages:
    """Compare two outputs; the worst pages are a run of the history at `record_in`. Raises as it reads."""
    from dsocr_core.cluster.compare import record_worst, settings_that_differ
    from dsocr_core.cluster.output import Output

    output_a, output_b = (Output(over_cluster.absolute(name)) for name in chosen.images)
    names: dict[Side, str] = dict(zip(SIDES, chosen.images, strict=True))
    into = over_cluster.absolute(chosen.out) if chosen.out else None
    differing = settings_that_differ(output_a, output_b)
    spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    with (
        over_cluster.stopped_by_interrupt() as cancel,
        ProcessPoolExecutor(min(cores(), _MOST_PROCESSES), spawn, initializer=_leave_interrupts) as executor,
    ):
        compared = _compared(output_a, output_b, settings.tolerance, executor, into, cancel)
    run_id = None
    if record_in is not None:
        a, b = (settings_of(output.run()["settings"]) for output in (output_a, output_b))
        both = replace(
            a, a=a.a or a.engine, b=b.a or b.engine, history=record_in, tolerance=settings.tolerance
        )
        run_id = record_worst(both, output_a, output_b, compared.worst, typed)
    recorded = [f"recorded as run {run_id}, with the {len(compared.worst):,} worst pages"] if run_id else []
    written = [f"written to {into}"] if into else []
    report = _Outputs(compared, differing, names, run_id if chosen.save else None)
    return ComparedPages(report, [run_id] if run_id else [], written, recorded)


def _leave_interrupts() -> None:
    """Ctrl-C is for the command, and a terminal sends it to all."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _compared(
    a: Output, b: Output, tolerance: Tolerance, executor: Executor, location: str | None,
    cancel: threading.Event,
) -> Compared:  # fmt: skip
    """Raises DsocrError, Cancelled."""
    from dsocr_core.cluster.compare import FILES, compare_outputs

    columns = (SpinnerColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=SafeConsole(stderr=True), transient=True) as progress:
        task = progress.add_task("comparing")

        def show(compared: Compared) -> None:
            pages, failed = compared.pages, compared.failed
            progress.update(task, description=f"{pages:,} pages compared, {failed:,} failed parity")

        into = None if location is None else f"{location}/{FILES}"
        return compare_outputs(a, b, tolerance, executor, into, show, cancel)


# --- what is told -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Outputs:
    """Outcome of two outputs, as it is printed."""

    compared: Compared
    differing: Sequence[str]
    names: Mapping[Side, str]
    run_id: str | None = None

    @property
    def failed(self) -> int:
        return self.compared.failed

    def write_json(self, stream: TextIO) -> None:
        compared = self.compared
        document: dict[str, Any] = {
            **{side: self.names[side] for side in SIDES},
            "pages": compared.pages,
            "verdicts": {verdict: compared.verdicts[verdict] for verdict in VERDICTS},
            "character_error_rate": compared.error_rate,
            "tokens_equal": compared.tokens_equal if compared.tokens_known else None,
            "only_a": compared.only_a,
            "only_b": compared.only_b,
            "neither": compared.neither,
            "passed": compared.passed,
            "failed": compared.failed,
            "settings_that_differ": list(self.differing),
            "worst": compared.worst,
            "run_id": self.run_id,
        }
        stream.write(json_line(document) + "\n")

    def explain(self, causes: Mapping[str, str]) -> None:
        """No cause is looked for in outputs."""

    def print(self, console: Console) -> None:
        from dsocr_core.read.report import PARITY_WORDS, CompareReport, parity_cells

        compared, differing, names = self.compared, self.differing, self.names
        if compared.worst:
            table = PageTable("Page", *CompareReport.columns, words="Why")
            for row in compared.worst[:SHOWN]:
                boxes = {side: row[f"boxes_{side}"] for side in SIDES}
                figures = dict(row, boxes=boxes, margins=None, causes=[])
                table.add_row(Name(row["page"]), *parity_cells(figures))
            console.print(table)
            console.print(PARITY_WORDS)
            if (more := compared.pages - compared.verdicts["identical"] - SHOWN) > 0:
                console.print(f"... and {more:,} more pages that are not identical, none of them worse")
        console.print(f"A: {names['a']}   B, the reference: {names['b']}", markup=False)
        for words in differing:
            console.print(f"settings differ: {words}", markup=False)
        counts = (f"{compared.verdicts[verdict]:,} {VERDICT_WORDS[verdict]}" for verdict in VERDICTS)
        console.print(f"{compared.pages:,} pages: {', '.join(counts)}")
        if compared.tokens_known:
            console.print(f"tokens equal: {compared.tokens_equal:,} of {compared.tokens_known:,}")
        if compared.error_rate is not None:
            console.print(f"mean CER: {compared.error_rate:.3%}")
        for side, count in (("a", compared.only_a), ("b", compared.only_b)):
            if count:
                console.print(f"{count:,} pages are read by {side.upper()} alone: not compared")
        if compared.neither:
            console.print(f"{compared.neither:,} pages are read by neither: not compared")
