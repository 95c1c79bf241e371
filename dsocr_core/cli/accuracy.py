"""`accuracy`: texts against OmniDocBench's ground truth, and texts written as the benchmarks read them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from rich.console import Console
from rich.progress import Progress, TextColumn

from dsocr_core.accuracy import LAYOUTS
from dsocr_core.cli.options import add_json, add_subcommand, require_positive
from dsocr_core.console import OK, SafeConsole, cancelled_by_interrupt, print_json
from dsocr_core.errors import DsocrError

_DESCRIPTION = (
    "Score texts against OmniDocBench's ground truth. Text edit distance, reading-order edit distance and "
    "table TEDS of each page, by the benchmark's own rules, for one side or for two. A side is a folder that "
    "any program has left, or a run directory of ours. --export writes a side's texts for the benchmarks."
)
_MOST_WORKERS = 8


def add(commands: Any) -> None:
    parser = add_subcommand(commands, "accuracy", _DESCRIPTION)
    parser.add_argument(
        "targets", nargs="+", metavar="A", help="A, and B: a folder of texts, or a run directory of ours"
    )
    truth = "OmniDocBench.json, or a part of its pages"
    parser.add_argument("--ground-truth", type=str, default=None, metavar="FILE", help=truth)
    parser.add_argument("--csv", type=str, default=None, metavar="FILE", help="write a row a page and side")
    words = "write A's texts into a new folder, as a benchmark's evaluator reads them"
    parser.add_argument("--export", type=str, default=None, metavar="DIR", help=words)
    parser.add_argument(
        "--layout", choices=list(LAYOUTS), default=LAYOUTS[0], help="whose layout --export writes"
    )
    workers = f"processes that measure (default: one a core, {_MOST_WORKERS} at most)"
    parser.add_argument("--workers", type=int, default=None, help=workers)
    add_json(parser)


def run(chosen: Namespace, console: Console, typed: str) -> int:
    require_positive(chosen, "workers")
    if len(chosen.targets) > 2:
        raise DsocrError(f"accuracy: {len(chosen.targets)} sides are given; give A, or A and B")
    if not chosen.ground_truth and not chosen.export:
        raise DsocrError("accuracy: give --ground-truth OmniDocBench.json, or --export DIR")
    # Arrow comes with it: after the command line is known to be good.
    from dsocr_core.accuracy.export import export
    from dsocr_core.backends.left_behind import read_left_behind

    found = [read_left_behind(target) for target in chosen.targets]
    if chosen.export:
        count = export(found[0], Path(chosen.export), chosen.layout)
        if not chosen.ground_truth and chosen.json:
            print_json({"exported": count, "layout": chosen.layout, "directory": chosen.export})
        else:
            console.print(f"{count:,} texts written to {chosen.export}", markup=False)
    if not chosen.ground_truth:
        return OK
    from dsocr_core.accuracy.ground_truth import read_ground_truth
    from dsocr_core.accuracy.measuring import measure
    from dsocr_core.accuracy.report import document, print_report, write_csv

    truth = read_ground_truth(Path(chosen.ground_truth))
    workers = chosen.workers or min(_MOST_WORKERS, os.cpu_count() or 1)
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
            measure(truth, texts, str(target), workers, lambda: bar.advance(task), cancel)
            for target, texts in zip(chosen.targets, found, strict=True)
        ]
    if chosen.csv:
        write_csv(Path(chosen.csv), truth, sides)
    if chosen.json:
        print_json(document(Path(chosen.ground_truth), truth, sides))
    else:
        print_report(console, truth, sides)
        if chosen.csv:
            console.print(f"written to {chosen.csv}", markup=False)
    return OK
