"""Ingest: the tables of a history's DuckDB file, and how a run's Parquet fills them.

Times are the bulk. A time has two numbers beside it: its series (run, backend, stage) and its page, so ten
million of them take a tenth of a gigabyte and a run's are found without reading the others. Statistics of
a series never change, so they are made once, when a run is ingested. What is asked for one run at a time
(boxes, texts, tokens, kernels) stays in its file.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.parity_records import RULE, VERDICTS, Verdict, passes
from dsocr_core.reading.records import VENDOR, OcrResult
from dsocr_core.runs.checksums import CHECKSUMS, Damaged, read_checksums, verify
from dsocr_core.runs.parquet import read_rows
from dsocr_core.runs.queries import gaps
from dsocr_core.runs.queries.query import LISTED
from dsocr_core.runs.record import RecordError, RunRecord, flattened, read_document, time_of, tolerance_of
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.schema import TABLES, check_version
from dsocr_core.runs.shapes import SHAPE_SQL
from dsocr_core.runs.storage import UNLISTED, EntryGone, Storage

CREATE = f"""
CREATE TABLE entries (
    run_id VARCHAR, root INTEGER, version VARCHAR, created VARCHAR, tables VARCHAR[], document VARCHAR,
    damage VARCHAR
);
CREATE TABLE annotation_files (root INTEGER, name VARCHAR, version VARCHAR, damage VARCHAR);
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
CREATE TEMP TABLE expected (run_id VARCHAR);
CREATE TABLE listed_runs AS {LISTED};
"""
"""Tables of a new file; a change of a text here makes another file."""

VIEWS = (
    """
CREATE VIEW stage_timings AS
    SELECT series.run_id, page_names.page, series.backend, series.stage, times.milliseconds, times.calls,
           series.inside_prefill, series.aggregate
    FROM times JOIN series ON series.number = times.series
    LEFT JOIN page_names ON page_names.number = times.page;
CREATE VIEW timings AS FROM stage_timings;
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
CREATE VIEW listed AS
    SELECT listed_runs.*, coalesce(marks.tags, []) AS tags, marks.note,
           coalesce(marks.trashed, false) AS trashed
    FROM listed_runs LEFT JOIN marks USING (run_id);
"""
    + gaps.VIEWS
)
"""Views of each connection to the file, whose annotations are those of the file and later ones."""

_ROWS = "(SELECT * FROM read_parquet($files) SEMI JOIN expected USING (run_id)) AS given"
# Files are read column by column, some of them twice: cheaper than keeping ten million texts for a moment.
_ADD: dict[str, tuple[str, ...]] = {
    "timings": (
        f"""
INSERT INTO page_names
    SELECT (SELECT coalesce(max(number), 0) FROM page_names) + row_number() OVER (), page
    FROM (SELECT DISTINCT page FROM {_ROWS} WHERE page IS NOT NULL) ANTI JOIN page_names USING (page)
""",
        f"""
INSERT INTO series
    SELECT (SELECT coalesce(max(number), 0) FROM series) + row_number() OVER (), *
    FROM (
        SELECT run_id, backend, stage, bool_or(inside_prefill), aggregate FROM {_ROWS}
        GROUP BY run_id, backend, stage, aggregate ORDER BY run_id, backend, stage, aggregate
    )
""",
        f"""
INSERT INTO times
    SELECT fresh.number, page_names.number, given.milliseconds, given.calls::INTEGER
    FROM {_ROWS}
    JOIN (SELECT * FROM series SEMI JOIN expected USING (run_id)) AS fresh
         USING (run_id, backend, stage, aggregate)
    LEFT JOIN page_names USING (page)
""",
    ),
    # A shape's prefill of its own is what the vision inside it leaves. Most shapes have a page or two: a
    # median, which takes much longer than least and most, is asked for of the others alone.
    "readings": (
        f"""
