"""What comes into the history's index: runs held against their checksums, and rows of annotation files."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
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
from dsocr_core.runs.history_tables import OF_A_RUN, OF_SHAPES, TABLES_OF_RUNS
from dsocr_core.runs.queries.query import LISTED
from dsocr_core.runs.record import (
    RecordError,
    RunRecord,
    check_version,
    flattened,
    read_document,
    time_of,
    tolerance_of,
)  # fmt: skip
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.schema import TABLES, read_rows
from dsocr_core.runs.storage import UNLISTED, EntryGone, Storage

Row = dict[str, Any]
_TOGETHER = 500
"""Runs of a transaction."""


@dataclass(frozen=True)
class Run:
    """A folder of a root; `damage` is why it is not read, and without a record it is still being copied."""

    id: str
    root: int
    version: str
    storage: Storage
    document: str | None = None
    record: RunRecord | None = None
    tables: Sequence[str] = ()
    """Tables it has rows of."""
    parity_rule: object = None
    damage: str | None = None

    def file(self, table: str) -> str:
        """Name a table's file. Raises EntryGone."""
        return str(self.storage.directory(self.id) / f"{table}.parquet")


def read_run(storage: Storage, root: int, name: str, version: str) -> Run:
    """Read a run's record and hold its files against their checksums. Raises EntryGone."""
    run = Run(name, root, version, storage)
    if version.startswith(UNLISTED):
        return replace(run, damage=version)
    directory = storage.directory(name)
    try:
        if (content := storage.document(name)) is None:
            if (directory / CHECKSUMS).exists():
                raise Damaged("run.json", "missing")
            return run
        try:
            document = read_document(content)
            check_version(document)
            record, tables = RunRecord.from_json(document), document.get("tables")
            if record.id != name:
                raise RecordError(f"it says it is run {record.id}")
            if not isinstance(tables, dict):
                raise RecordError("it does not say which tables the run has")
        except DsocrError as error:
            raise Damaged("run.json", str(error)) from error
        known = [table for table in tables if table in TABLES]
        if (checksums := read_checksums(directory)) is None:
            raise Damaged(CHECKSUMS, "missing")
        verify(directory, checksums, ["run.json", *(f"{table}.parquet" for table in known)])
    except DsocrError as error:
        storage.directory(name)  # raises EntryGone where the run was removed meanwhile
        return replace(run, damage=str(error))
    rule = document.get("parity_rule")
    return replace(run, document=content.decode(), record=record, tables=known, parity_rule=rule)


def add_runs(connection: duckdb.DuckDBPyConnection, runs: Sequence[Run]) -> None:
    """Add runs; of those whose files are no tables the damage alone.

    Raises duckdb.Error where the fault is not with one of them.
    """
    _in_parts(
        connection, runs, _add, lambda run, why: _add(connection, [replace(run, record=None, damage=why)])
    )


def add_shapes(connection: duckdb.DuckDBPyConnection, runs: Sequence[Run]) -> None:
    """Add FLOPs and times by shape of page; none of a run whose tables do not tell them."""

    def add(connection: duckdb.DuckDBPyConnection, some: Sequence[Run]) -> None:
        _fill(connection, some, OF_SHAPES)
        _shaped(connection)

    def without(run: Run, _: str) -> None:
        _expect(connection, [run.id])
        _shaped(connection)

    _in_parts(connection, runs, add, without)


