"""`compare`: pages through both backends, or runs that are recorded already."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from rich.console import Console

from dsocr_core.cli import compare_outputs, over_cluster
from dsocr_core.cli.compare_runs import add_run_options, compare_runs, names_runs
from dsocr_core.cli.options import add_page_options, add_subcommand, settings_of
from dsocr_core.cli.read import read
from dsocr_core.cli.sides import add_side, choice_of
from dsocr_core.records import SIDES, VENDOR
from dsocr_core.run.plan import RunPlan, new_run_directory
from dsocr_core.settings import SettingsError, history_location, settings_against

log = logging.getLogger(__name__)

_DESCRIPTION = (
    "Read pages with two backends and report their parity: compare IMAGE ... Or compare what is recorded, "
    "without a model: compare RUN (its two backends), compare A_RUN B_RUN (ids, or directories of runs) or "
    "compare A_OUT B_OUT (outputs of run --cluster)."
)


def add(commands: Any) -> None:
    parser = add_subcommand(commands, "compare", _DESCRIPTION)
    add_page_options(parser, "images, folders or PDF files; or one or two recorded runs")
    spans = "how many spans of each backend the table shows"
    parser.add_argument("--spans", type=int, default=3, help=spans)
    add_side(parser, "a", "what reads the pages as A (default: the engine)")
    add_side(
        parser, "b", "what reads them as B (default: the vendor); several are each compared with A", True
    )
    add_run_options(parser)
    over_cluster.add_cluster_options(parser)


def run(chosen: Namespace, console: Console, typed: str) -> int:
    """Plan by where the pairs come from: outputs of a cluster, a cluster, recorded runs, pages."""
    others = [choice_of(choice) for choice in chosen.b or (None,)]
    settings = settings_of(chosen, a=choice_of(chosen.a), b=others[0])
    if compare_outputs.names_outputs(chosen.images):
        return compare_outputs.compare_recorded(settings, chosen, console)
    if chosen.cluster is not None:
        if len(others) > 1:
            raise SettingsError("--cluster compares one A with one B: give --b once")
        return compare_outputs.read_and_compare(settings, chosen, console, typed)
    if names_runs(chosen):
        return compare_runs(chosen, history_location(settings), console)
    plan = RunPlan(
        images=tuple(map(Path, chosen.images)),
        directory=Path(chosen.out or new_run_directory("compare")),
        sides=SIDES,
        pages=chosen.pages,
        recursive=chosen.recursive,
        spans=chosen.spans,
        command=typed,
    )
    all_settings = [settings.for_comparison()]
    if len(others) > 1:
        all_settings = settings_against(settings, [other or VENDOR for other in others])
    elif all_settings[0].attention_note:
        log.warning("%s", all_settings[0].attention_note)
    return read(all_settings, plan, chosen, console, f"it is in {plan.directory}")