CREATE OR REPLACE TEMP TABLE pages_read AS
    SELECT run_id, page, backend, error, prompt_tokens, new_tokens, {SHAPE_SQL} AS shape FROM {_ROWS}
""",
        """
INSERT INTO page_totals
    SELECT run_id, backend, count(*), count(error), sum(prompt_tokens), sum(new_tokens)
    FROM pages_read GROUP BY run_id, backend
""",
        """
CREATE OR REPLACE TEMP TABLE measured AS
    WITH fresh AS (
        SELECT *, dense_rank() OVER (ORDER BY run_id, backend) AS side
        FROM series SEMI JOIN expected USING (run_id) WHERE aggregate = 'page'
    ),
    sides AS (SELECT DISTINCT side, run_id, backend FROM fresh),
    shaped AS (
        SELECT side, page_names.number AS page, shape
        FROM pages_read JOIN sides USING (run_id, backend) JOIN page_names USING (page)
        WHERE shape IS NOT NULL
    )
    SELECT fresh.number, side, page, shape, inside_prefill, stage = 'prefill' AS prefill, milliseconds AS ms
    FROM times JOIN fresh ON fresh.number = times.series JOIN shaped USING (side, page)
""",
        """
INSERT INTO shape_times
    WITH vision AS (SELECT side, page, sum(ms) AS inside FROM measured WHERE inside_prefill GROUP BY ALL),
    owned AS (
        SELECT number, shape, ms, ms - CASE WHEN prefill THEN coalesce(inside, 0) ELSE 0 END AS own
        FROM measured LEFT JOIN vision USING (side, page)
    ),
    few AS (
        SELECT number, shape, count(*) AS n, min(ms) + (max(ms) - min(ms)) / 2 AS ms,
               min(own) + (max(own) - min(own)) / 2 AS own
        FROM owned GROUP BY number, shape
    ),
    many AS (
        SELECT number, shape, median(owned.ms) AS ms, median(owned.own) AS own
        FROM owned SEMI JOIN (FROM few WHERE n > 2) AS larger USING (number, shape) GROUP BY number, shape
    )
    SELECT run_id, backend, shape, stage, inside_prefill, n, coalesce(many.ms, few.ms),
           coalesce(many.own, few.own)
    FROM few LEFT JOIN many USING (number, shape) JOIN series USING (number)
""",
    ),
    # Counts of shapes, and of imported runs; an earlier bench has others, page by page, that are left out.
    "stage_flops": (
        """
INSERT INTO flops
    SELECT run_id, backend, shape, stage, kind, flops, bytes
    FROM (
        FROM (SELECT NULL::VARCHAR AS shape, NULL::DOUBLE AS bytes WHERE false)
        UNION ALL BY NAME FROM read_parquet($files, union_by_name = true)
    ) AS given SEMI JOIN expected USING (run_id)
    WHERE flops IS NOT NULL AND (shape IS NOT NULL OR page IS NULL)
""",
    ),
    "sweep_points": (
        f"""
INSERT INTO flops
    SELECT run_id, NULL, printf('%dx%d tiles, batch %d, context %d, %d steps', tile_columns, tile_rows, batch,
           context, steps), part, CASE engine WHEN 'eager' THEN 'analytic' ELSE 'measured' END, flops, NULL
    FROM {_ROWS} WHERE engine IN ('eager', 'counted')
""",
    ),
    "parity": (
        f"""
INSERT INTO parity_totals
    SELECT run_id, count(*), count(*) FILTER (verdict IN ('identical', 'within_tolerance')),
           count(*) FILTER (verdict = 'identical'), count(*) FILTER (verdict = 'within_tolerance'),
           count(*) FILTER (verdict = 'differs'), count(*) FILTER (verdict = 'not_comparable'),
           avg(character_error_rate), max(max_coordinate_difference_percent)
    FROM {_ROWS} GROUP BY run_id
