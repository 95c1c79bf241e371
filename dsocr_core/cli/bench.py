"""`bench`: what a page costs, engine by engine."""

from __future__ import annotations

import json
from collections.abc import Sequence

from jsonargparse import Namespace
from rich.console import Console

from dsocr_core.console import OK, cancelled_by_interrupt, typed_command
from dsocr_core.settings import Settings, SettingsError, history_location

BENCH_COLUMNS = 100


def run_bench(
    settings: Settings, chosen: Namespace, console: Console, arguments: Sequence[str] | None
) -> int:
    from dsocr_core.measure.bench import BenchPlan, bench, save
    from dsocr_core.measure.synthetic_page import parse_size

    if chosen.save and chosen.nvtx_only:
        raise SettingsError("--nvtx-only measures nothing that could be saved: leave --save out")
    if chosen.save:
        import dsocr_core.history.store  # noqa: F401  a package that it lacks is told before all is measured
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
    with cancelled_by_interrupt() as cancel:
        measured = bench(plan, cancel)
    document = measured.document()
    if not chosen.json:
        if not console.is_terminal:
            console.width = BENCH_COLUMNS
        measured.print(console)
    if chosen.save:
        document["saved"] = save(plan, measured, typed_command(arguments), history_location(settings))
    print(json.dumps(document, ensure_ascii=False))
    return OK
