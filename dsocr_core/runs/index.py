"""The index: a DuckDB file with what every page asks of all runs, made from their Parquet files.

Times are the bulk. A time has two numbers beside it: its series (run, backend, stage) and its page, so ten
million of them take a tenth of a gigabyte and a run's are found without reading the others. Statistics of
a series never change, so they are made once, when a run is taken in. What is asked for one run at a time
(boxes, texts, tokens, kernels) stays in its file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from dsocr_core.reading.parity_records import VERDICTS
from dsocr_core.runs.queries import gaps
from dsocr_core.runs.record import flattened, time_of
from dsocr_core.runs.shapes import SHAPE_SQL
from dsocr_core.runs.taking import Taken

FORM = 3
"""Form of the tables below; a file of another form is not opened."""

_TABLES = """
CREATE TABLE entries (
    run_id VARCHAR, storage INTEGER, version VARCHAR, created VARCHAR, rows VARCHAR, document VARCHAR
);
CREATE TABLE damaged (key VARCHAR, storage INTEGER, version VARCHAR, reason VARCHAR);
CREATE TABLE annotation_files (storage INTEGER, name VARCHAR, version VARCHAR);
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
CREATE TABLE shape_times (
    run_id VARCHAR, backend VARCHAR, shape VARCHAR, stage VARCHAR, inside_prefill BOOLEAN, n BIGINT,
    milliseconds DOUBLE, own_milliseconds DOUBLE
);
CREATE TABLE flops (
    run_id VARCHAR, backend VARCHAR, shape VARCHAR, stage VARCHAR, kind VARCHAR, flops DOUBLE, bytes DOUBLE
);
CREATE TABLE page_totals (
    run_id VARCHAR, backend VARCHAR, pages BIGINT, failed BIGINT, prompt_tokens BIGINT, new_tokens BIGINT
);
CREATE TABLE parity_totals (
    run_id VARCHAR, pages BIGINT, passed BIGINT, identical BIGINT, within_tolerance BIGINT, differs BIGINT,
    not_comparable BIGINT, mean_character_error_rate DOUBLE, max_coordinate_difference_percent DOUBLE
);
"""

SHARED = (
    "entries", "damaged", "annotation_files", "runs", "facts", "annotations", "page_names", "series", "times",
    "stage_statistics", "shape_times", "flops", "page_totals", "parity_totals",
)  # fmt: skip
"""All tables."""

LATER = (
    "CREATE SCHEMA later;"
    + "".join(
        f"CREATE TABLE later.{table} AS FROM ix.{table} LIMIT 0;"
        f"CREATE VIEW {table} AS FROM ix.{table} UNION ALL FROM memory.later.{table};"
        for table in SHARED
    )
    + """
CREATE VIEW stage_timings AS
    SELECT series.run_id, page_names.page, series.backend, series.stage, times.milliseconds, times.calls,
           series.inside_prefill, series.aggregate
    FROM memory.main.times AS times JOIN memory.main.series AS series ON series.number = times.series
    LEFT JOIN memory.main.page_names AS page_names ON page_names.number = times.page;
CREATE VIEW marks AS
    WITH latest AS (
        SELECT run_id, kind, name, arg_max(coalesce(value, ''), position) AS value
        FROM memory.main.annotations WHERE page IS NULL GROUP BY run_id, kind, name
    )
    SELECT run_id,
           coalesce(list(name ORDER BY name) FILTER (kind = 'tag' AND value = 'on'), []) AS tags,
           max(nullif(value, '')) FILTER (kind = 'note') AS note,
           coalesce(bool_or(value = 'on') FILTER (kind = 'trash'), false) AS trashed
    FROM latest GROUP BY run_id;
