"""The history as one reads it: an index of what lies in some storages, brought up to date by listing them."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.paths import PROJECT_ROOT, RUNS_DIRECTORY
from dsocr_core.base.sanitise import json_bytes
from dsocr_core.base.temporary import Temporary
from dsocr_core.base.uses import Uses
from dsocr_core.runs import statements
from dsocr_core.runs.annotations import annotation_name
from dsocr_core.runs.checksums import CHECKSUMS, read_checksums
from dsocr_core.runs.index import LATER, SHARED
from dsocr_core.runs.index_file import Entry, Index, IndexFolder, Listing, attach
from dsocr_core.runs.parquet import read_rows
from dsocr_core.runs.queries import QUERIES
from dsocr_core.runs.queries.gaps import VIEW_NAMES as GAP_VIEWS
from dsocr_core.runs.queries.query import LISTED, Query, literal
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.schema import OTHER_VERSION, SCHEMA_VERSION, TABLES, VIEWS, relation, stored
from dsocr_core.runs.statements import Limits, OverLimit, select_only
from dsocr_core.runs.storage.entries import Storage, open_storage
from dsocr_core.runs.storage.store import EntryGone, NoRoom, writing
from dsocr_core.runs.taking import verified
from dsocr_core.runs.writer import RunWriter

T = TypeVar("T")

DEFAULT_LOCATION = RUNS_DIRECTORY / "history"
EXAMPLE = "example"
"""The tag of the runs that come with the project."""
SEED_LOCATION = PROJECT_ROOT / "data" / "history_seed"
"""Runs that come with the project; they are only read."""

_TRIES = 5
_OF_A_FILE = (
    duckdb.IOException, duckdb.InternalException, duckdb.FatalException, duckdb.SerializationException,
    pa.ArrowException, OSError,
)  # fmt: skip
"""Errors that a damaged or deleted file explains."""
_NAMES = sorted({*SHARED, *TABLES, *VIEWS, *GAP_VIEWS, "marks", "listed"})
READABLE = f"""
SELECT name, string_agg(column_name, ', ' ORDER BY place) AS columns
FROM (
    SELECT table_name AS name, column_name, min(column_index) AS place FROM duckdb_columns()
    WHERE table_name IN ({", ".join(map(literal, _NAMES))}) GROUP BY ALL
)
GROUP BY name ORDER BY name
"""
"""Statement that lists every table that one can read, with its columns; naming them makes them there."""
_LATEST_NS = 2**62
"""The year 2116: a file that claims more does not move what is written after it."""


class HistoryError(DsocrError):
    """A question the history cannot answer: no such run, no such query, SQL that is not a SELECT."""


class History:
    """All runs of a location, and of further ones that are only read (runs shipped with the project).

    Any thread may call anything, `close` too: what others ask then ends with Closed. New runs of other
    processes are there after `refresh`.
    """

    def __init__(self, location: str | Path = DEFAULT_LOCATION, also: Sequence[str | Path] = ()) -> None:
        """Opens the index of what is there, or makes it.

        Raises StorageError when the location cannot be read, or the machine takes no temporary file.
        """
        self.storage = open_storage(location)
        self._storages: list[Storage] = [self.storage, *map(open_storage, also)]
        with writing("temporary files", NoRoom):
            self._temporary = Temporary("history")
            self._own = Path(self._temporary.name)
            for name, content in _empty_tables().items():
                (self._own / f"{name}.parquet").write_bytes(content)
        roots = [storage.root for storage in self._storages]
        self._uses = Uses("the history")
        self._folder = IndexFolder(self._storages, [self._own, *roots], self._uses)
        self._refreshing = threading.Lock()
        self._glance: object = None
        self._open_index: Index | None = None
        try:
            self._open_index = self._opened()
        except BaseException:
            self.close()
            raise
        self.state_of_runs: Hashable = object()
        """Another one once a run came or went: what was answered before is out of date."""
        self.state: Hashable = object()
        """Another one once something was noted, too."""

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Interrupt what other threads ask, wait for them, and delete temporary files. May be repeated."""
        self._uses.end()
        with contextlib.ExitStack() as stack:
            stack.callback(self._temporary.cleanup)
            stack.callback(self._folder.close)
            if self._open_index is not None:
                stack.callback(self._open_index.close)

    @property
    def _index(self) -> Index:
        """Raises Closed."""
        self._uses.check()
        assert self._open_index is not None
        return self._open_index

    # --- bringing it up to date -----------------------------------------------------------------

    def refresh(self) -> int:
        """Take in what was added or removed since; returns how many runs came or went."""
        with self._uses.use(), self._refreshing:
            # A damaged file may be whole again without a change of the directory that it lies in.
            if not self._index.damaged and self._look() == self._glance:
                return 0
            return self._refresh()

    def _refresh(self) -> int:
        glance, listing, index = self._look(), Listing.of(self._storages), self._index
        before = {run.id: (run.storage, run.version) for run in index.entries.values()}
        index.add_runs(self._storages, listing)
        if index.fits(listing):
            index.take_in(self._storages, listing)
            self._glance = glance
        else:
            self._replace()
        after = {run.id: (run.storage, run.version) for run in self._index.entries.values()}
        self.state = object()  # after the index: what is made between has the older state
        if before != after:
            self.state_of_runs = self.state
        return len(dict.fromkeys(run_id for run_id, _ in before.items() ^ after.items()))

    def _look(self) -> object:
        return [storage.glance() for storage in self._storages]

    def _replace(self) -> None:
        self._open_index = self._opened()  # the old one is closed when nobody asks it any more

    def _opened(self) -> Index:
        self._glance = self._look()
        try:
            return self._folder.open()
        except duckdb.Error as error:
            raise HistoryError(f"the history's index cannot be made: {one_line(error)}") from error

    @property
    def problems(self) -> dict[str, str]:
        """Entries that cannot be read, with the file and the cause; those in the trash are not among them."""
        damaged = self._index.damaged
        marked = self._marked_trash() if damaged else set()
        there = {key: why for key, why in damaged.items() if key.removeprefix("runs/") not in marked}
        return there | self._index.bad_annotations

    def damaged(self) -> dict[str, str]:
        """Damaged runs by id, those in the trash too."""
        return {key.removeprefix("runs/"): why for key, why in self._index.damaged.items()}

    @property
    def of_other_versions(self) -> dict[str, str]:
        """Runs by id that another version of the program recorded, with what to do: not read, not damaged."""
        return {run_id: why for run_id, why in self.damaged().items() if OTHER_VERSION in why}

    # --- asking ---------------------------------------------------------------------------------

    def query(self, name: str, **parameters: Any) -> tuple[pd.DataFrame, str]:
        """The answer to a question of `queries.QUERIES`, and the SQL that a person can run for it.

        Raises HistoryError for a question or a parameter there is not.
        """
        if name not in QUERIES:
            raise HistoryError(f"there is no query '{name}'; there are {', '.join(sorted(QUERIES))}")
        query = QUERIES[name]
        unknown = parameters.keys() - query.parameters.keys()
        missing = [key for key, value in query.parameters.items() if value is ... and key not in parameters]
        if unknown or missing:
            raise HistoryError(f"query {name}: unknown {sorted(unknown)}, missing {missing}")
        bound = {**query.parameters, **parameters}
        return self._with_files(lambda: self._answer(query, bound)), query.shown(bound)

    def _answer(self, query: Query, bound: Mapping[str, Any]) -> pd.DataFrame:
        values = {
            name: list(value) if isinstance(value, (tuple, set)) else value for name, value in bound.items()
        }
        if query.table:
            values["files"] = self.files(query.table, query.chosen(bound))
        return self._frame(query.asked, values)

    def _frame(self, sql: str, values: Mapping[str, Any]) -> pd.DataFrame:
        with self._index.cursor() as cursor:
            frame: pd.DataFrame = cursor.execute(sql, dict(values)).df()
            return frame

    def _with_files(self, ask: Callable[[], T]) -> T:
        """Ask; again when a run went away or was damaged since, or the index itself turns out to be damaged.

        Raises HistoryError for what none of them explains.
        """
        with self._uses.use():
            return self._asked(ask)

    def _asked(self, ask: Callable[[], T]) -> T:
        discarded = False
        for _ in range(_TRIES):
            try:
                return ask()
            except EntryGone:
                self._changed()
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                self._uses.check()
                if self._changed():
                    continue
                if discarded or not isinstance(error, duckdb.Error):
                    raise HistoryError(f"the history: {one_line(error)}") from error
                self._discard()
                discarded = True
        raise HistoryError("the history changes faster than it can be read; try again")

    def _changed(self) -> bool:
        """Tell whether there is another index after looking at every file."""
        with self._refreshing:
            before = self._index
            self._refresh()
            return self._index is not before

    def _discard(self) -> None:
        """Make the index anew."""
        with self._refreshing:
            self._folder.discard(self._index)
            self._replace()
            self.state = self.state_of_runs = object()

    def sql(self, statement: str, limits: Limits = Limits()) -> pd.DataFrame:  # noqa: B008 - immutable
        """The answer to one SELECT over the tables of `schema.TABLES`, `runs`, `facts`, `marks` ...

        Raises HistoryError, also for a statement that takes more than the limits.
        """
        return statements.joined(list(self.sql_pieces(statement, limits)))

    def sql_pieces(self, statement: str, limits: Limits, again: bool = False) -> Iterator[pd.DataFrame]:
        """The answer piece by piece, in bounded memory; the first gives the columns. Raises HistoryError.

        `again`: the index was made anew for it.
        """
        reason = select_only(statement)
        if reason:
            raise HistoryError(reason)
        index, words = self._index, statement.lower()

        def connect(connection: duckdb.DuckDBPyConnection) -> None:
            self._connect(index, words, connection)

        begun = False
        try:
            for piece in statements.ask(connect, statement, limits, self._uses):
                begun = True
                yield piece
        except OverLimit as error:
            raise HistoryError(f"SQL: {error}") from error
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            self._uses.check()
            # Of a damaged block DuckDB raises its base class.
            of_a_file = isinstance(error, _OF_A_FILE) or type(error) is duckdb.Error
            if begun or again or not of_a_file or not self._index_changed(index):
                raise HistoryError(f"SQL: {one_line(error, 500)}") from error
            yield from self.sql_pieces(statement, limits, again=True)

    def _index_changed(self, index: Index) -> bool:
        """Tell whether there is another index now than this one, with which something failed."""
        if self._index is index and not self._changed():
            self._discard()
        return self._index is not index

    def _connect(self, index: Index, words: str, connection: duckdb.DuckDBPyConnection) -> None:
        """Give a connection the tables that a statement may name."""
        with index.cursor() as cursor:
            cursor.execute("BEGIN")
            attach(connection, index.file)
            connection.execute(LATER)
            connection.execute(f"CREATE VIEW memory.main.listed AS {LISTED}")
            for name in SHARED:
                connection.register("given", cursor.sql(f"FROM memory.later.{name}").to_arrow_table())
                connection.execute(f"INSERT INTO memory.later.{name} FROM given")
                connection.unregister("given")
        connection.execute("CREATE TEMP VIEW timings AS FROM memory.main.stage_timings")
        views = [name for name in VIEWS if name in words and name != "stage_timings"]
        named = {stored(name) for name in (*TABLES, *views) if name in words} - {"timings"}
        for name in sorted(named):
            connection.register(name, self._dataset(name))
        for name in views:
            connection.execute(f"CREATE TEMP VIEW {name} AS FROM {relation(name, VIEWS[name][0])}")

    def _dataset(self, table: str) -> object:
        """A table of all runs, read from their files as it is asked for."""
        files = self.files(table, self._index.entries)
        return pyarrow.dataset.dataset(files, schema=TABLES[table], format="parquet")

    def files(self, table: str, run_ids: Iterable[str]) -> list[str]:
        """Parquet files with the rows of these runs, after one without rows that gives the columns.

        Of a view those of the table that it is read from.
        """
        table, entries = stored(table), self._index.entries
        having = [entries[run_id] for run_id in run_ids if run_id in entries]
        return [
            str(self._own / f"{table}.parquet"),
            *(str(self._directory(run) / f"{table}.parquet") for run in having if table in run.rows),
        ]

    def _directory(self, run: Entry) -> Path:
        """Raises EntryGone."""
        return self._storages[run.storage].directory(run.id)

    def runs(self, **filters: Any) -> pd.DataFrame:
        """The runs that pass the filters of the query `runs`, newest first."""
        return self.query("runs", **filters)[0]

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._index.entries

    def __len__(self) -> int:
        return len(self._index.entries)

    def run_ids(self) -> list[str]:
        """All runs, those in the trash too, oldest first."""
        return list(self._index.entries)

    def runs_with(self, table: str) -> list[str]:
        """Runs that have rows of a table, oldest first; no file is read for it."""
        return [run.id for run in self._index.entries.values() if stored(table) in run.rows]

    def record(self, run_id: str) -> RunRecord:
        """Raises HistoryError when there is no such run."""
        self._entry(run_id)
        return self._with_files(lambda: self._index.record(run_id))

    def version(self, run_id: str) -> str:
        """A text that is another once a file of the run is. Raises HistoryError for one gone or damaged."""
        run = self._entry(run_id)
        with self._uses.use(), contextlib.suppress(OSError):
            if self._storages[run.storage].version(run_id) == run.version:
                return run.version
        with self._uses.use():
            self._changed()
        return self._entry(run_id).version

    def tables(self, run_id: str) -> dict[str, pa.Table]:
        """All rows of a run, by table."""
        return self._with_files(lambda: self._tables(self._entry(run_id)))

    def _tables(self, run: Entry) -> dict[str, pa.Table]:
        directory = self._directory(run)
        return {
            name: read_rows(directory / f"{name}.parquet", TABLES[name])
            for name in TABLES
            if name in run.rows
        }

    def readings(
        self, run_id: str, pages: Sequence[str] | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows of a run's readings, or of those pages and columns, as Arrow: exact numbers and lists."""
        return self._with_files(lambda: self._readings(self._entry(run_id), pages, columns))

    def _readings(self, run: Entry, pages: Sequence[str] | None, columns: Sequence[str] | None) -> pa.Table:
        schema = TABLES["readings"]
        if "readings" not in run.rows:
            return schema.empty_table() if columns is None else schema.empty_table().select(columns)
        only = None if pages is None else pc.field("page").isin(pa.array([*pages], pa.string()))
        file = self._directory(run) / "readings.parquet"
        return pq.read_table(file, schema=schema, filters=only, columns=columns and [*columns])

    def file_names(self, run_id: str) -> list[str]:
        """Files a run has beside its document and tables (`predictions.jsonl`, `viz/...`)."""
        run = self._entry(run_id)
        own = {"run.json", CHECKSUMS, *(f"{name}.parquet" for name in TABLES)}
        return [name for name in self._storages[run.storage].files(run_id) if name not in own]

    def file(self, run_id: str, relative: str) -> Path:
        """A local copy of one of those files. Raises HistoryError or StorageError."""
        return self._storages[self._entry(run_id).storage].file(run_id, relative)

    def _entry(self, run_id: str) -> Entry:
        if (run := self._index.entries.get(run_id)) is not None:
            return run
        if why := self._index.damaged.get(f"runs/{run_id}"):
            raise HistoryError(f"run {run_id} is damaged: {why}; see history check")
        raise HistoryError(f"there is no run '{run_id[:60]}'")

    # --- adding and marking ---------------------------------------------------------------------

    def writer(self, record: RunRecord) -> RunWriter:
        """Open the place where a new run of this history is written; it takes the name of a damaged one."""
        replace = record.id in self.damaged().keys() - self.of_other_versions.keys()
        return RunWriter(self.storage, record, replace=replace)

    def annotate(
        self, run_id: str, kind: str, value: str | None, *, page: str | None = None, name: str | None = None
    ) -> None:
        """Add a row about a run (of a page); the last of a kind, page and name is what counts.

        Kinds of the history itself: `note` (value is its text), `tag` (name is the tag, value on or off),
        `trash` (on or off). Pages may add their own (`verdict`).
        """
        self.annotate_all(run_id, kind, [(page, name, value)])

    def annotate_all(
        self, run_id: str, kind: str, rows: Iterable[tuple[str | None, str | None, str | None]]
    ) -> None:
        """Add many rows of one kind, (page, name, value) each, in one file: all of them or none."""
        self.record(run_id)
        self._write_annotations(
            [
                {"run_id": run_id, "kind": kind, "page": page, "name": name, "value": value}
                for page, name, value in rows
            ]
        )

    def tag(self, run_id: str, tag: str, on: bool = True) -> None:
        self.annotate(run_id, "tag", "on" if on else "off", name=tag)

    def note(self, run_id: str, text: str) -> None:
        self.annotate(run_id, "note", text)

    def trash(self, run_ids: Iterable[str]) -> None:
        """Hide runs, damaged ones too; `restore` brings them back, `empty_trash` deletes them."""
        self._mark_trash(run_ids, "on")

    def restore(self, run_ids: Iterable[str]) -> None:
        self._mark_trash(run_ids, "off")

    def trashed(self) -> list[str]:
        """Runs in the trash, and what is damaged there."""
        there = self._index.entries.keys() | self.damaged().keys()
        return sorted(run_id for run_id in self._marked_trash() if run_id in there)

    def empty_trash(self) -> int:
        """Delete the runs in the trash for good, those of the history's own location; returns how many.

        Runs of other versions stay. Raises StorageError.
        """
        self.refresh()
        gone = sorted(set(self.trashed()) & self.storage.names() - self.of_other_versions.keys())
        for run_id in gone:
            self.storage.remove(run_id)
        self.refresh()
        return len(gone)

    def _marked_trash(self) -> set[str]:
        marked = self._with_files(lambda: self._frame("SELECT run_id FROM marks WHERE trashed", {}))
        return set(marked["run_id"])

    def _mark_trash(self, run_ids: Iterable[str], value: str) -> None:
        damaged = self.damaged()
        ids = [run_id if run_id in damaged else self.record(run_id).id for run_id in run_ids]
        rows = [
            {"run_id": run_id, "kind": "trash", "page": None, "name": None, "value": value} for run_id in ids
        ]
        self._write_annotations(rows)

    def _write_annotations(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if not rows:
            return
        self.refresh()
        # What is said last counts, also where the clock went back or another machine's is ahead.
        now = max(time.time_ns(), min(self._index.newest_note + 1, _LATEST_NS))
        content = json_bytes({"schema_version": SCHEMA_VERSION, "time_ns": now, "rows": rows})
        self.storage.write_annotation(annotation_name(now, content), content)
        self.refresh()

    # --- checking -------------------------------------------------------------------------------

    def listed_files(self, run_id: str) -> list[str]:
        """Files of a run that have a checksum. Raises DsocrError."""
        return sorted(read_checksums(self._directory(self._entry(run_id))) or {})

    def verify_file(self, run_id: str, name: str) -> None:
        """Hold a file of a run, pictures included, against its checksum. Raises DsocrError."""
        storage = self._storages[self._entry(run_id).storage]
        with contextlib.suppress(EntryGone):  # which is then missing
            storage.file(run_id, name)  # fetches it
        verified(storage, run_id, [name])


@cache
def _empty_tables() -> Mapping[str, bytes]:
    """The Parquet files without rows that give the columns, by table."""
    files = {}
    for name, schema in TABLES.items():
        sink = pa.BufferOutputStream()
        pq.write_table(schema.empty_table(), sink)
        files[name] = sink.getvalue().to_pybytes()
    return files
