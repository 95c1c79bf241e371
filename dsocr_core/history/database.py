"""The in-memory database of one process: what every page asks for, in as few bytes as it takes.

Times are the bulk. A time has two numbers beside it: its series (run, road, stage) and its page, so ten
million of them take a quarter of a gigabyte and a run's are found without reading the others. Statistics
of a series never change, so they are made once, when it is loaded. Views show the tables people know from
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

HELD = ("stage_timings", "images", "parity")
"""Tables that are read when a run is loaded; the others are read when asked for."""

_TABLES = """
CREATE TABLE runs (
    run_id VARCHAR, created TIMESTAMP, source VARCHAR, command VARCHAR, roads VARCHAR[], engine VARCHAR,
    device VARCHAR, gpu VARCHAR, host VARCHAR, dtype VARCHAR, attention VARCHAR, preset VARCHAR,
    profiled BOOLEAN, git_commit VARCHAR, git_dirty BOOLEAN, notes VARCHAR
);
CREATE TABLE facts (run_id VARCHAR, section VARCHAR, name VARCHAR, value VARCHAR);
CREATE TABLE annotations (
    position BIGINT, time TIMESTAMP, run_id VARCHAR, kind VARCHAR, page VARCHAR, name VARCHAR, value VARCHAR
);
CREATE TABLE page_names (number INTEGER, page VARCHAR);
CREATE TABLE series (
    number INTEGER, run_id VARCHAR, road VARCHAR, stage VARCHAR, inside_prefill BOOLEAN, aggregate VARCHAR
);
CREATE TABLE times (series INTEGER, page INTEGER, milliseconds DOUBLE, calls INTEGER);
CREATE TABLE stage_statistics (
    run_id VARCHAR, road VARCHAR, stage VARCHAR, inside_prefill BOOLEAN,
    n BIGINT, median DOUBLE, p5 DOUBLE, p95 DOUBLE, mean DOUBLE, std DOUBLE, total DOUBLE
);
CREATE TABLE readings (
    run_id VARCHAR, page INTEGER, road VARCHAR, content UBIGINT, preset VARCHAR, width INTEGER,
    height INTEGER, prompt_tokens INTEGER, new_tokens INTEGER, failed BOOLEAN
);
CREATE TABLE page_totals (
    run_id VARCHAR, road VARCHAR, pages BIGINT, failed BIGINT, prompt_tokens BIGINT, new_tokens BIGINT
);
CREATE TABLE parity_totals (
    run_id VARCHAR, pages BIGINT, passed BIGINT, mean_character_error_rate DOUBLE,
    max_coordinate_difference_percent DOUBLE
);
CREATE VIEW stage_timings AS
    SELECT series.run_id, page_names.page, series.road, series.stage, times.milliseconds, times.calls,
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

