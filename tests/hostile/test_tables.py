"""Tables with columns of types that no version wrote: an import refuses them in one line, or takes them."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.runs.checksums import CHECKSUMS
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from tests.hostile.tables import write_runs


def imported(root: Path, change: dict[str, pa.Array], twice: bool = False) -> tuple[int, list[str]]:
    """What came of a run whose table `readings` has other columns: how many runs, and why files were left."""
    write_runs(root / "made")
    file = next((root / "made").rglob("run-0/readings.parquet"))
    table = pq.read_table(file)
    for name, value in change.items():
        column = value.take(pa.array([0] * len(table)))
        there = table.column_names.index(name) if name in table.column_names and not twice else None
        table = table.append_column(name, column) if there is None else table.set_column(there, name, column)
    pq.write_table(table, file)
    (file.parent / CHECKSUMS).unlink(missing_ok=True)
    with History(root / "history") as history:
        report = import_paths(history, [file.parent])
        return len(report.imported), [item.reason for item in report.skipped]


def test_a_column_twice_is_refused(tmp_path: Path) -> None:
    runs, reasons = imported(tmp_path, {"page": pa.array(["p"])}, twice=True)
    assert runs == 0 and any("readings.parquet has a column twice" in reason for reason in reasons)
