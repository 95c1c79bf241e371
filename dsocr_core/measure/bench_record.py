"""A bench as runs of the history, one an engine. Imports pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from analytic_model.counted import published_rows, run_rows
from dsocr_core.base.sanitise import json_bytes
from dsocr_core.measure.bench import DRAWN, BenchPlan
from dsocr_core.measure.bench_report import Bench
from dsocr_core.reading.records import VENDOR
from dsocr_core.runs.record import record_run
from dsocr_core.runs.results import PageResults, Row
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.shapes import Shape


def record_bench(
    plan: BenchPlan,
    measured: Bench,
    command: str,
    location: str,
    machine: Mapping[str, Any] | None = None,
) -> list[str]:
    """Record each engine's passes as a run of the history; returns the runs' ids. Raises DsocrError.

    `machine` is what else went on meanwhile, `MachineWatch.facts`: the engines read in turn, so it is of all.
    """
    ids = []
    for figures in measured.engines:
        results = measured.results[figures.name]
        settings = plan.for_engine("fast" if figures.name == "fast" else "eager")
        settings = replace(settings, checkpoint=figures.checkpoint)
        note = f"bench of {plan.repeat} x {plan.pages_a_pass} pages, {plan.size[0]}x{plan.size[1]}"
        record = record_run(settings, results, command, notes=note)
        environment = record.environment | ({} if machine is None else {"machine": dict(machine)})
        if figures.pages_per_s is not None:
            own = {"pages_per_s": round(figures.pages_per_s.median, 4)}
            if figures.streams > 1 and figures.tokens_per_s is not None:
                own["tokens_per_s"] = round(figures.tokens_per_s.median, 1)
            environment[figures.name] = environment.get(figures.name, {}) | own
        record = replace(record, environment=environment)
        with RunDirectory.create(location, record) as run:
            for number, result in enumerate(results):
                # Of a pass that draws a page again the number tells the copies apart.
                turn = number // plan.pages_a_pass if plan.pages_a_pass <= DRAWN else number
                page = f"{result.request.image.stem} #{turn + 1}"
                run.add(PageResults(page, results=[result]))
            (run.directory / "bench.json").write_bytes(json_bytes(measured.document(), indent=1) + b"\n")
            published = measured.published_flops if figures.name == VENDOR else {}
            run.finish(count=partial(_flops, published) if plan.count else None)
        ids.append(record.id)
    return ids


def _flops(
    published: Mapping[str, Sequence[int]],
    config: dict[str, Any] | None,
    dtype: str | None,
    shapes: Mapping[str, Iterable[Shape]],
) -> list[Row]:
    """Rows of stage_flops: by the models, and what torch counted in the published modules."""
    rows = run_rows(config, dtype, shapes)
    return [*rows, *published_rows(config, [*shapes[VENDOR]], published)] if published else rows