_TAKE_TIMES = """
CREATE OR REPLACE TEMP TABLE incoming AS
    SELECT run_id, page, road, stage, inside_prefill, aggregate, milliseconds, calls::INTEGER AS calls
    FROM read_parquet($files) SEMI JOIN expected USING (run_id)
"""
_TAKE_IMAGES = """
CREATE OR REPLACE TEMP TABLE incoming AS
    SELECT run_id, page, road, preset, width::INTEGER AS width, height::INTEGER AS height,
           prompt_tokens::INTEGER AS prompt_tokens, new_tokens::INTEGER AS new_tokens,
           error IS NOT NULL AS failed,
           CASE WHEN regexp_full_match(sha256, '[0-9a-f]{64}')
                THEN ('0x' || sha256[1:16])::UBIGINT END AS content
    FROM read_parquet($files) SEMI JOIN expected USING (run_id)
"""
_ADD_PAGE_NAMES = """
INSERT INTO page_names
    SELECT (SELECT coalesce(max(number), 0) FROM page_names) + row_number() OVER (), page
    FROM (SELECT DISTINCT page FROM incoming WHERE page IS NOT NULL) ANTI JOIN page_names USING (page)
"""
_ADD_TIMES = """
CREATE OR REPLACE TEMP TABLE fresh AS
    SELECT (SELECT coalesce(max(number), 0) FROM series) + row_number() OVER () AS number, *
    FROM (SELECT DISTINCT run_id, road, stage, inside_prefill, aggregate FROM incoming);
INSERT INTO series SELECT * FROM fresh;
INSERT INTO times
    SELECT fresh.number, page_names.number, incoming.milliseconds, incoming.calls
    FROM incoming JOIN fresh USING (run_id, road, stage, inside_prefill, aggregate)
    LEFT JOIN page_names USING (page);
INSERT INTO stage_statistics
    WITH pages AS (
        SELECT run_id, road, stage, bool_or(inside_prefill) AS inside_prefill, count(*) AS n,
               quantile_cont(milliseconds, [0.5, 0.05, 0.95]) AS quantiles, avg(milliseconds) AS mean,
               stddev_samp(milliseconds) AS std, sum(milliseconds) AS total
        FROM incoming WHERE aggregate = 'page' GROUP BY run_id, road, stage
    ), imported AS (
        SELECT run_id, road, stage, bool_or(inside_prefill) AS inside_prefill,
               any_value(milliseconds) FILTER (aggregate = 'mean') AS mean,
               any_value(milliseconds) FILTER (aggregate = 'std') AS std
        FROM incoming WHERE aggregate <> 'page' GROUP BY run_id, road, stage
    )
    SELECT run_id, road, stage, inside_prefill, n, quantiles[1], quantiles[2], quantiles[3], mean, std, total
    FROM pages
    UNION ALL
    SELECT run_id, road, stage, inside_prefill, NULL, NULL, NULL, NULL, mean, std, NULL
    FROM imported ANTI JOIN pages USING (run_id, road, stage);
"""
_ADD_IMAGES = """
INSERT INTO readings
    SELECT run_id, page_names.number, road, content, preset, width, height, prompt_tokens, new_tokens, failed
    FROM incoming LEFT JOIN page_names USING (page);
INSERT INTO page_totals
    SELECT run_id, road, count(*), count(*) FILTER (failed), sum(prompt_tokens), sum(new_tokens)
    FROM incoming GROUP BY run_id, road;
"""
_ADD_PARITY = """
INSERT INTO parity_totals
    SELECT run_id, count(*), count(*) FILTER (verdict = 'pass'), avg(character_error_rate),
           max(max_coordinate_difference_percent)
    FROM read_parquet($files) SEMI JOIN expected USING (run_id) GROUP BY run_id
"""
_FORGET = (
    "DELETE FROM times WHERE series IN (SELECT number FROM series SEMI JOIN expected USING (run_id))",
    *(
        f"DELETE FROM {table} WHERE run_id IN (SELECT run_id FROM expected)"
        for table in (
            "series", "stage_statistics", "readings", "page_totals", "parity_totals", "facts", "runs"
        )
    ),
)  # fmt: skip


class Database:
    """Runs loaded into memory. One thread changes it at a time; readers take a cursor each."""

    def __init__(self, directories: Iterable[Path]) -> None:
        """`directories` are the only ones that any statement can read."""
        self._connection = duckdb.connect(":memory:")
        self._guard = threading.Lock()
        self._connection.execute("SET allowed_directories = $places", {"places": [*map(str, directories)]})
        self._connection.execute("SET enable_external_access = false")
        self._connection.execute("SET enable_progress_bar = false")
        self._connection.execute(_TABLES)

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
        columns["roads"] = [list(record.roads) for record in records]
        flags, text = ("profiled", "git_dirty"), pa.string()
        kinds = {"created": pa.timestamp("us"), "roads": pa.list_(text), **dict.fromkeys(flags, pa.bool_())}
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
        places = {"files": [str(file) for file in files]}
        if table == "stage_timings":
            self._cursor.execute(_TAKE_TIMES, places)
            self._cursor.execute(_ADD_PAGE_NAMES)
            self._cursor.execute(_ADD_TIMES)
        elif table == "images":
            self._cursor.execute(_TAKE_IMAGES, places)
            self._cursor.execute(_ADD_PAGE_NAMES)
            self._cursor.execute(_ADD_IMAGES)
        else:
            self._cursor.execute(_ADD_PARITY, places)
        self._cursor.execute("DROP TABLE IF EXISTS incoming; DROP TABLE IF EXISTS fresh")

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