""",
    ),
}
"""Statements that add a table of new runs; other tables are read when they are asked for."""

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
_OF_RUNS = (
    "listed_runs", "series", "stage_statistics", "shape_times", "flops", "page_totals", "parity_totals",
    "facts", "runs", "entries",
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    """A folder of a root; `damage` is why it is not read, and without a record it is still being copied."""

    id: str
    root: int
    version: str
    storage: Storage
    record: RunRecord | None = None
    document: str | None = None
    tables: Sequence[str] = ()
    """Tables it has rows of."""
    parity_rule: object = None
    damage: str | None = None

    def file(self, table: str) -> str:
        """Name a table's file."""
        return str(self.storage.directory(self.id) / f"{table}.parquet")


def read_run(storage: Storage, root: int, name: str, version: str) -> Run:
    """Read a run's record and hold its files against their checksums. Raises EntryGone."""
    try:
        if version.startswith(UNLISTED):
            raise DsocrError(version)
        content = storage.document(name)
        if content is None:
            if (storage.directory(name) / CHECKSUMS).exists():
                raise Damaged("run.json", "missing")
            return Run(name, root, version, storage)
        try:
            document = read_document(content)
            check_version(document)
            record, tables = RunRecord.from_json(document), _tables(document)
            if record.id != name:
                raise RecordError(f"it says it is run {record.id}")
        except DsocrError as error:
            raise Damaged("run.json", str(error)) from error
        directory = storage.directory(name)
        if (checksums := read_checksums(directory)) is None:
            raise Damaged(CHECKSUMS, "missing")
        verify(directory, checksums, ["run.json", *(f"{table}.parquet" for table in tables)])
    except DsocrError as error:
        if not version.startswith(UNLISTED):
            storage.directory(name)  # raises EntryGone where the run was removed meanwhile
        return Run(name, root, version, storage, damage=str(error))
    rule = document.get("parity_rule")
    return Run(name, root, version, storage, record, content.decode(), tables, rule)


def _tables(document: Mapping[str, object]) -> list[str]:
    tables = document.get("tables")
    if not isinstance(tables, dict) or not all(isinstance(rows, int) for rows in tables.values()):
        raise RecordError("it does not say which tables the run has")
    return [table for table in tables if table in TABLES]


