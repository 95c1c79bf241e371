"""A run's rows by the names that people ask: readings as images and boxes, too."""

from __future__ import annotations

import duckdb
import pyarrow as pa

from dsocr_core.runs.history import History
from dsocr_core.runs.schema import VIEWS, relation


def flat_tables(history: History, run_id: str) -> dict[str, pa.Table]:
    """The views over a run's readings and times, and its other tables."""
    tables = history.tables(run_id)
    found = {name: table for name, table in tables.items() if name != "timings"}
    with duckdb.connect(":memory:") as connection:
        for view, (name, _) in VIEWS.items():
            if name in tables:
                connection.register("given", tables[name])
                made: pa.Table = connection.sql(f"FROM {relation(view, 'given')}").to_arrow_table()
                found |= {view: made} if len(made) else {}
    return found
