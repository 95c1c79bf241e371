"""`compare`: pages through both backends, or runs that are recorded already."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from rich.console import Console

from dsocr_core.cli.compare_runs import add_run_options, compare_runs, names_runs
from dsocr_core.cli.options import add_page_options, add_subcommand, settings_of
from dsocr_core.cli.read import read
from dsocr_core.records import SIDES
from dsocr_core.run.plan import RunPlan, new_run_directory
from dsocr_core.settings import history_location

log = logging.getLogger(__name__)

_DESCRIPTION = (
    "Read pages with both backends and report their parity: compare IMAGE ... Or compare what is recorded, "
    "without a model: compare RUN (its two backends) or compare A_RUN B_RUN, each an id or a run's directory."
)


def add(commands: Any) -> None:
    parser = add_subcommand(commands, "compare", _DESCRIPTION)
    add_page_options(parser, "images, folders or PDF files; or one or two recorded runs")
    spans = "how many spans of each backend the table shows"
    parser.add_argument("--spans", type=int, default=3, help=spans)
    add_run_options(parser)


def run(chosen: Namespace, console: Console, typed: str) -> int:
    settings = settings_of(chosen).for_comparison()
    if names_runs(chosen):
        return compare_runs(chosen, history_location(settings), console)
    if settings.attention_note:
        log.warning("%s", settings.attention_note)
    plan = RunPlan(
        images=tuple(map(Path, chosen.images)),
        directory=Path(chosen.out or new_run_directory("compare")),
        sides=SIDES,
        pages=chosen.pages,
        spans=chosen.spans,
        command=typed,
    )
    return read(settings, plan, chosen, console, f"it is in {plan.directory}")
