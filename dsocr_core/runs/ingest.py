"""Contents of the history's index: its tables, runs held against their checksums, rows of annotations.

The index has what is asked of many runs at once: their records, and figures that never change. Everything
else (times, boxes, texts, kernels) is read from the files of the runs that are asked for.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from dsocr_core.base.bounded_json import parse_json
from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.parity_records import RULE, VERDICTS, Verdict, passes
from dsocr_core.reading.records import VENDOR, OcrResult
from dsocr_core.runs.checksums import CHECKSUMS, read_checksums, verify
from dsocr_core.runs.queries.runs import LISTED
from dsocr_core.runs.record import RunRecord, flattened, time_of, tolerance_of
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.schema import TABLES, read_rows
from dsocr_core.runs.storage import UNLISTED, RunStorage

Row = dict[str, Any]
_TOGETHER = 500  # runs of a transaction
At = tuple[int, str]  # number of a root, and a version there

DESCRIBED = """
CREATE TEMP TABLE described (
    run_id VARCHAR, created TIMESTAMP, source VARCHAR, command VARCHAR, backends VARCHAR[], engine VARCHAR,
    device VARCHAR, gpu VARCHAR, host VARCHAR, dtype VARCHAR, attention VARCHAR, preset VARCHAR,
    profiled BOOLEAN, git_commit VARCHAR, git_dirty BOOLEAN, notes VARCHAR
)
"""
"""Runs that are just added."""
CREATE = f"""
CREATE TABLE entries (
    run_id VARCHAR, root INTEGER, version VARCHAR, tables VARCHAR[], document VARCHAR, damage VARCHAR
);
CREATE TABLE facts (run_id VARCHAR, section VARCHAR, name VARCHAR, value VARCHAR);
CREATE TABLE stage_statistics (
    run_id VARCHAR, backend VARCHAR, stage VARCHAR, inside_prefill BOOLEAN, n BIGINT, median DOUBLE,
    p5 DOUBLE, p95 DOUBLE, mean DOUBLE, std DOUBLE, total DOUBLE
);
CREATE TABLE page_statistics (
    run_id VARCHAR, backend VARCHAR, n BIGINT, median DOUBLE, p95 DOUBLE, mean DOUBLE, page_set UBIGINT
);
CREATE TABLE page_sets (page_set UBIGINT, pages VARCHAR[]);
CREATE TABLE page_totals (
    run_id VARCHAR, backend VARCHAR, pages BIGINT, failed BIGINT, prompt_tokens BIGINT, new_tokens BIGINT
);
CREATE TABLE parity_totals (
    run_id VARCHAR, pages BIGINT, passed BIGINT, {", ".join(f"{verdict} BIGINT" for verdict in VERDICTS)}
);
CREATE TABLE runs AS {LISTED};
"""
"""Tables of a new file. A change of a text here makes a new file."""
_OF_RUNS = (
    "entries", "runs", "facts", "stage_statistics", "page_statistics", "page_totals", "parity_totals",
)  # fmt: skip


def _rows(table: str) -> str:
    return f"(FROM read_parquet(${table}) SEMI JOIN described USING (run_id))"


FILL = {
    "timings": f"""
INSERT INTO stage_statistics
    SELECT run_id, backend, stage, inside, nullif(n, 0), quantiles[1], quantiles[2], quantiles[3],
           CASE WHEN n > 0 THEN mean ELSE given_mean END, CASE WHEN n > 0 THEN std ELSE given_std END, total
    FROM (
        SELECT run_id, backend, stage, bool_or(inside_prefill) AS inside, count(ms) AS n, avg(ms) AS mean,
               quantile_cont(ms, [0.5, 0.05, 0.95]) AS quantiles, stddev_samp(ms) AS std, sum(ms) AS total,
               avg(milliseconds) FILTER (aggregate = 'mean') AS given_mean,
               avg(milliseconds) FILTER (aggregate = 'std') AS given_std
        FROM (SELECT *, CASE aggregate WHEN 'page' THEN milliseconds END AS ms FROM {_rows("timings")})
        GROUP BY run_id, backend, stage
    );