"""
    + gaps.VIEWS
)
"""Tables of each connection to an index: what came since its file was made lies beside it."""

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
_ADD_SHAPE_TIMES = f"""
INSERT INTO shape_times
    WITH shaped AS (SELECT run_id, page, backend, {SHAPE_SQL} AS shape FROM {_GIVEN}),
    measured AS (
        SELECT series.run_id, series.backend, series.stage, series.inside_prefill, shaped.shape, shaped.page,
               times.milliseconds AS ms
        FROM (SELECT * FROM series SEMI JOIN expected USING (run_id) WHERE aggregate = 'page') AS series
        JOIN times ON times.series = series.number JOIN page_names ON page_names.number = times.page
        JOIN shaped ON shaped.run_id = series.run_id AND shaped.backend = series.backend
             AND shaped.page = page_names.page
        WHERE shaped.shape IS NOT NULL
    ),
    vision AS (SELECT run_id, backend, page, sum(ms) AS ms FROM measured WHERE inside_prefill GROUP BY ALL)
    SELECT run_id, backend, shape, stage, bool_or(inside_prefill), count(*), median(measured.ms),
           median(measured.ms - CASE WHEN stage = 'prefill' THEN coalesce(vision.ms, 0) ELSE 0 END)
    FROM measured LEFT JOIN vision USING (run_id, backend, page) GROUP BY run_id, backend, shape, stage
"""
"""A shape's median times; its prefill's own is what the vision inside it leaves."""
_ADD_FLOPS = """
INSERT INTO flops
    SELECT run_id, backend, shape, stage, kind, flops, bytes
    FROM (
        FROM (SELECT NULL::VARCHAR AS shape, NULL::DOUBLE AS bytes WHERE false)
        UNION ALL BY NAME FROM read_parquet($files, union_by_name = true)
    ) AS given SEMI JOIN expected USING (run_id)
    WHERE flops IS NOT NULL AND (shape IS NOT NULL OR page IS NULL)
"""
"""Counts of shapes, and of imported runs; an earlier bench has others, page by page, that are left out."""
_ADD_SWEEPS = f"""
INSERT INTO flops
    SELECT run_id, NULL, printf('%dx%d tiles, batch %d, context %d, %d steps', tile_columns, tile_rows, batch,
           context, steps), part, CASE engine WHEN 'eager' THEN 'analytic' ELSE 'measured' END, flops, NULL
    FROM {_GIVEN} WHERE engine IN ('eager', 'counted')
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
    "readings": (_ADD_PAGE_TOTALS, _ADD_SHAPE_TIMES),
    "stage_flops": (_ADD_FLOPS,),
    "sweep_points": (_ADD_SWEEPS,),
    "parity": (_ADD_PARITY,),
}
HELD = tuple(_ADD)
"""Tables of a run that are read when it is taken in; the others are read when asked for."""

_FORGET = (
    "DELETE FROM times WHERE series IN (SELECT number FROM series SEMI JOIN expected USING (run_id))",
    *(
        f"DELETE FROM {table} WHERE run_id IN (SELECT run_id FROM expected)"
        for table in (
            "series", "stage_statistics", "shape_times", "flops", "page_totals", "parity_totals", "facts",
            "runs", "entries",
        )
    ),
)  # fmt: skip


