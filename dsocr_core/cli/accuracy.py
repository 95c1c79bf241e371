"""`accuracy`: texts against OmniDocBench's ground truth, and texts written as the benchmarks read them."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TextColumn

from dsocr_core.accuracy import Layout
from dsocr_core.base.console import OK, SafeConsole, cancelled_by_interrupt, print_json
from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.options import require_packages

PACKAGES = ("apted", "lxml", "bs4", "pylatexenc", "scipy")
_MOST_WORKERS = 8


def accuracy(
    targets: tuple[str, ...],
    *,
    ground_truth: Path | None = None,
    official: Path | None = None,
    csv: Path | None = None,
    export: Path | None = None,
    layout: Layout = "omnidocbench",
    workers: int | None = None,
    json: bool = False,
    console: Console,
) -> int:
    """Score texts against OmniDocBench's ground truth. Edit distance of text, reading order and formulas, and
    table TEDS of each page, by the benchmark's own rules, for one side or for two. A side is a folder that
    any program has left, or a run directory of ours. --export writes a side's texts for the benchmarks.

    Args:
        targets: A, and B: a folder of texts, or a run directory of ours
        ground_truth: OmniDocBench.json, or a part of its pages
        official: a metric_result.json of the benchmark's own evaluator, whose figures are shown beside
        csv: write a row a page and side
        export: write A's texts into a new folder, as a benchmark's evaluator reads them
        layout: whose layout --export writes
        workers: processes that measure (default: one a core, 8 at most)
    """
    if len(targets) > 2:
        raise DsocrError(f"accuracy: {len(targets)} sides are given; give A, or A and B")
    if not ground_truth and not export:
        raise DsocrError("accuracy: give --ground-truth OmniDocBench.json, or --export DIR")
    if ground_truth:
        require_packages("accuracy", PACKAGES, "requirements-accuracy.txt")
    # Arrow comes with it: after the command line is known to be good.
    from dsocr_core.accuracy.export import export as write_texts
    from dsocr_core.backends.left_behind import read_left_behind

    found = [read_left_behind(target) for target in targets]
    if export:
        count = write_texts(found[0], export, layout)
        if not ground_truth and json:
            print_json({"exported": count, "layout": layout, "directory": str(export)})
        else:
            console.print(f"{count:,} texts written to {export}", markup=False)
    if not ground_truth:
        return OK
    from dsocr_core.accuracy.ground_truth import read_ground_truth
    from dsocr_core.accuracy.measuring import measure
    from dsocr_core.accuracy.report import document, print_report, read_result, write_csv

    truth = read_ground_truth(ground_truth)
    theirs = read_result(official) if official else None
    processes = workers or min(_MOST_WORKERS, os.cpu_count() or 1)
    with (
        cancelled_by_interrupt() as cancel,
        Progress(
            TextColumn("{task.completed} of {task.total} pages"),
            console=SafeConsole(stderr=True),
            transient=True,
        ) as bar,
    ):
        task = bar.add_task("", total=len(truth.pages) * len(found))
        sides = [
            measure(truth, texts, target, processes, lambda: bar.advance(task), cancel)
            for target, texts in zip(targets, found, strict=True)
        ]
    if csv:
        write_csv(csv, truth, sides)
    if json:
        print_json(document(ground_truth, truth, sides, theirs))
    else:
        print_report(console, truth, sides, theirs)
        if csv:
            console.print(f"written to {csv}", markup=False)
    return OK
