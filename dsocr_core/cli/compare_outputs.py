"""`compare` over many pages: two outputs of `run --cluster`."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import RenderableType

from dsocr_core.base.console import Name, PageTable, SafeConsole
from dsocr_core.base.system import cores
from dsocr_core.cli.over_cluster import absolute, stopped_by_interrupt
from dsocr_core.cli.read import Compared, Listed
from dsocr_core.reading.parity_records import VERDICT_WORDS, VERDICTS
from dsocr_core.reading.records import SIDES
from dsocr_core.settings import Settings, settings_of

if TYPE_CHECKING:
    from dsocr_core.cli.compare import CompareOptions
    from dsocr_core.cluster.compare import Compared as ComparedOutputs

SHOWN = 20
"""Pages that people are shown; `--json` and the files have more."""
_MOST_PROCESSES = 32


def compare_outputs(
    settings: Settings, chosen: CompareOptions, record_in: str | None, typed: str
) -> Compared:
    """Compare two outputs; the worst pages are a run of the history at `record_in`.

    Raises DsocrError, Cancelled.
    """
    from dsocr_core.cluster import compare
    from dsocr_core.cluster.output import Output

    output_a, output_b = (Output(absolute(name)) for name in chosen.images)
    out = absolute(chosen.out) if chosen.out else None
    differing = compare.settings_that_differ(output_a, output_b)
    spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    # Ctrl-C is for the command, and a terminal sends it to all.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    pool = ProcessPoolExecutor(min(cores(), _MOST_PROCESSES), spawn, signal.signal, ignore)
    status = SafeConsole(stderr=True).status("comparing")
    with stopped_by_interrupt() as cancel, pool as executor, status:

        def show(so_far: ComparedOutputs) -> None:
            status.update(f"{so_far.pages:,} pages compared, {so_far.failed:,} failed parity")

        into = f"{out}/{compare.FILES}" if out else None
        compared = compare.compare_outputs(
            output_a, output_b, settings.tolerance, executor, into, show, cancel
        )
    run_id = None
    if record_in is not None:
        a, b = (settings_of(output.run()["settings"]) for output in (output_a, output_b))
        both = replace(
            a, a=a.a or a.engine, b=b.a or b.engine, history=record_in, tolerance=settings.tolerance
        )
        run_id = compare.record_worst(both, output_a, output_b, compared.worst, typed)
    recorded = [f"recorded as run {run_id}, with the {len(compared.worst):,} worst pages"] if run_id else []
    report = _listed(compared, differing, chosen.images, run_id if chosen.save else None)
    return Compared(report, [run_id] if run_id else [], [f"written to {out}"] if out else [], recorded)


def _listed(
    compared: ComparedOutputs, differing: Sequence[str], names: Sequence[str], run_id: str | None
) -> Listed:
    """Outcome of two outputs, as it is printed."""
    from dsocr_core.read.report import PARITY_COLUMNS, PARITY_WORDS, parity_cells

    figures = ("pages", "only_a", "only_b", "neither", "passed", "failed", "worst")
    values = dict(zip(SIDES, names, strict=True)) | {name: getattr(compared, name) for name in figures} | {
        "verdicts": {verdict: compared.verdicts[verdict] for verdict in VERDICTS},
        "character_error_rate": compared.error_rate,
        "tokens_equal": compared.tokens_equal if compared.tokens_known else None,
        "settings_that_differ": list(differing),
        "run_id": run_id,
    }  # fmt: skip
    table = PageTable("Page", *PARITY_COLUMNS, words="Why")
    for row in compared.worst[:SHOWN]:
        boxes = {side: row[f"boxes_{side}"] for side in SIDES}
        table.add_row(Name(row["page"]), *parity_cells(dict(row, boxes=boxes, margins=None, causes=[])))
    shown: list[RenderableType] = [table, PARITY_WORDS] if compared.worst else []
    if (more := compared.pages - compared.verdicts["identical"] - SHOWN) > 0:
        shown.append(f"... and {more:,} more pages that are not identical, none of them worse")
    shown.append(f"A: {names[0]}   B, the reference: {names[1]}")
    shown += [f"settings differ: {words}" for words in differing]
    counts = (f"{compared.verdicts[verdict]:,} {VERDICT_WORDS[verdict]}" for verdict in VERDICTS)
    shown.append(f"{compared.pages:,} pages: {', '.join(counts)}")
    if compared.tokens_known:
        shown.append(f"tokens equal: {compared.tokens_equal:,} of {compared.tokens_known:,}")
    if compared.error_rate is not None:
        shown.append(f"mean CER: {compared.error_rate:.3%}")
    alone = {"A alone": compared.only_a, "B alone": compared.only_b, "neither": compared.neither}
    shown += [f"{count:,} pages are read by {side}: not compared" for side, count in alone.items() if count]
    return Listed(values, shown)