def ingest(connection: duckdb.DuckDBPyConnection, runs: Sequence[Run]) -> None:
    """Add runs, all of them in one transaction; of runs whose files are no tables the damage alone.

    Raises duckdb.Error where the fault is not with one of them.
    """
    connection.execute("BEGIN")
    try:
        _add(connection, runs)
        connection.execute("COMMIT")
    except duckdb.InterruptException:
        raise
    except (duckdb.Error, EntryGone) as error:
        connection.execute("ROLLBACK")
        if len(runs) > 1:
            ingest(connection, runs[: len(runs) // 2])
            ingest(connection, runs[len(runs) // 2 :])
            return
        [run] = runs
        if run.id not in run.storage.names():
            return
        if (damage := _damage(run, error)) is None:
            raise
        ingest(connection, [Run(run.id, run.root, run.version, run.storage, damage=damage)])


def _damage(run: Run, error: Exception) -> str | None:
    """Say which file of a run is as it was written and no table of this version."""
    for table in _ADD.keys() & {*run.tables}:
        file = Path(run.file(table))
        try:
            if not pq.read_schema(file).equals(TABLES[table]):
                return f"{file.name}: does not have the columns of this version"
            read_rows(file)
        except (pa.ArrowException, OSError, ValueError, MemoryError) as fault:
            return f"{file.name}: cannot be read ({one_line(fault, 200)})"
    of_a_value = isinstance(error, (duckdb.DataError, duckdb.ProgrammingError))
    return f"its tables cannot be read ({one_line(error, 200)})" if of_a_value else None


def _add(connection: duckdb.DuckDBPyConnection, runs: Sequence[Run]) -> None:
    entries = [
        {"run_id": run.id, "root": run.root, "version": run.version, "document": run.document,
         "created": run.record and run.record.created, "tables": list(run.tables),
         "damage": run.damage}
        for run in runs
    ]  # fmt: skip
    insert(connection, "entries", entries)
    whole = [(run, run.record) for run in runs if run.record is not None]
    insert(
        connection,
        "runs",
        [vars(record) | {"run_id": record.id, "created": time_of(record.created)} for _, record in whole],
    )
    facts = [
        {"run_id": record.id, "section": section, "name": name, "value": value}
        for _, record in whole
        for section in ("settings", "environment", "versions")
        for name, value in flattened(getattr(record, section))
    ]
    insert(connection, "facts", facts)
    [[last]] = connection.execute("SELECT coalesce(max(number), 0) FROM series").fetchall()
    for table, statements in _ADD.items():
        having = [run for run, _ in whole if table in run.tables]
        if having:
            expect(connection, [run.id for run in having])
            files = {"files": [run.file(table) for run in having]}
            for statement in statements:
                connection.execute(statement, files if "$files" in statement else None)
    connection.execute(_ADD_STATISTICS, {"after": last})
    for run, record in whole:
        if "parity" in run.tables and run.parity_rule != RULE:
            _judge_anew(connection, run, record)
    expect(connection, [run.id for run, _ in whole])
    connection.execute(f"INSERT INTO listed_runs {LISTED}")


def _judge_anew(connection: duckdb.DuckDBPyConnection, run: Run, record: RunRecord) -> None:
    """Count the pages by today's rule; what cannot be read keeps its verdicts, and so does what was identical
    or could not be compared."""
    with contextlib.suppress(DsocrError, OSError, ValueError, KeyError, TypeError):
        rows = read_rows(Path(run.file("parity")), columns=["page", "verdict"]).to_pylist()
        verdicts = {row["page"]: row["verdict"] for row in rows}
        again = {page for page, verdict in verdicts.items() if verdict in ("within_tolerance", "differs")}
        results: dict[str, list[OcrResult]] = {}
        for row, result in RunDirectory(run.storage.directory(run.id)).results() if again else ():
            if row["page"] in again and result is not None:
                results.setdefault(row["page"], []).append(result)
        for page, read in results.items():
            if len(read) == 2:
                a, b = sorted(read, key=lambda result: result.backend == VENDOR)
                verdicts[page] = compare_results(a, b, tolerance_of(record)).verdict
        counts = Counter[Verdict](verdicts.values())
        names = ", ".join(f"{name} = ?" for name in VERDICTS)
        passed = sum(count for name, count in counts.items() if passes(name))
        connection.execute(
            f"UPDATE parity_totals SET {names}, passed = ? WHERE run_id = ?",
            [*(counts[name] for name in VERDICTS), passed, run.id],
        )


def forget(connection: duckdb.DuckDBPyConnection, run_ids: Iterable[str]) -> None:
    """Take runs out again."""
    expect(connection, run_ids)
    connection.execute(
        "DELETE FROM times WHERE series IN (SELECT number FROM series SEMI JOIN expected USING (run_id))"
    )
    for table in _OF_RUNS:
        connection.execute(f"DELETE FROM {table} WHERE run_id IN (SELECT run_id FROM expected)")


def expect(connection: duckdb.DuckDBPyConnection, run_ids: Iterable[str]) -> None:
    """Say which runs the next statements are about."""
    connection.execute("CREATE OR REPLACE TEMP TABLE expected (run_id VARCHAR)")
    connection.execute("INSERT INTO expected SELECT unnest($ids)", {"ids": list(run_ids)})


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows into a table; what it has no column for is left out."""
    if not rows:
        return
    names = [name for name, *_ in connection.execute(f"DESCRIBE {table}").fetchall()]
    connection.register("given", pa.table({name: [row.get(name) for row in rows] for name in names}))
    try:
        connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM given")
    finally:
        connection.unregister("given")