class Filling:
    """Addition to an index, in one transaction: to its file, attached as `ix`, or beside it.

    Names of tables mean the whole index to the connection; rows go `into` one part of it.
    """

    def __init__(self, connection: duckdb.DuckDBPyConnection, into: str, new: bool = False) -> None:
        self._connection, self._into = connection, into
        connection.execute("BEGIN")
        if new:
            connection.execute(_TABLES)
        self._last_series = self._last()

    def finish(self) -> None:
        """Make the statistics of all that was added, and commit."""
        self._add(_ADD_STATISTICS, {"after": self._last_series})
        self._connection.execute("COMMIT")

    def forget(self, run_ids: Iterable[str]) -> None:
        self._expect(run_ids)
        for statement in _FORGET:
            self._connection.execute(statement)
        self._last_series = self._last()  # numbers are given again

    def _last(self) -> int:
        [[last]] = self._connection.execute("SELECT coalesce(max(number), 0) FROM series").fetchall()
        return int(last)

    def add_runs(self, runs: Sequence[Taken]) -> None:
        """Their records; their rows come by `add_table`."""
        records = [run.record for run in runs]
        rows = [
            vars(record) | {"run_id": record.id, "created": time_of(record.created)} for record in records
        ]
        self._insert("runs", rows)
        facts = [
            {"run_id": record.id, "section": section, "name": name, "value": value}
            for record in records
            for section in ("settings", "environment", "versions")
            for name, value in flattened(getattr(record, section))
        ]
        self._insert("facts", facts)
        entries = [
            {"run_id": run.record.id, "storage": run.storage, "version": run.version,
             "created": run.record.created, "rows": json.dumps(run.rows), "document": run.document}
            for run in runs
        ]  # fmt: skip
        self._insert("entries", entries)

    def add_table(self, table: str, files: Sequence[Path], run_ids: Iterable[str]) -> None:
        """Rows of these runs from files of one table of `HELD`. Raises duckdb.Error on a bad file."""
        self._expect(run_ids)
        for statement in _ADD[table]:
            self._add(statement, {"files": [str(file) for file in files]})

    def set_verdicts(self, run_id: str, counts: Mapping[str, int]) -> None:
        """Have a run's pages of each parity verdict be so many."""
        found: dict[str, int] = {name: counts.get(name, 0) for name in VERDICTS}
        passed = found["identical"] + found["within_tolerance"]
        names = ", ".join(f"{name} = ${name}" for name in found)
        values: dict[str, int | str] = {**found, "passed": passed, "run_id": run_id}
        self._connection.execute(
            f"UPDATE {self._into}.parity_totals SET passed = $passed, {names} WHERE run_id = $run_id", values
        )

    def set_damaged(self, rows: Sequence[tuple[str, int, str, str]]) -> None:
        """(Key, storage, version, reason) of all that is damaged."""
        self._connection.execute("DELETE FROM damaged")
        names = ("key", "storage", "version", "reason")
        self._insert("damaged", [dict(zip(names, row, strict=True)) for row in rows])

    def set_annotations(
        self, rows: Sequence[Mapping[str, Any]], files: Sequence[tuple[int, str, str]], anew: bool
    ) -> None:
        """Add rows and the files (storage, name, version) that they came from; in place of all, if `anew`."""
        for table in ("annotations", "annotation_files") if anew else ():
            self._connection.execute(f"DELETE FROM {table}")
        self._insert("annotations", rows)
        names = ("storage", "name", "version")
        self._insert("annotation_files", [dict(zip(names, file, strict=True)) for file in files])

    def _add(self, statement: str, values: Mapping[str, Any]) -> None:
        self._connection.execute(
            statement.replace("INSERT INTO ", f"INSERT INTO {self._into}."), dict(values)
        )

    def _expect(self, run_ids: Iterable[str]) -> None:
        self._connection.execute("CREATE OR REPLACE TEMP TABLE expected (run_id VARCHAR)")
        self._connection.execute("INSERT INTO expected SELECT unnest($ids)", {"ids": list(run_ids)})

    def _insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        insert(self._connection, f"{self._into}.{table}", rows)


_KINDS = {"created": pa.timestamp("us"), "time": pa.timestamp("us"), "backends": pa.list_(pa.string())} | {
    "position": pa.int64(), "storage": pa.int32(), "profiled": pa.bool_(), "git_dirty": pa.bool_()
}  # fmt: skip
"""Columns that are no texts; a run's time is one, that of an entry as its document has it."""


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows into a table; what it has no column for is left out."""
    kinds = _KINDS | ({"created": pa.string()} if table.endswith(".entries") else {})
    names = [name for name, *_ in connection.execute(f"DESCRIBE {table}").fetchall()]
    columns = {
        name: pa.array([row.get(name) for row in rows], kinds.get(name, pa.string())) for name in names
    }
    connection.register("given", pa.table(columns))
    try:
        connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM given")
    finally:
        connection.unregister("given")
