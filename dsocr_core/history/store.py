"""The history as one reads it: what lies in a storage, loaded once, brought up to date by listing it."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dsocr_core.errors import DsocrError, one_line
from dsocr_core.history.annotations import AnnotationFiles, Row, annotation_name
from dsocr_core.history.answers import MOST_BYTES, Answers
from dsocr_core.history.checksums import CHECKSUMS, read_checksums
from dsocr_core.history.database import HELD, HELD_IN_PARTS, HELD_WHOLE, Change, Database
from dsocr_core.history.entries import BAD_FILE, Entries, Entry
from dsocr_core.history.queries import QUERIES
from dsocr_core.history.queries.query import Query
from dsocr_core.history.queries.statement import select_only
from dsocr_core.history.record import RunRecord, json_bytes
from dsocr_core.history.schema import SCHEMA_VERSION, TABLES, VIEWS, stored
from dsocr_core.history.snapshot import Limits, OverLimit, Snapshot
from dsocr_core.history.storage.base import EntryGone, Leftover, NoRoom, writing
from dsocr_core.history.storage.open import open_storage
from dsocr_core.history.writer import RunWriter
from dsocr_core.outside.temporary import Temporary
from dsocr_core.settings import PROJECT_ROOT, RUNS_DIRECTORY

T = TypeVar("T")

DEFAULT_LOCATION = RUNS_DIRECTORY / "history"
EXAMPLE = "example"
"""The tag of the runs that come with the project."""
SEED_LOCATION = PROJECT_ROOT / "data" / "history_seed"
"""Runs that come with the project; they are only read."""

_FILES_AT_ONCE = 100
_TRIES = 5
_LATEST_NS = 2**62
"""The year 2116: a file that claims more does not move what is written after it."""


class HistoryError(DsocrError):
    """A question the history cannot answer: no such run, no such query, SQL that is not a SELECT."""


class History:
    """All runs of a location, and of further ones that are only read (runs shipped with the project).

    Any thread may call anything. New runs of other processes are there after `refresh`.
    """

    def __init__(
        self,
        location: str | Path = DEFAULT_LOCATION,
        also: Sequence[str | Path] = (),
        held_bytes: int = MOST_BYTES,
    ) -> None:
        """Loads what is there; answers of at most `held_bytes` are given again while nothing changes.

        Raises StorageError when the location cannot be read, or the machine takes no temporary file.
        """
        self.storage = open_storage(location)
        storages = (self.storage, *map(open_storage, also))
        with writing("temporary files", NoRoom):
            self._temporary = Temporary("history")
            self._own = Path(self._temporary.name)
            for name, content in _empty_tables().items():
                (self._own / f"{name}.parquet").write_bytes(content)
        roots = [Path(root) for storage in storages if (root := getattr(storage, "root", None))]
        self._database = Database([self._own, *roots])
        self._there = Entries(storages, self._own)
        self._annotations = AnnotationFiles(storages)
        self._entries: dict[str, Entry] = {}
        self._refreshing = threading.Lock()
        self._newest_note = 0
        """Position of the last annotation, nanoseconds."""
        self._changes = 0
        self._answers = Answers(held_bytes)
        self._copying = threading.Lock()
        self._copy: tuple[int, set[str], Snapshot | None] = (-1, set(), None)
        """For people's statements: the number of the change it was made after, and the tables in it."""
        self.refresh()

    def __enter__(self) -> History:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._database.close()
        self._temporary.cleanup()

    # --- bringing it up to date -----------------------------------------------------------------

    def refresh(self) -> int:
        """Take in what was added or removed since; returns how many runs came or went."""
        with self._refreshing:
            for _ in range(_TRIES):
                # A run that is folded into a pack while it is loaded is found there the next time.
                with contextlib.suppress(EntryGone):
                    return self._refresh()
            return self._refresh()

    def _refresh(self) -> int:
        found = self._there.found(self._entries)
        gone = [run_id for run_id in self._entries if run_id not in found]
        new = [entry for run_id, entry in found.items() if run_id not in self._entries]
        notes, files = self._annotations.new()
        self._newest_note = max([self._newest_note, *(row["position"] for row in notes)])
        if gone or new or notes:
            new = self._load(gone, new, notes)
            self._changes += 1
        self._annotations.remember(files)
        # A run may lie in a pack by now.
        self._entries |= {run_id: found[run_id] for run_id in self._entries}
        return len(gone) + len(new)

    @property
    def problems(self) -> dict[str, str]:
        """Entries that cannot be read, with the file and the cause; those in the trash are not among them."""
        there = {key: why for key, why in self._there.problems.items() if key not in self._trashed_damage}
        return there | self._annotations.problems

    def damaged(self) -> dict[str, str]:
        """Damaged runs (by id) and packs (`packs/<name>`), those in the trash too, with the reason."""
        return {key.removeprefix("runs/"): why for key, why in self._there.problems.items()}

    def _load(self, gone: Sequence[str], new: Sequence[Entry], notes: Sequence[Row]) -> list[Entry]:
        """Everything in one transaction; a run whose files are bad is left out and named."""
        while True:
            try:
                with Change(self._database) as change:
                    if gone:
                        change.forget(gone)
                    if new:
                        self._load_runs(change, new)
                    if notes:
                        change.add_annotations(notes)
                break
            except _BadRuns as error:
                self._there.set_problems(error.reasons)
                new = [entry for entry in new if entry.key not in {bad.key for bad in error.reasons}]
        for run_id in gone:
            self._entries.pop(run_id)
        self._entries |= {entry.record.id: entry for entry in new}
        return list(new)

    def _load_runs(self, change: Change, new: Sequence[Entry]) -> None:
        change.add_runs([entry.record for entry in new])
        for table in HELD:
            for files, entries in self._batches(table, new):
                self._load_files(change, table, files, entries)
        change.add_statistics()

    def _batches(self, table: str, entries: Sequence[Entry]) -> Iterator[tuple[list[Path], list[Entry]]]:
        """Entries that have the table, so many files at a time; a pack's runs share one file."""
        files: dict[Path, list[Entry]] = {}
        reasons: dict[Entry, str] = {}
        for entry in entries:
            if table in entry.tables:
                try:
                    files.setdefault(self._there.file(entry, table), []).append(entry)
                except (EntryGone, NoRoom):
                    raise
                except BAD_FILE as error:
                    reasons[entry] = f"{table}.parquet: {one_line(error)}"
        if reasons:
            raise _BadRuns(reasons)
        paths = list(files)
        for start in range(0, len(paths), _FILES_AT_ONCE):
            batch = paths[start : start + _FILES_AT_ONCE]
            yield batch, [entry for file in batch for entry in files[file]]

    def _load_files(
        self, change: Change, table: str, files: Sequence[Path], entries: Sequence[Entry]
    ) -> None:
        try:
            change.add_table(table, files, [entry.record.id for entry in entries])
        except duckdb.Error as error:
            reasons = self._there.unreadable(table, entries)
            if not reasons:  # not one file's fault
                raise HistoryError(f"table {table}: {one_line(error)}") from error
            raise _BadRuns(reasons) from error

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
        return self._answers.get(self._changes, query.asked, values, lambda: self._frame(query.asked, values))

    def _frame(self, sql: str, values: Mapping[str, Any]) -> pd.DataFrame:
        with contextlib.closing(self._database.cursor()) as cursor:
            frame: pd.DataFrame = cursor.execute(sql, dict(values)).df()
            return frame

    def _with_files(self, ask: Callable[[], T]) -> T:
        """Ask; again when a run was folded away in between, or was found to be damaged and left out.

        Raises HistoryError for what neither explains.
        """
        for _ in range(_TRIES):
            try:
                return ask()
            except EntryGone:
                self.refresh()
            except (duckdb.Error, pa.ArrowException, OSError) as error:
                moved = isinstance(error, (duckdb.IOException, FileNotFoundError))
                if not self._there.find_damage(self._entries.values()) and not moved:
                    raise HistoryError(f"the history: {one_line(error)}") from error
                self.refresh()
        try:
            return ask()
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise HistoryError(f"the history: {one_line(error)}") from error

    def sql(self, statement: str, limits: Limits = Limits()) -> pd.DataFrame:  # noqa: B008 - immutable
        """The answer to one SELECT over the tables of `schema.TABLES`, `runs`, `facts`, `marks` ...

        It is asked of a copy of what it names, in a database that can only be read and that reaches no file.
        Raises HistoryError, also for a statement that takes more than the limits.
        """
        reason = select_only(statement)
        if reason:
            raise HistoryError(reason)
        snapshot = self._with_files(lambda: self._snapshot(statement.lower(), limits.mebibytes))
        try:
            return snapshot.ask(statement, limits)
        except OverLimit as error:
            raise HistoryError(f"SQL: {error}") from error
        except duckdb.Error as error:
            raise HistoryError(f"SQL: {one_line(error, 500)}") from error

    def _snapshot(self, statement: str, mebibytes: int = Limits.mebibytes) -> Snapshot:
        """A copy of what a statement may name, and what was named since the history last changed."""
        named = {name for name in (*TABLES, *VIEWS, *HELD_IN_PARTS) if name in statement}
        with self._copying:
            state, copied, snapshot = self._copy
            fits = snapshot is not None and snapshot.mebibytes == mebibytes
            if snapshot is not None and fits and state == self._changes and copied >= named:
                return snapshot
            if state == self._changes:
                named |= copied
            in_files = named - {*HELD_WHOLE, *HELD_IN_PARTS}
            state, files = self._changes, {name: self.files(name, self._entries) for name in in_files}
            file = self._own / f"copy_{secrets.token_hex(8)}.duckdb"
            with contextlib.closing(self._database.cursor()) as cursor:
                snapshot = Snapshot(cursor, file, files, named > in_files, mebibytes)
            self._copy = state, named, snapshot
            return snapshot

    def files(self, table: str, run_ids: Iterable[str]) -> list[str]:
        """Parquet files with the rows of these runs, after one without rows that gives the columns.

        Of a view those of the table that it is read from.
        """
        table = stored(table)
        entries = [self._entries[run_id] for run_id in run_ids if run_id in self._entries]
        with_table = [entry for entry in entries if table in entry.tables]
        found: dict[str, None] = {}
        for entry in with_table:
            try:
                found[str(self._there.file(entry, table))] = None
            except (EntryGone, NoRoom):
                raise
            except BAD_FILE as error:  # left out with the next refresh
                self._there.set_problems({entry: f"{table}.parquet: {one_line(error)}"})
        return [str(self._own / f"{table}.parquet"), *found]

    def runs(self, **filters: Any) -> pd.DataFrame:
        """The runs that pass the filters of the query `runs`, newest first."""
        return self.query("runs", **filters)[0]

    def __contains__(self, run_id: str) -> bool:
        return run_id in self._entries

    def __len__(self) -> int:
        return len(self._entries)

    def run_ids(self) -> list[str]:
        """All runs, those in the trash too, oldest first."""
        return sorted(self._entries, key=lambda run_id: (self._entries[run_id].record.created, run_id))

    def runs_with(self, table: str) -> list[str]:
        """Runs that have rows of a table, oldest first; no file is read for it."""
        return [run_id for run_id in self.run_ids() if stored(table) in self._entries[run_id].tables]

    def packed(self) -> dict[str, list[str]]:
        """The runs that are read from each pack of the history's own location."""
        found: dict[str, list[str]] = {}
        for run_id, entry in self._entries.items():
            if entry.kind == "packs" and entry.storage is self.storage:
                found.setdefault(entry.name, []).append(run_id)
        return found

    def record(self, run_id: str) -> RunRecord:
        """Raises HistoryError when there is no such run."""
        return self._entry(run_id).record

    def tables(self, run_id: str) -> dict[str, pa.Table]:
        """All rows of a run, by table."""
        return self._with_files(lambda: self._tables(self._entry(run_id)))

    def _tables(self, entry: Entry) -> dict[str, pa.Table]:
        only = [("run_id", "=", entry.record.id)]
        return {
            name: pq.read_table(self._there.file(entry, name), schema=TABLES[name], filters=only)
            for name in TABLES
            if name in entry.tables
        }

    def readings(
        self, run_id: str, pages: Sequence[str] | None = None, columns: Sequence[str] | None = None
    ) -> pa.Table:
        """The rows of a run's readings, or of those pages and columns, as Arrow: exact numbers and lists."""
        return self._with_files(lambda: self._readings(self._entry(run_id), pages, columns))

    def _readings(self, entry: Entry, pages: Sequence[str] | None, columns: Sequence[str] | None) -> pa.Table:
        schema = TABLES["readings"]
        if "readings" not in entry.tables:
            return schema.empty_table() if columns is None else schema.empty_table().select(columns)
        only = pc.field("run_id") == entry.record.id
        if pages is not None:
            only = only & pc.field("page").isin(pa.array([*pages], pa.string()))
        file = self._there.file(entry, "readings")
        return pq.read_table(file, schema=schema, filters=only, columns=columns and [*columns])

    def file_names(self, run_id: str) -> list[str]:
        """Files a run has beside its document and tables (`predictions.jsonl`, `viz/...`)."""
        entry = self._entry(run_id)
        inside = "" if entry.kind == "runs" else f"files/{run_id}/"
        own = {"run.json", CHECKSUMS, *(f"{name}.parquet" for name in TABLES)}
        return [
            name.removeprefix(inside)
            for name in entry.storage.files(entry.kind, entry.name)
            if name.startswith(inside) and name not in own
        ]

    def file(self, run_id: str, relative: str) -> Path:
        """A local copy of one of those files. Raises HistoryError or StorageError."""
        entry = self._entry(run_id)
        inside = relative if entry.kind == "runs" else f"files/{run_id}/{relative}"
        return entry.storage.file(entry.kind, entry.name, inside)

    def _entry(self, run_id: str) -> Entry:
        if run_id not in self._entries:
            if why := self._there.problems.get(f"runs/{run_id}"):
                raise HistoryError(f"run {run_id} is damaged: {why}; see history check")
            raise HistoryError(f"there is no run '{run_id[:60]}'")
        return self._entries[run_id]

    # --- adding and marking ---------------------------------------------------------------------

    def writer(self, record: RunRecord) -> RunWriter:
        """Where a new run of this history is written; it takes the name of a damaged one."""
        return RunWriter(self.storage, record, replace=record.id in self.damaged())

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
        """Hide runs, damaged ones and `packs/<name>` too; `restore` brings them back, `compact.empty_trash`
        deletes them.
        """
        self._mark_trash(run_ids, "on")

    def restore(self, run_ids: Iterable[str]) -> None:
        self._mark_trash(run_ids, "off")

    def trashed(self) -> list[str]:
        """Runs in the trash, and what is damaged there."""
        there = self._entries.keys() | self.damaged().keys()
        return sorted(run_id for run_id in self._marked_trash() if run_id in there)

    def _marked_trash(self) -> set[str]:
        return set(self._frame("SELECT run_id FROM marks WHERE trashed", {})["run_id"])

    @property
    def _trashed_damage(self) -> set[str]:
        """Keys of `problems` that are in the trash."""
        if not self._there.problems:
            return set()
        marked = self._marked_trash()
        return {key for key in self._there.problems if key.removeprefix("runs/") in marked}

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
        now = max(time.time_ns(), min(self._newest_note + 1, _LATEST_NS))
        content = json_bytes({"schema_version": SCHEMA_VERSION, "time_ns": now, "rows": rows})
        self.storage.write_annotation(annotation_name(now, content), content)
        self.refresh()

    # --- checking -------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """The directories of runs and the packs that are read, each once."""
        return list({entry.key: entry for entry in self._entries.values()}.values())

    def listed_files(self, entry: Entry) -> dict[str, str] | None:
        """The checksums of an entry's files; None where it has none. Raises DsocrError."""
        return read_checksums(entry.storage.directory(entry.kind, entry.name))

    def verify_file(self, entry: Entry, name: str) -> None:
        """Hold a file of an entry, pictures included, against its checksum. Raises DsocrError."""
        self._there.verify_file(entry, name)

    # --- what a crash left ----------------------------------------------------------------------

    def leftovers(self) -> list[Leftover]:
        """Temporary directories of writers that did not finish."""
        return self.storage.leftovers()

    def clear_leftovers(self) -> list[Leftover]:
        return self.storage.clear()


@cache
def _empty_tables() -> Mapping[str, bytes]:
    """The Parquet files without rows that give the columns, by table."""
    files = {}
    for name, schema in TABLES.items():
        sink = pa.BufferOutputStream()
        pq.write_table(schema.empty_table(), sink)
        files[name] = sink.getvalue().to_pybytes()
    return files


class _BadRuns(Exception):
    """Entries whose files cannot be read, with the reason."""

    def __init__(self, reasons: Mapping[Entry, str]) -> None:
        super().__init__(str(reasons))
        self.reasons = reasons
