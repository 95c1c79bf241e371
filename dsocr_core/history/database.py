"""The in-memory database of one process: what every page asks for, in as few bytes as it takes.

Times are the bulk. A time has two numbers beside it: its series (run, backend, stage) and its page, so ten
million of them take a quarter of a gigabyte and a run's are found without reading the others. Statistics
of a series never change, so they are made once, when it is loaded. Views show the tables of
`schema.TABLES`. What is asked for one run at a time (boxes, texts, tokens, kernels) stays in its file.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from dsocr_core.history.record import RunRecord, time_of

_TABLES = """
CREATE TABLE runs (
    run_id VARCHAR, created TIMESTAMP, source VARCHAR, command VARCHAR, backends VARCHAR[], engine VARCHAR,
    device VARCHAR, gpu VARCHAR, host VARCHAR, dtype VARCHAR, attention VARCHAR, preset VARCHAR,
    profiled BOOLEAN, git_commit VARCHAR, git_dirty BOOLEAN, notes VARCHAR
);
CREATE TABLE facts (run_id VARCHAR, section VARCHAR, name VARCHAR, value VARCHAR);
CREATE TABLE annotations (
    position BIGINT, time TIMESTAMP, run_id VARCHAR, kind VARCHAR, page VARCHAR, name VARCHAR, value VARCHAR
);
CREATE TABLE page_names (number INTEGER, page VARCHAR);
CREATE TABLE series (
    number INTEGER, run_id VARCHAR, backend VARCHAR, stage VARCHAR, inside_prefill BOOLEAN, aggregate VARCHAR
);
CREATE TABLE times (series INTEGER, page INTEGER, milliseconds DOUBLE, calls INTEGER);
CREATE TABLE stage_statistics (
    run_id VARCHAR, backend VARCHAR, stage VARCHAR, inside_prefill BOOLEAN,
    n BIGINT, median DOUBLE, p5 DOUBLE, p95 DOUBLE, mean DOUBLE, std DOUBLE, total DOUBLE
);
CREATE TABLE page_totals (
    run_id VARCHAR, backend VARCHAR, pages BIGINT, failed BIGINT, prompt_tokens BIGINT, new_tokens BIGINT
);
CREATE TABLE parity_totals (
    run_id VARCHAR, pages BIGINT, passed BIGINT, identical BIGINT, within_tolerance BIGINT, differs BIGINT,
    not_comparable BIGINT, mean_character_error_rate DOUBLE, max_coordinate_difference_percent DOUBLE
);
"""

VIEWS = """
CREATE VIEW stage_timings AS
    SELECT series.run_id, page_names.page, series.backend, series.stage, times.milliseconds, times.calls,
           series.inside_prefill, series.aggregate
    FROM times JOIN series ON series.number = times.series
    LEFT JOIN page_names ON page_names.number = times.page;
CREATE VIEW marks AS
    WITH latest AS (
        SELECT run_id, kind, name, arg_max(coalesce(value, ''), position) AS value
        FROM annotations WHERE page IS NULL GROUP BY run_id, kind, name
    )
    SELECT run_id,
           coalesce(list(name ORDER BY name) FILTER (kind = 'tag' AND value = 'on'), []) AS tags,
           max(nullif(value, '')) FILTER (kind = 'note') AS note,
           coalesce(bool_or(value = 'on') FILTER (kind = 'trash'), false) AS trashed
    FROM latest GROUP BY run_id;
"""

TOTALS = ("runs", "facts", "annotations", "stage_statistics", "page_totals", "parity_totals")
"""Tables with a few rows a run."""

HELD_IN_PARTS = ("page_names", "series", "times")
"""Of these the view `stage_timings` is made."""

# Files are read column by column, some of them twice: cheaper than keeping ten million texts for a moment.
_GIVEN = "(SELECT * FROM read_parquet($files) SEMI JOIN expected USING (run_id)) AS given"

_ADD_PAGE_NAMES = f"""
INSERT INTO page_names
    SELECT (SELECT coalesce(max(number), 0) FROM page_names) + row_number() OVER (), page
    FROM (SELECT DISTINCT page FROM {_GIVEN} WHERE page IS NOT NULL) ANTI JOIN page_names USING (page)
