"""What a run over many pages leaves in the history: one run with its figures, stage by stage and by worker.

Its pages stay in the output: a million of them are no table for a page of the app.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dsocr_core.cluster.compare_shard import ShardOf, comparisons
from dsocr_core.cluster.comparing import Pair
from dsocr_core.cluster.figures import Figures
from dsocr_core.cluster.rows import Row
from dsocr_core.history.record import record_run
from dsocr_core.history.recorder import RunRecorder
from dsocr_core.history.storage.entries import open_storage
from dsocr_core.history.writer import RunWriter
from dsocr_core.settings import Settings, history_location
from dsocr_core.stages import INSIDE_PREFILL

MOST_WORKERS = 256
_INSIDE = frozenset(stage.value for stage in INSIDE_PREFILL)


def record_figures(settings: Settings, figures: Figures, command: str, output: str, notes: str | None) -> str:
    """Write the run; returns its id. Raises StorageError."""
    backend = settings.backend("a")
    made = record_run(settings, [], command, notes=notes)
    record = replace(
        made,
        backends=(backend,),
        preset=settings.preset_name,
        environment=made.environment | {"cluster": cluster_facts(figures, output)},
    )
    with RunWriter(open_storage(history_location(settings)), record) as writer:
        writer.add("stage_timings", _mean_times(figures, backend))
    return record.id


def record_worst(settings: Settings, pair: Pair, worst: Sequence[Row], command: str) -> str | None:
    """Write a comparison's worst pages as a run that Review opens on; its id. Raises DsocrError."""
    numbers = {row["number"] for row in worst}
    names = settings.side_names
    with RunRecorder(settings, command) as recorder:
        for a, b in pair.shards_of(numbers):
            side_a = ShardOf(pair.a.store.location, a, names[0])
            side_b = ShardOf(pair.b.store.location, b, names[1])
            for row, comparison in comparisons(side_a, side_b, pair.tolerance):
                if row["number"] in numbers:
                    recorder.add(row["source"], comparison)
    return recorder.id


def cluster_facts(figures: Figures, output: str) -> dict[str, Any]:
    """Totals, causes of failures, and each worker's speed and mean stage times."""
    slow = set(figures.stragglers)
    slowest_first = sorted(figures.workers.values(), key=lambda worker: worker.pages_per_s or 0.0)
    return {
        "output": output,
        "pages": figures.pages,
        "read": figures.read,
        "failed": figures.failed,
        "quarantined": figures.quarantined,
        "pages_per_s": _rounded(figures.pages_per_s),
        "causes": dict(figures.causes),
        "stragglers": figures.stragglers,
        "workers": {
            worker.name: {
                "pages": worker.pages,
                "pages_per_s": _rounded(worker.pages_per_s),
                "straggler": worker.name in slow,
                "ms_per_page": {
                    stage: round(milliseconds / worker.pages, 3)
                    for stage, milliseconds in worker.stages.items()
                },
            }
            for worker in slowest_first[:MOST_WORKERS]
            if worker.pages
        },
    }


def _mean_times(figures: Figures, backend: str) -> list[dict[str, Any]]:
    total: dict[str, float] = {}
    for worker in figures.workers.values():
        for stage, milliseconds in worker.stages.items():
            total[stage] = total.get(stage, 0.0) + milliseconds
    return [
        {
            "backend": backend, "stage": stage, "milliseconds": milliseconds / figures.read,
            "inside_prefill": stage in _INSIDE, "aggregate": "mean",
        }
        for stage, milliseconds in total.items()
        if figures.read
    ]  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
