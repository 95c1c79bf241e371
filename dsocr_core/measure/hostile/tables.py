"""Recorded runs with damaged Parquet and JSON: the damage is named, and every other run opens."""

from __future__ import annotations

from pathlib import Path
from random import Random

from dsocr_core.history.check import check
from dsocr_core.history.record import RunRecord
from dsocr_core.history.store import History
from dsocr_core.history.writer import RunWriter
from dsocr_core.measure.hostile.damage import damaged

RUNS = ("run-0", "run-1")


def attempt(random: Random, folder: Path) -> str | None:
    """One file of one of two runs, damaged; the history opened. Raises DsocrError when it is refused."""
    root = folder / "history"
    write_runs(root)
    hit = random.choice(RUNS)
    (directory,) = [place for place in root.rglob(hit) if place.is_dir()]
    file = random.choice(sorted(path for path in directory.rglob("*") if path.is_file()))
    before = file.read_bytes()
    content = damaged(random, before)
    file.write_bytes(content)
    with History(root) as history:
        named = set(history.damaged())
        there = set(history.run_ids())
        history.query("runs")
        for run in sorted(there):
            history.tables(run)
        named |= set(history.damaged()) | {damage.entry for damage in check(history).damaged}
    if not set(RUNS) - {hit} <= there:
        return f"damage of {file.name} hides another run"
    if content != before and not any(hit in name for name in named) and file.name != "SHA256SUMS":
        return f"damage of {file.name} is not named: {sorted(named)}"
    return None


def write_runs(root: Path) -> None:
    """Two runs, each with texts, numbers and lists of numbers."""
    for run_id in RUNS:
        record = RunRecord(
            id=run_id,
            created="2026-01-02T03:04:05+00:00",
            source="dsocr",
            backends=("eager",),
            engine="eager",
        )
        with RunWriter(root, record) as run:
            run.add("images", [{"page": "p", "backend": "eager", "text_raw": "text " * 20}])
            run.add("tokens", [{"page": "p", "token_ids": list(range(50))}])
            run.add("stage_timings", [{
                "page": "p", "stage": "decode", "milliseconds": 7.5, "backend": "eager",
                "inside_prefill": False, "aggregate": "page", "calls": 1,
            }])  # fmt: skip
