"""A foreign file as the run that an importer makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsocr_core.runs.importers.detect import kind_of
from dsocr_core.runs.importers.imported import RunFiles
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.schema import rows_to_table

Rows = list[dict[str, Any]]


def imported(file: Path, content: str | bytes) -> tuple[RunRecord, dict[str, Rows]]:
    """The record and the rows of the one run in a file with this content. Raises InvalidFile."""
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    files = RunFiles(file)
    (run,) = kind_of(file).read(files)
    assert not files.skipped, files.skipped
    names = {name: "timings" if name == "stage_timings" else name for name in run.tables}
    return run.record, {
        name: rows_to_table(names[name], run.record.id, list(rows)).drop_columns("run_id").to_pylist()
        for name, rows in run.tables.items()
    }
