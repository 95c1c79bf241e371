"""`status`: how far a run over many pages is, from any machine that sees its output."""

from __future__ import annotations

from typing import Any

from jsonargparse import Namespace
from rich.console import Console

from dsocr_core.cli.options import add_json, add_subcommand
from dsocr_core.console import OK, print_json
from dsocr_core.words import duration


def add(commands: Any) -> None:
    parser = add_subcommand(commands, "status", "Say how far a run over a cluster is, from its output.")
    parser.add_argument("directory", type=str, metavar="DIR", help="its --out: a directory or a URL")
    add_json(parser)


def run(chosen: Namespace, console: Console, typed: str) -> int:
    from dsocr_core.cluster.figures import causes_words
    from dsocr_core.cluster.output import Output
    from dsocr_core.cluster.progress import worker_table
    from dsocr_core.cluster.status import StatusReader

    reader = StatusReader(Output(chosen.directory))
    status, figures = reader.read(), reader.figures
    if chosen.json:
        print_json(status.to_json())
        return OK
    words = f"{status.done:,} of {status.pages:,} pages read"
    if status.pages_per_s:
        words += f", {status.pages_per_s:.3g} pages/s"
        if not status.complete:
            words += f", {duration(1e3 * status.left / status.pages_per_s)} left at that speed"
    console.print(words, markup=False)
    if figures.causes:
        failed = f"{status.failed:,} failed, {status.quarantined:,} quarantined"
        console.print(f"{failed}: {causes_words(figures.causes)}", markup=False)
    if figures.workers:
        console.print(worker_table(figures))
    console.print("complete" if status.complete else "not complete", markup=False)
    return OK
