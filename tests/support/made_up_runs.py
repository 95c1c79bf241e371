"""Small histories with known content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.run_directory import RunDirectory

HOSTILE = (
    "it's", 'say "hi"', "'; DROP TABLE runs; --", "<script>alert(1)</script>", "../../etc/passwd",
    "$stage $run_ids ${x}", "x" * 4000,
    "\N{GRINNING FACE} \N{HEBREW LETTER ALEF}\N{COMBINING ACUTE ACCENT}", "line\nbreak\ttab", "%s %d {name}",
    "=HYPERLINK(1) :red[x] $x^2$ `c` ![p](http://example.com/x.png) [l](javascript:alert(1))", "", " ",
    "NULL",
)  # fmt: skip


def record(run_id: str = "run-1", **values: Any) -> RunRecord:
    standard: dict[str, Any] = {
        "created": "2026-01-02T03:04:05+00:00", "source": "dsocr", "backends": ("eager",), "engine": "eager"
    }  # fmt: skip
    return RunRecord(id=run_id, **standard | values)


def timing(page: str | None, stage: str, milliseconds: float, **values: Any) -> dict[str, Any]:
    standard = {"backend": "eager", "inside_prefill": False, "aggregate": "page", "calls": 1}
    return {"page": page, "stage": stage, "milliseconds": milliseconds} | standard | values


def write_run(root: Path, run_id: str, timings: list[dict[str, Any]], **values: Any) -> RunRecord:
    """A run with these times and an image row for each page and backend in them."""
    run = record(run_id, **values)
    pages = dict.fromkeys((row["page"], row["backend"]) for row in timings if row["page"] is not None)
    with RunDirectory.create(root, run) as writer:
        writer.add_rows("timings", timings)
        writer.add_rows("readings", [{"page": page, "backend": backend} for page, backend in pages])
    return run