"""
_ADD_SERIES = f"""
INSERT INTO series
    SELECT (SELECT coalesce(max(number), 0) FROM series) + row_number() OVER (), *
    FROM (
        SELECT run_id, backend, stage, bool_or(inside_prefill), aggregate FROM {_GIVEN}
        GROUP BY run_id, backend, stage, aggregate ORDER BY run_id, backend, stage, aggregate
    )
"""
_ADD_TIMES = f"""
INSERT INTO times
    SELECT fresh.number, page_names.number, given.milliseconds, given.calls::INTEGER
    FROM {_GIVEN}
    JOIN (SELECT * FROM series SEMI JOIN expected USING (run_id)) AS fresh
         USING (run_id, backend, stage, aggregate)
    LEFT JOIN page_names USING (page)
"""
_ADD_STATISTICS = """
INSERT INTO stage_statistics
    WITH measured AS (
        SELECT series AS number, count(*) AS n, quantile_cont(milliseconds, [0.5, 0.05, 0.95]) AS quantiles,
               avg(milliseconds) AS mean, stddev_samp(milliseconds) AS std, sum(milliseconds) AS total
        FROM times WHERE series > $after GROUP BY series
    ),
    pages AS (SELECT * FROM measured JOIN series USING (number) WHERE aggregate = 'page'),
    imported AS (
        SELECT run_id, backend, stage, bool_or(inside_prefill) AS inside_prefill,
               any_value(measured.mean) FILTER (aggregate = 'mean') AS mean,
               any_value(measured.mean) FILTER (aggregate = 'std') AS std
        FROM measured JOIN series USING (number) WHERE aggregate <> 'page' GROUP BY run_id, backend, stage
    )
    SELECT run_id, backend, stage, inside_prefill, n, quantiles[1], quantiles[2], quantiles[3], mean, std,
           total
    FROM pages
    UNION ALL
    SELECT run_id, backend, stage, inside_prefill, NULL, NULL, NULL, NULL, mean, std, NULL
    FROM imported ANTI JOIN pages USING (run_id, backend, stage)
"""
_ADD_PAGE_TOTALS = f"""
INSERT INTO page_totals
    SELECT run_id, backend, count(*), count(error), sum(prompt_tokens), sum(new_tokens)
    FROM {_GIVEN} GROUP BY run_id, backend
"""
_ADD_PARITY = f"""
INSERT INTO parity_totals
    SELECT run_id, count(*), count(*) FILTER (verdict IN ('identical', 'within_tolerance')),
           count(*) FILTER (verdict = 'identical'), count(*) FILTER (verdict = 'within_tolerance'),
           count(*) FILTER (verdict = 'differs'), count(*) FILTER (verdict = 'not_comparable'),
           avg(character_error_rate), max(max_coordinate_difference_percent)
    FROM {_GIVEN} GROUP BY run_id
"""
_ADD = {
    "timings": (_ADD_PAGE_NAMES, _ADD_SERIES, _ADD_TIMES),
    "readings": (_ADD_PAGE_TOTALS,),
    "parity": (_ADD_PARITY,),
}
HELD = tuple(_ADD)
"""Tables that are read when a run is loaded; the others are read when asked for."""

HELD_WHOLE = ("stage_timings",)
"""Of these every row is in memory; of the other held tables only their totals."""

_FORGET = (
    "DELETE FROM times WHERE series IN (SELECT number FROM series SEMI JOIN expected USING (run_id))",
    *(
        f"DELETE FROM {table} WHERE run_id IN (SELECT run_id FROM expected)"
        for table in (
            "series", "stage_statistics", "page_totals", "parity_totals", "facts", "runs"
        )
    ),
)  # fmt: skip


class Database:
    """Runs loaded into memory. One thread changes it at a time; readers take a cursor each."""

    def __init__(self, directories: Iterable[Path]) -> None:
        """`directories` are the only ones that any statement can read."""
        self._connection = duckdb.connect(":memory:")
        self._guard = threading.Lock()
        self._connection.execute(
            "SET allowed_directories = $directories", {"directories": [*map(str, directories)]}
        )
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET enable_progress_bar = false")
        self._connection.execute(_TABLES + VIEWS)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection for one thread; close it after use."""
        with self._guard:
            return self._connection.cursor()

    def close(self) -> None:
        with self._guard:
            self._connection.close()


