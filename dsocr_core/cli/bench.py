"""`bench`: what a page costs, engine by engine."""

from __future__ import annotations

import shlex
from typing import Any

from jsonargparse import Namespace
from rich.console import Console
from rich.text import Text

from dsocr_core.cli import over_cluster
from dsocr_core.cli.options import (
    NVTX_ONLY,
    add_json,
    add_settings,
    add_subcommand,
    require_above_zero,
    settings_of,
)
from dsocr_core.console import FAILED, OK, SafeConsole, cancelled_by_interrupt, print_json, titled_table
from dsocr_core.history.machine import MachineWatch
from dsocr_core.settings import EngineName, Settings, SettingsError, history_location

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
    over_cluster.add_where(parser)
    limit = "seconds that the bench of a cluster's worker may take"
    parser.add_argument("--bench-limit", type=float, default=3600.0, metavar="SECONDS", help=limit)
    add_settings(parser, skip=_OWN)


def run(chosen: Namespace, console: Console, typed: str) -> int:
    settings = settings_of(chosen, skip=_OWN)
    if chosen.save and chosen.nvtx_only:
        raise SettingsError("--nvtx-only measures nothing that could be recorded: leave --save out")
    if chosen.cluster is not None:
        return _on_every_worker(settings, chosen, console, typed)
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


def _on_every_worker(settings: Settings, chosen: Namespace, console: Console, typed: str) -> int:
    """The same bench on all workers of a cluster at once; returns the exit code. Raises DsocrError."""
    if chosen.save:
        raise SettingsError("--save records a bench of this machine: leave it out, or leave --cluster out")
    over_cluster.check_where(chosen)
    require_above_zero(chosen, "bench_limit")
    from dsocr_core.cluster.bench_workers import bench_workers, stragglers

    progress = SafeConsole(stderr=True)
    with (
        over_cluster.stopped_by_interrupt() as cancel,
        over_cluster.workers_of(chosen, settings.device) as cluster,
    ):
        workers = bench_workers(
            cluster.client, _of_a_worker(typed), chosen.bench_limit, cancel,
            lambda worker, left: progress.print(f"{worker.name} is done, {left} left", markup=False),
        )  # fmt: skip
    slow = {engine: stragglers(workers, engine) for engine in chosen.engine}
    if not chosen.json:
        table = titled_table("", "Worker", "Engine", "Prefill ms", "Tokens/s", "Pages/s", "")
        for worker in workers:
            for engine in worker.engines:
                figures = (worker.prefill_ms(engine), worker.decode(engine), worker.pages(engine))
                shown = ("-" if value is None else f"{value:.4g}" for value in figures)
                straggler = "straggler" if worker.name in slow.get(engine, ()) else ""
                table.add_row(Text(worker.name), engine, *shown, straggler)
        if table.rows:
            console.print(table)
        for worker in workers:
            if worker.error:
                console.print(Text(f"{worker.name}: {worker.error}", style="red"))
    documents = {worker.name: worker.document or {"error": worker.error} for worker in workers}
    print_json({"workers": documents, "stragglers": slow})
    return FAILED if any(worker.error for worker in workers) else OK


_OF_THE_DRIVER = ("--cluster", "--workers", "--bench-limit")


def _of_a_worker(typed: str) -> list[str]:
    """The options of a command line that are a worker's."""
    words = iter(shlex.split(typed))
    for word in words:
        if word == "bench":
            break
    found = []
    for word in words:
        option, equals, _ = word.partition("=")
        if option in _OF_THE_DRIVER:
            if not equals:
                next(words, None)
        elif option != "--json":
            found.append(word)
    return found