CREATE OR REPLACE TEMP TABLE timed AS
    SELECT run_id, backend, count(*), median(ms), quantile_cont(ms, 0.95), avg(ms),
           list_sort(list(DISTINCT regexp_replace(page, ' #[0-9]+\\z', ''))) AS pages
    FROM (
        SELECT run_id, backend, page, sum(milliseconds) AS ms FROM {_rows("timings")}
        WHERE aggregate = 'page' AND NOT inside_prefill GROUP BY run_id, backend, page
    )
    GROUP BY run_id, backend;
INSERT INTO page_statistics SELECT * REPLACE (hash(pages) AS pages) FROM timed;
INSERT INTO page_sets
    SELECT DISTINCT ON (page_set) hash(pages) AS page_set, pages FROM timed
    WHERE page_set NOT IN (SELECT page_set FROM page_sets)
""",
    "readings": f"""
INSERT INTO page_totals
    SELECT run_id, backend, count(*), count(error), sum(prompt_tokens), sum(new_tokens)
    FROM {_rows("readings")} GROUP BY run_id, backend
""",
    "parity": f"""
INSERT INTO parity_totals
    SELECT run_id, count(*), count(*) FILTER (verdict IN ('identical', 'within_tolerance')),
           {", ".join(f"count(*) FILTER (verdict = '{verdict}')" for verdict in VERDICTS)}
    FROM {_rows("parity")} GROUP BY run_id
""",
}
"""Statements that add runs which are `described`, by the table of theirs that they read."""


class Run(NamedTuple):
    """A folder of a root. `damage` is why it is not read, and without a record it is still being copied."""

    id: str
    root: int
    version: str
    directory: str  # its own
    tables: Sequence[str] = ()  # that it has rows of
    damage: str | None = None
    whole: bool = False  # True where it can be asked for
    document: str | None = None
    record: RunRecord | None = None
    parity_rule: object = None

    def files(self, table: str) -> list[str]:
        """Name the table's file, where there is one."""
        return [f"{self.directory}/{table}.parquet"] if table in self.tables else []


def runs_of(connection: duckdb.DuckDBPyConnection, roots: Sequence[RunStorage]) -> list[Run]:
    """The runs of a file, oldest first. Raises duckdb.Error, and others for a file of another program."""
    found = connection.execute(
        "SELECT run_id, root, version, tables, damage, runs.run_id IS NOT NULL FROM entries "
        "LEFT JOIN runs USING (run_id) ORDER BY runs.created, run_id"
    ).fetchall()
    places = [f"{root.root}/runs" for root in roots]
    return [Run(name, root, at, f"{places[root]}/{name}", *facts) for name, root, at, *facts in found]


def read_run(storage: RunStorage, root: int, name: str, version: str) -> Run:
    """Read a run's record and hold its files against their checksums. Raises EntryGone."""
    run = Run(name, root, version, f"{storage.root}/runs/{name}")
    if version.startswith(UNLISTED):
        return run._replace(damage=version)
    try:
        directory = storage.directory(name)
        if (content := storage.document(name)) is None:
            if (directory / CHECKSUMS).exists():
                raise DsocrError("run.json: missing")
            return run
        try:
            document = parse_json(content, any_number=True)
            record, tables = RunRecord.from_json(document), document.get("tables")
            if record.id != name or not isinstance(tables, dict):
                raise DsocrError(f"it says it is run {record.id}, with tables {tables!r:.80}")
        except DsocrError as error:
            raise DsocrError(f"run.json: {error}") from error
        known = [table for table in tables if table in TABLES]
        verify(directory, read_checksums(directory), ["run.json", *(f"{table}.parquet" for table in known)])
    except DsocrError as error:
        storage.directory(name)  # raises EntryGone where the run was removed meanwhile
        return run._replace(damage=str(error))
    rule = document.get("parity_rule")
    return run._replace(document=content.decode(), record=record, tables=known, parity_rule=rule)


def add_runs(connection: duckdb.DuckDBPyConnection, runs: Sequence[Run]) -> None:
    """Add runs, many in one transaction; where that fails each alone, and one that fails alone as damaged.

    Raises duckdb.Error where the fault is not with a run.
    """
    for at in range(0, len(runs), _TOGETHER):
        some = runs[at : at + _TOGETHER]
        connection.execute("BEGIN")
        try:
            _add(connection, some)
            connection.execute("COMMIT")
        except duckdb.InterruptException:
            raise
        except duckdb.Error as error:
            connection.execute("ROLLBACK")
            if len(some) > 1:
                for run in some:
                    add_runs(connection, [run])
            elif Path(some[0].directory).is_dir():  # else it was removed just now
                _add(connection, [some[0]._replace(record=None, damage=_damage(some[0], error))])


