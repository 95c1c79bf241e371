"""The history's DuckDB file: made from the runs' Parquet, replaced as a whole, open only for reading.

    <cache>/index/<roots>/history.duckdb

What comes or goes is added to a copy, under a lock, which is then renamed: a file never changes, so everybody
has it open read-only, and whoever has an earlier one reads on. It may be deleted at any time, and a damaged
one is made anew. Where the cache takes no file, it lies in a temporary directory.

Times are the bulk. A time has two numbers with it: its series (run, backend, stage) and its page, so ten
million of them take a tenth of a gigabyte and a run's are found without reading the others. Statistics of
a series never change, so they are made once, when a run is ingested. What is asked for one run at a time
(boxes, texts, tokens, kernels) stays in its file.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import re
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.paths import Temporary
from dsocr_core.base.uses import Uses
from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.parity_records import RULE, VERDICTS, Verdict, passes
from dsocr_core.reading.records import VENDOR, OcrResult
from dsocr_core.reading.writing import require_writable
from dsocr_core.runs.checksums import CHECKSUMS, Damaged, read_checksums, verify
from dsocr_core.runs.queries import gaps
from dsocr_core.runs.queries.query import LISTED, literal
from dsocr_core.runs.record import (
    SCHEMA_VERSION,
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
from dsocr_core.runs.shapes import SHAPE_SQL
from dsocr_core.runs.storage import UNLISTED, EntryGone, Storage, StorageError, Version, writing

log = logging.getLogger(__name__)

_PATIENCE_S, _LOOK_S = 120.0, 0.02
"""Seconds that another process may write before this one makes a file for itself."""
_UNUSED_S = 30 * 86_400
"""After so long the file of other roots is deleted."""
_MOST_LATER = 500
"""Annotation files that the file does not hold; with more it is written again."""
_TOGETHER = 4_000_000
"""Rows of runs that are read at a time: they take less room together, and memory has to hold them."""

At = tuple[int, str]
"""Number of a root, and a version there; or a name there."""
Row = dict[str, Any]

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
           CASE stage WHEN 'prefill' THEN coalesce(many.own, few.own) END
    FROM few LEFT JOIN many USING (number, shape) JOIN series USING (number)
""",
    ),
    # Counts of shapes, the bytes of a bound alone, and of imported runs; an earlier bench has others, page by
    # page, that are left out.
    "stage_flops": (
        """
INSERT INTO flops
    SELECT run_id, backend, shape, stage, kind, flops, CASE kind WHEN 'least' THEN bytes END
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
class Listing:
    """Listing of the roots, by number; a run that lies in two counts in the first."""

    runs: Mapping[str, At]
    notes: Mapping[At, str]
    """Versions of annotation files."""
    versions: Sequence[Mapping[str, Version]]

    @classmethod
    def of(cls, roots: Sequence[Storage], before: Listing | None = None) -> Listing:
        """`before`: folders that did not change since are not looked into. Raises StorageError."""
        runs: dict[str, At] = {}
        notes: dict[At, str] = {}
        versions = [root.versions(before.versions[at] if before else {}) for at, root in enumerate(roots)]
        for number, root in enumerate(roots):
            for name, (_, version) in versions[number].items():
                runs.setdefault(name, (number, version))
            notes |= {(number, name): version for name, version in root.annotation_versions().items()}
        return cls(runs, notes, versions)


# --- the file, open ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A run that can be asked for."""

    id: str
    root: int
    version: str
    tables: frozenset[str]
    """Tables it has rows of."""


class OpenFile:
    """The file as it is open for reading. Thread-safe."""

    def __init__(self, file: Path, roots: Sequence[Storage], uses: Uses) -> None:
        """`uses` are its owner's. Raises duckdb.Error for a damaged file."""
        self._uses, self._guard = uses, threading.Lock()
        self.inode = _inode(file)
        self._connection = duckdb.connect(":memory:")
        try:
            connect(self._connection, file)
            self._connection.execute("INSERT INTO annotations FROM ix.annotations")
            directories = [str(root.root) for root in roots]
            self._connection.execute("SET allowed_directories = $places", {"places": directories})
            self._connection.execute("SET enable_external_access = false; SET enable_progress_bar = false")
            self._load()
        except BaseException:
            self._connection.close()
            raise

    def _load(self) -> None:
        def rows(statement: str) -> list[Any]:
            return self._connection.execute(statement).fetchall()

        columns = "run_id, root, version, tables, damage, document IS NULL"
        found = rows(f"SELECT {columns} FROM entries ORDER BY created, run_id")
        notes = rows("SELECT root, name, version, damage FROM annotation_files")
        self.runs: dict[str, At] = {run_id: (root, version) for run_id, root, version, *_ in found}
        self.damaged = {run_id: damage for run_id, *_, damage, _ in found if damage is not None}
        self.entries = {
            run_id: Entry(run_id, root, version, frozenset(tables))
            for run_id, root, version, tables, damage, copied in found
            if damage is None and not copied
        }
        """Runs, oldest first."""
        [[self.newest_note]] = rows("SELECT coalesce(max(position), 0) FROM annotations")
        self.notes = {(root, name): version for root, name, version, _ in notes}
        self.bad_notes = {name: damage for _, name, _, damage in notes if damage is not None}
        self._written = len(notes)

    @contextlib.contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection for one thread. Raises Closed."""
        with self._guard:
            self._uses.check()
            cursor = self._connection.cursor()
        with contextlib.closing(cursor), self._uses.use(cursor.interrupt):
            cursor.execute(_SEARCH)
            yield cursor

    def annotations(self) -> pa.Table:
        """All rows of annotations."""
        with self.cursor() as cursor:
            rows: pa.Table = cursor.sql("FROM annotations").to_arrow_table()
            return rows

    def take_in(self, roots: Sequence[Storage], listing: Listing) -> bool:
        """Tell whether these runs are its own; new annotations it reads itself, up to a number."""
        if self.runs != listing.runs or any(listing.notes.get(file) != at for file, at in self.notes.items()):
            return False
        if len(listing.notes) - self._written > _MOST_LATER:
            return False
        if new := sorted(listing.notes.keys() - self.notes.keys()):
            rows, files = _read_annotations(roots, listing, new)
            with self.cursor() as cursor:
                _insert(cursor, "annotations", rows)
            self.notes |= {(file["root"], file["name"]): file["version"] for file in files}
            self.bad_notes |= {file["name"]: file["damage"] for file in files if file["damage"] is not None}
            self.newest_note = max(self.newest_note, *(row["position"] for row in rows), 0)
        return True

    def close(self) -> None:
        """Close the connection. Only when no cursor executes."""
        with self._guard:
            self._connection.close()


def _inode(file: Path) -> int | None:
    with contextlib.suppress(OSError):
        return file.stat().st_ino
    return None


_SEARCH = "SET search_path = 'memory.main,ix.main'"


def connect(connection: duckdb.DuckDBPyConnection, file: Path) -> None:
    """Open a file for reading, with its views; `annotations` are to come. Raises duckdb.Error."""
    connection.execute(f"ATTACH {literal(str(file))} AS ix (READ_ONLY); {_SEARCH}")
    connection.execute("CREATE TABLE annotations AS FROM ix.annotations LIMIT 0")
    connection.execute(VIEWS)


# --- the file, made -----------------------------------------------------------------------------------


class HistoryFile:
    """The file of some roots in a cache; `close` deletes what lies in a temporary directory."""

    def __init__(self, roots: Sequence[Storage], cache: Path, uses: Uses) -> None:
        """Raises StorageError where the machine takes no file."""
        self._roots, self._uses = roots, uses
        form = [str(root.root) for root in roots], CREATE, SCHEMA_VERSION, RULE, duckdb.__version__
        self._folder = cache / "index" / hashlib.sha256(json.dumps(form).encode()).hexdigest()[:16]
        self._temporary: Temporary | None = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            require_writable(self._folder)
        except (OSError, DsocrError) as error:
            log.warning("%s: no index can be written (%s); a temporary file is used, as DSOCR_CACHE names no "
                        "folder that takes one", self._folder, one_line(error))  # fmt: skip
            with writing("a temporary index of the history"):
                self._temporary = Temporary("index")
            self._folder = Path(self._temporary.name)

    @property
    def path(self) -> Path:
        """The file."""
        return self._folder / "history.duckdb"

    def close(self) -> None:
        """Delete a temporary directory."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def discard(self) -> None:
        """Delete a file that turned out to be damaged."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def current(self, listing: Listing, known: OpenFile | None = None) -> OpenFile:
        """The file with what is listed or came since; made, or brought up to date, where it is not.

        `known` is the file as it was opened before, and is opened anew where another one took its place.
        Raises StorageError where the roots cannot be listed, or no file can be made at all.
        """
        found = self._opened(known)
        if found is not None and found.take_in(self._roots, listing):
            with contextlib.suppress(OSError):
                os.utime(self._folder)
            return found
        try:
            with self._lock():
                # Another process may have waited for the lock, too.
                listing, found = Listing.of(self._roots, listing), self._opened(found)
                if found is not None and found.take_in(self._roots, listing):
                    return found
                return self._written(listing, found)
        except (duckdb.Error, OSError) as error:
            self._uses.check()
            if found is None:
                cause = f"{one_line(error)}; let DSOCR_CACHE name a folder that takes files"
                raise StorageError(f"{self._folder}: the history's index cannot be made ({cause})") from error
            self.discard()  # a block of it may be damaged
        return self.current(listing)

    def _opened(self, known: OpenFile | None) -> OpenFile | None:
        """The file as it is; None where there is none that can be read."""
        if (inode := _inode(self.path)) is None:
            return None
        if known is not None and known.inode == inode:
            return known
        try:
            return OpenFile(self.path, self._roots, self._uses)
        except (duckdb.Error, ValueError, TypeError):
            self._uses.check()  # an interruption says nothing about the file
            self.discard()
            return None

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Until the end of the block, or of the process. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)  # it may have been deleted since
        with (self._folder / "lock").open("ab") as handle:
            until = time.monotonic() + _PATIENCE_S
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    self._uses.check()
                    if time.monotonic() > until:
                        raise
                    time.sleep(_LOOK_S)
            yield

    def _written(self, listing: Listing, base: OpenFile | None) -> OpenFile:
        """Raises OSError, duckdb.Error."""
        part = self.path.with_suffix(".tmp")
        parts = (part, part.with_name(f"{part.name}.wal"))
        try:
            for left in parts:  # of a process that was killed
                left.unlink(missing_ok=True)
            if base is not None:
                shutil.copyfile(self.path, part)
            connection = duckdb.connect(":memory:")
            with contextlib.closing(connection), self._uses.use(connection.interrupt):
                connection.execute(f"ATTACH {literal(str(part))} AS ix; USE ix")
                if base is None:
                    connection.execute(CREATE)
                self._fill(connection, listing, base)
                connection.execute("USE memory; DETACH ix")  # which writes all of it into the file
            part.replace(self.path)
        finally:
            for left in parts:
                with contextlib.suppress(OSError):
                    left.unlink(missing_ok=True)
        if self._temporary is None:
            _delete_unused(self._folder.parent)
        return OpenFile(self.path, self._roots, self._uses)

    def _fill(self, connection: duckdb.DuckDBPyConnection, listing: Listing, base: OpenFile | None) -> None:
        was = base.runs if base else {}
        forget(connection, [run_id for run_id, at in was.items() if listing.runs.get(run_id) != at])
        new = [(name, at) for name, at in sorted(listing.runs.items()) if was.get(name) != at]
        runs, waiting = list[Run](), 0
        for name, (root, version) in new:
            self._uses.check()
            with contextlib.suppress(EntryGone):  # removed just now
                runs.append(read_run(self._roots[root], root, name, version))
                waiting += runs[-1].rows
            if waiting >= _TOGETHER:
                ingest(connection, runs)
                runs, waiting = [], 0
        ingest(connection, runs)
        known = connection.execute("SELECT root, name, version FROM annotation_files").fetchall()
        had = {(root, name): version for root, name, version in known}
        if any(listing.notes.get(file) != version for file, version in had.items()):
            connection.execute("DELETE FROM annotations; DELETE FROM annotation_files")
            had = {}
        notes, files = _read_annotations(self._roots, listing, sorted(listing.notes.keys() - had.keys()))
        _insert(connection, "annotations", notes)
        _insert(connection, "annotation_files", files)


def _delete_unused(parent: Path) -> None:
    """The files of roots that nobody opened for long, and of earlier forms."""
    with contextlib.suppress(OSError):
        for folder in parent.iterdir():
            if folder.stat().st_mtime < time.time() - _UNUSED_S:
                shutil.rmtree(folder, ignore_errors=True)


# --- annotations --------------------------------------------------------------------------------------


def annotation_name(time_ns: int, content: bytes) -> str:
    """Name a new annotation file, by its time and a digest of its content."""
    return f"{time_ns:020d}-{hashlib.sha256(content).hexdigest()[:20]}.json"


def _read_annotations(
    roots: Sequence[Storage], listing: Listing, names: Sequence[At]
) -> tuple[list[Row], list[Row]]:
    """Rows of annotation files, and a row for each file; of one that cannot be read why."""
    rows, files = list[Row](), list[Row]()
    for root, name in names:
        damage = None
        try:
            if (content := roots[root].annotation(name)) is None:  # removed just now
                continue
            rows += _annotation_rows(name, content)
        except DsocrError as error:
            damage = str(error)
        version = listing.notes[root, name]
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


# --- runs ---------------------------------------------------------------------------------------------


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
    rows: int = 0
    """Of all of them."""
    parity_rule: object = None
    damage: str | None = None

    def file(self, table: str) -> str:
        """Name a table's file. Raises EntryGone."""
        return str(self.storage.directory(self.id) / f"{table}.parquet")


def read_run(storage: Storage, root: int, name: str, version: str) -> Run:
    """Read a run's record and hold its files against their checksums. Raises EntryGone."""
    try:
        if version.startswith(UNLISTED):
            raise DsocrError(version)
        content = storage.document(name)
        directory = storage.directory(name)
        if content is None:
            if (directory / CHECKSUMS).exists():
                raise Damaged("run.json", "missing")
            return Run(name, root, version, storage)
        try:
            document = read_document(content)
            check_version(document)
            record, tables = RunRecord.from_json(document), document.get("tables")
            if record.id != name:
                raise RecordError(f"it says it is run {record.id}")
            if not isinstance(tables, dict) or not all(isinstance(rows, int) for rows in tables.values()):
                raise RecordError("it does not say which tables the run has")
        except DsocrError as error:
            raise Damaged("run.json", str(error)) from error
        known = [table for table in tables if table in TABLES]
        if (checksums := read_checksums(directory)) is None:
            raise Damaged(CHECKSUMS, "missing")
        verify(directory, checksums, ["run.json", *(f"{table}.parquet" for table in known)])
    except DsocrError as error:
        if not version.startswith(UNLISTED):
            storage.directory(name)  # raises EntryGone where the run was removed meanwhile
        return Run(name, root, version, storage, damage=str(error))
    rows, rule = sum(tables.values()), document.get("parity_rule")
    return Run(name, root, version, storage, record, content.decode(), known, rows, rule)


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
        elif runs[0].id in runs[0].storage.names():
            [run] = runs
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
    entries = [vars(run) | {"run_id": run.id, "created": run.record and run.record.created} for run in runs]
    _insert(connection, "entries", entries)
    whole = [(run, run.record) for run in runs if run.record is not None]
    described = [
        vars(record) | {"run_id": record.id, "created": time_of(record.created)} for _, record in whole
    ]
    _insert(connection, "runs", described)
    facts = [
        {"run_id": record.id, "section": section, "name": name, "value": value}
        for _, record in whole
        for section in ("settings", "environment", "versions")
        for name, value in flattened(getattr(record, section))
    ]
    _insert(connection, "facts", facts)
    [[last]] = connection.execute("SELECT coalesce(max(number), 0) FROM series").fetchall()
    for table, statements in _ADD.items():
        if having := [run for run, _ in whole if table in run.tables]:
            _expect(connection, [run.id for run in having])
            files = {"files": [run.file(table) for run in having]}
            for statement in statements:
                connection.execute(statement, files if "$files" in statement else None)
    connection.execute(_ADD_STATISTICS, {"after": last})
    for run, record in whole:
        if "parity" in run.tables and run.parity_rule != RULE:
            _judge_anew(connection, run, record)
    _expect(connection, [run.id for run, _ in whole])
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


def forget(connection: duckdb.DuckDBPyConnection, run_ids: Sequence[str]) -> None:
    """Take runs out again."""
    if not run_ids:
        return
    connection.execute("BEGIN")
    _expect(connection, run_ids)
    connection.execute(
        "DELETE FROM times WHERE series IN (SELECT number FROM series SEMI JOIN expected USING (run_id))"
    )
    for table in _OF_RUNS:
        connection.execute(f"DELETE FROM {table} WHERE run_id IN (SELECT run_id FROM expected)")
    connection.execute("COMMIT")


def _expect(connection: duckdb.DuckDBPyConnection, run_ids: Iterable[str]) -> None:
    """Say which runs the next statements are about."""
    connection.execute("CREATE OR REPLACE TEMP TABLE expected (run_id VARCHAR)")
    connection.execute("INSERT INTO expected SELECT unnest($ids)", {"ids": list(run_ids)})


def _insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows into a table; what it has no column for is left out."""
    if not rows:
        return
    names = [name for name, *_ in connection.execute(f"DESCRIBE {table}").fetchall()]
    connection.register("given", pa.table({name: [row.get(name) for row in rows] for name in names}))
    try:
        connection.execute(f"INSERT INTO {table} BY NAME SELECT * FROM given")
    finally:
        connection.unregister("given")
