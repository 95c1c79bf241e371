"""`bench`: what a page costs, engine by engine."""

from __future__ import annotations

from typing import Any

from jsonargparse import Namespace
from rich.console import Console

from dsocr_core.cli.options import (
    NVTX_ONLY,
    add_json,
    add_settings,
    add_subcommand,
    settings_of,
)
from dsocr_core.console import OK, cancelled_by_interrupt, print_json
from dsocr_core.history.machine import MachineWatch
from dsocr_core.settings import EngineName, SettingsError, history_location

COLUMNS = 100
_OWN = ("engine",)
"""Settings that `bench` has an option of its own for: it takes several engines."""


def add(commands: Any) -> None:
    description = "Measure what a page costs, engine by engine. The last line is one JSON document."
    parser = add_subcommand(commands, "bench", description)
    parser.add_argument("--engine", nargs="+", type=EngineName, default=["eager"], help="engines to measure")
    vendor = "measure the vendor backend on this directory too; its code must be allowed"
    parser.add_argument("--vendor-checkpoint", type=str, default=None, metavar="DIR", help=vendor)
    parser.add_argument("--size", type=str, default="1280x1280", metavar="WxH", help="of the page in pixels")
    parser.add_argument("--tokens", type=int, default=100, help="new tokens; the end token is ignored")
    parser.add_argument("--batch", type=int, default=1, help="pages that the fast engine reads together")
    parser.add_argument("--pages", type=int, default=None, help="pages of one pass (default: --batch)")
    parser.add_argument("--repeat", type=int, default=5, help="measured passes, after the warm-up")
    parser.add_argument("--nvtx-only", action="store_true", help=NVTX_ONLY)
    parser.add_argument("--save", action="store_true", help="record each engine as a run of the history")
    add_json(parser)
    add_settings(parser, skip=_OWN)


def run(chosen: Namespace, console: Console, typed: str) -> int:
    settings = settings_of(chosen, skip=_OWN)
    if chosen.save and chosen.nvtx_only:
        raise SettingsError("--nvtx-only measures nothing that could be recorded: leave --save out")
    from dsocr_core.measure.bench import BenchPlan, bench
    from dsocr_core.measure.synthetic_page import parse_size

    if chosen.save:  # a package that it lacks is named before anything is measured
        from dsocr_core.measure.bench_record import record_bench
    plan = BenchPlan(
        settings,
        tuple(chosen.engine),
        chosen.vendor_checkpoint,
        parse_size(chosen.size),
        chosen.tokens,
        chosen.batch,
        chosen.repeat,
        chosen.nvtx_only,
        chosen.pages,
    )
    machine = MachineWatch()
    with cancelled_by_interrupt() as cancel:
        measured = bench(plan, cancel)
    machine.look()
    document = measured.document()
    if not chosen.json:
        if not console.is_terminal:
            console.width = COLUMNS
        measured.print(console)
    if chosen.save:
        document["saved"] = record_bench(plan, measured, typed, history_location(settings), machine.facts())
    print_json(document)
    return OK