def _damage(run: Run, error: duckdb.Error) -> str:
    """Say which file of a run is as it was written and no table of this version; raises the error if none."""
    for table in run.tables:
        try:
            read_rows(Path(run.directory, f"{table}.parquet"), TABLES[table])
        except (pa.ArrowException, OSError, ValueError, MemoryError) as fault:
            return f"{table}.parquet: is no table of this version ({one_line(fault, 200)})"
    if isinstance(error, (duckdb.DataError, duckdb.ProgrammingError)):
        return f"its tables cannot be read ({one_line(error, 200)})"
    raise error


def _add(connection: duckdb.DuckDBPyConnection, runs: Sequence[Run]) -> None:
    _insert(connection, "entries", [run._asdict() | {"run_id": run.id} for run in runs])
    whole = [(run, run.record) for run in runs if run.record is not None]
    connection.execute("DELETE FROM described")
    described = [
        vars(record) | {"run_id": run.id, "created": time_of(record.created)} for run, record in whole
    ]
    _insert(connection, "described", described)
    facts = [
        {"run_id": run.id, "section": section, "name": name, "value": value}
        for run, record in whole
        for section in ("settings", "environment", "versions")
        for name, value in flattened(getattr(record, section))
    ]
    _insert(connection, "facts", facts)
    for table, statements in FILL.items():
        if files := [file for run, _ in whole for file in run.files(table)]:
            for statement in statements.split(";"):
                connection.execute(statement, {table: files} if f"${table}" in statement else {})
    for run, record in whole:
        if "parity" in run.tables and run.parity_rule != RULE:
            _judge_anew(connection, run, record)
    connection.execute(f"INSERT INTO runs {LISTED}")


def _judge_anew(connection: duckdb.DuckDBPyConnection, run: Run, record: RunRecord) -> None:
    """Count the pages by today's rule; what cannot be read, or was identical, keeps its verdicts."""
    with contextlib.suppress(DsocrError, OSError, ValueError, KeyError, TypeError):
        rows = read_rows(Path(run.directory, "parity.parquet"), columns=["page", "verdict"]).to_pylist()
        verdicts: dict[str, Verdict] = {row["page"]: row["verdict"] for row in rows}
        again = {page for page, verdict in verdicts.items() if verdict in ("within_tolerance", "differs")}
        results: dict[str, list[OcrResult]] = {}
        for row, result in RunDirectory(Path(run.directory)).results() if again else ():
            if row["page"] in again and result is not None:
                results.setdefault(row["page"], []).append(result)
        for page, read in results.items():
            if len(read) == 2:
                a, b = sorted(read, key=lambda result: result.backend == VENDOR)
                verdicts[page] = compare_results(a, b, tolerance_of(record)).verdict
        values = [*verdicts.values()]
        names = ", ".join(f"{name} = ?" for name in VERDICTS)
        connection.execute(
            f"UPDATE parity_totals SET {names}, passed = ? WHERE run_id = ?",
            [*map(values.count, VERDICTS), sum(map(passes, values)), run.id],
        )


def forget(connection: duckdb.DuckDBPyConnection, run_ids: Collection[str]) -> None:
    """Take runs out again."""
    for table in _OF_RUNS if run_ids else ():
        connection.execute(f"DELETE FROM {table} WHERE list_contains($ids, run_id)", {"ids": [*run_ids]})


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows into a table. Keys without a column are left out."""
    if rows:
        names = [name for name, *_ in connection.execute(f"DESCRIBE {table}").fetchall()]
        given = pa.table({name: [row.get(name) for row in rows] for name in names})
        put(connection, f"INSERT INTO {table} BY NAME FROM given_rows", given)


def put(connection: duckdb.DuckDBPyConnection, statements: str, rows: pa.Table) -> None:
    """Execute statements that take what is put, the `given_rows`. Raises duckdb.Error."""
    connection.register("given_rows", rows)
    connection.execute(statements)
    connection.unregister("given_rows")