def _shaped(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("UPDATE entries SET shaped = true WHERE run_id IN (FROM expected)")


def _in_parts(
    connection: duckdb.DuckDBPyConnection,
    runs: Sequence[Run],
    add: Callable[[duckdb.DuckDBPyConnection, Sequence[Run]], None],
    damaged: Callable[[Run, str], None],
    most: int = _TOGETHER,
) -> None:
    """Add runs, each part in one transaction; where that fails halves of it, and last a damaged run alone."""
    for at in range(0, len(runs), most):
        some = runs[at : at + most]
        connection.execute("BEGIN")
        try:
            add(connection, some)
            connection.execute("COMMIT")
        except duckdb.InterruptException:
            raise
        except (duckdb.Error, EntryGone) as error:
            connection.execute("ROLLBACK")
            if len(some) > 1:
                _in_parts(connection, some, add, damaged, (len(some) + 1) // 2)
            elif some[0].id in some[0].storage.names():
                if (damage := _damage(some[0], error)) is None:
                    raise
                damaged(some[0], damage)


def _damage(run: Run, error: Exception) -> str | None:
    """Say which file of a run is as it was written and no table of this version."""
    for table in run.tables:
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
    whole = [(run, run.record) for run in runs if run.record is not None]
    entries = [vars(run) | {"run_id": run.id, "created": run.record and run.record.created} for run in runs]
    insert(connection, "entries", entries)
    described = [
        vars(record) | {"run_id": run.id, "created": time_of(record.created)} for run, record in whole
    ]
    insert(connection, "runs", described)
    facts = [
        {"run_id": run.id, "section": section, "name": name, "value": value}
        for run, record in whole
        for section in ("settings", "environment", "versions")
        for name, value in flattened(getattr(record, section))
    ]
    insert(connection, "facts", facts)
    _fill(connection, [run for run, _ in whole], OF_A_RUN)
    for run, record in whole:
        if "parity" in run.tables and run.parity_rule != RULE:
            _judge_anew(connection, run, record)
    connection.execute(f"INSERT INTO listed_runs {LISTED}")


def _fill(connection: duckdb.DuckDBPyConnection, runs: Sequence[Run], statements: Sequence[str]) -> None:
    _expect(connection, [run.id for run in runs])
    for statement in statements:
        names = {*re.findall(r"\$(\w+)", statement)}
        files = {name: [run.file(name) for run in runs if name in run.tables] for name in names}
        if all(files.values()):
            of_files, *more = statement.split(";")
            connection.execute(of_files, files)
            for each in more:
                connection.execute(each)


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


def forget(connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str]) -> None:
    """Take runs out again."""
    if run_ids:
        _expect(connection, run_ids)
        for table in TABLES_OF_RUNS:
            connection.execute(f"DELETE FROM {table} WHERE run_id IN (FROM expected)")


def _expect(connection: duckdb.DuckDBPyConnection, run_ids: Iterable[str]) -> None:
    """Say which runs the next statements are about."""
    connection.execute("CREATE OR REPLACE TEMP TABLE expected (run_id VARCHAR)")
    connection.execute("INSERT INTO expected SELECT unnest($ids)", {"ids": list(run_ids)})


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows into a table; what it has no column for is left out."""
    if not rows:
        return
    names = [name for name, *_ in connection.execute(f"DESCRIBE {table}").fetchall()]
    connection.register("given_rows", pa.table({name: [row.get(name) for row in rows] for name in names}))
    try:
        connection.execute(f"INSERT INTO {table} BY NAME FROM given_rows")
    finally:
        connection.unregister("given_rows")


# --- annotations --------------------------------------------------------------------------------------


def annotation_name(time_ns: int, content: bytes) -> str:
    """Name a new annotation file, by its time and a digest of its content."""
    return f"{time_ns:020d}-{hashlib.sha256(content).hexdigest()[:20]}.json"


def read_annotations(
    roots: Sequence[Storage], versions: Mapping[tuple[int, str], str]
) -> tuple[list[Row], list[Row]]:
    """Rows of annotation files, and a row for each file; of one that cannot be read why."""
    rows, files = list[Row](), list[Row]()
    for (root, name), version in sorted(versions.items()):
        damage = None
        try:
            if (content := roots[root].annotation(name)) is None:  # removed just now
                continue
            rows += _annotation_rows(name, content)
        except DsocrError as error:
            damage = str(error)
        files.append({"root": root, "name": name, "version": version, "damage": damage})
    return rows, files


def _annotation_rows(name: str, content: bytes) -> list[Row]:
    """The rows of an annotation file. Raises RecordError on a damaged or foreign one."""
    found = re.fullmatch(r"([0-9]{20})-[0-9a-f]{20}\.json", name)
    if found is not None and annotation_name(int(found[1]), content) != name:
        raise RecordError("damaged: it is not what its name says was written")
    data = read_document(content)
    try:
        at, rows = int(data["time_ns"]), []
        written = datetime.fromtimestamp(at / 1e9, UTC).replace(tzinfo=None)
        for number, row in enumerate(data["rows"]):
            values = {column: row.get(column) for column in ("run_id", "kind", "page", "name", "value")}
            if not all(value is None or isinstance(value, str) for value in values.values()):
                raise TypeError("a value is not text")
            rows.append(values | {"position": at + number, "time": written})
        return rows
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
        raise RecordError(f"annotation file: {str(error)[:80]}") from error