class Change:
    """One transaction: readers see all of it or nothing."""

    def __init__(self, database: Database) -> None:
        self._cursor = database.cursor()

    def __enter__(self) -> Change:
        self._cursor.execute("BEGIN")
        [[last]] = self._cursor.execute("SELECT coalesce(max(number), 0) FROM series").fetchall()
        self._last_series: int = last
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            self._cursor.execute("COMMIT" if kind is None else "ROLLBACK")
        finally:
            self._cursor.close()

    def add_runs(self, records: Sequence[RunRecord]) -> None:
        columns: dict[str, list[Any]] = {
            name: [getattr(record, name) for record in records]
            for name in (
                "source", "command", "engine", "device", "gpu", "host", "dtype", "attention", "preset",
                "profiled", "git_commit", "git_dirty", "notes",
            )
        }  # fmt: skip
        columns["run_id"] = [record.id for record in records]
        columns["created"] = [time_of(record.created) for record in records]
        columns["backends"] = [list(record.backends) for record in records]
        flags, text = ("profiled", "git_dirty"), pa.string()
        kinds = {
            "created": pa.timestamp("us"),
            "backends": pa.list_(text),
            **dict.fromkeys(flags, pa.bool_()),
        }
        self._insert(
            "runs", {name: pa.array(column, kinds.get(name, text)) for name, column in columns.items()}
        )
        rows = [
            (record.id, section, name, value)
            for record in records
            for section in ("settings", "environment", "versions")
            for name, value in flattened(getattr(record, section))
        ]
        names = ("run_id", "section", "name", "value")
        self._insert("facts", {name: pa.array(column, text) for name, column in _columns(names, rows)})

    def add_table(self, table: str, files: Sequence[Path], run_ids: Iterable[str]) -> None:
        """Load the rows of these runs from files of one held table. Raises duckdb.Error on a bad file."""
        self._expect(run_ids)
        for statement in _ADD[table]:
            self._cursor.execute(statement, {"files": [str(file) for file in files]})

    def add_statistics(self) -> None:
        """Statistics of every series that this change added; called once, after its tables."""
        self._cursor.execute(_ADD_STATISTICS, {"after": self._last_series})

    def add_annotations(self, rows: Sequence[Mapping[str, Any]]) -> None:
        text = pa.string()
        kinds = {"position": pa.int64(), "time": pa.timestamp("us")}
        names = ("position", "time", "run_id", "kind", "page", "name", "value")
        self._insert(
            "annotations",
            {name: pa.array([row.get(name) for row in rows], kinds.get(name, text)) for name in names},
        )

    def forget(self, run_ids: Iterable[str]) -> None:
        """Take runs out of the memory; their files are not touched."""
        self._expect(run_ids)
        for statement in _FORGET:
            self._cursor.execute(statement)

    def _expect(self, run_ids: Iterable[str]) -> None:
        self._cursor.execute("CREATE TEMP TABLE IF NOT EXISTS expected (run_id VARCHAR)")
        self._cursor.execute("DELETE FROM expected")
        self._cursor.execute("INSERT INTO expected SELECT unnest($ids)", {"ids": list(run_ids)})

    def _insert(self, table: str, columns: Mapping[str, pa.Array]) -> None:
        incoming = pa.table(dict(columns))
        self._cursor.register("given", incoming)
        self._cursor.execute(f"INSERT INTO {table} BY NAME SELECT * FROM given")
        self._cursor.unregister("given")


def flattened(values: Mapping[str, Any], prefix: str = "") -> Iterable[tuple[str, str | None]]:
    """Nested settings as (dotted name, text); lists as JSON, None as None."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flattened(value, f"{prefix}{key}.")
        elif value is None or isinstance(value, str):
            yield prefix + key, value
        else:
            yield prefix + key, json.dumps(value, ensure_ascii=False)


def _columns(
    names: Sequence[str], rows: Sequence[Sequence[str | None]]
) -> Iterable[tuple[str, list[str | None]]]:
    for position, name in enumerate(names):
        yield name, [row[position] for row in rows]
