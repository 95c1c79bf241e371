"""A foreign file as the run that an importer makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.runs.importers.detect import read_runs
from dsocr_core.runs.importers.imported import ImportedRun, RunFiles
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.schema import checked_table, rows_to_table

Rows = list[dict[str, Any]]


def imported(file: Path, content: str | bytes) -> tuple[RunRecord, dict[str, Rows]]:
    """The record and the rows of the one run in a file with this content. Raises InvalidFile."""
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    files = RunFiles(file)
    runs = read_runs(files) or ()
    for skipped in files.skipped:
        raise InvalidFile(skipped.reason)
    (run,) = runs
    return run.record, rows_of(run)


def rows_of(run: ImportedRun) -> dict[str, Rows]:
    """The rows of a run by table, as the history would have them."""
    return {
        name: (checked_table if isinstance(rows, pa.Table) else rows_to_table)(name, run.record.id, rows)
        .drop_columns("run_id")
        .to_pylist()
        for name, rows in run.tables.items()
    }
