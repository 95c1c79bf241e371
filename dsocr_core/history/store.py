"""The history as one reads it: what lies in a storage, loaded once, brought up to date by listing it."""

from __future__ import annotations

import contextlib
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.errors import DsocrError
from dsocr_core.history.annotations import AnnotationFiles, Row
from dsocr_core.history.database import HELD, HELD_WHOLE, Change, Database
from dsocr_core.history.entries import Entries, Entry, unreadable
from dsocr_core.history.queries import QUERIES, Query, literal, select_only
from dsocr_core.history.record import RunRecord, json_bytes
from dsocr_core.history.schema import SCHEMA_VERSION, TABLES
from dsocr_core.history.storage.base import EntryGone, Leftover
from dsocr_core.history.storage.open import open_storage
from dsocr_core.history.writer import RunWriter, write_table
from dsocr_core.settings import PROJECT_ROOT

T = TypeVar("T")

DEFAULT_LOCATION = PROJECT_ROOT / "data" / "runs" / "history"
SEED_LOCATION = PROJECT_ROOT / "data" / "history_seed"
"""Runs that come with the project; they are only read."""

_FILES_AT_ONCE = 100
_TRIES = 5


class HistoryError(DsocrError):
    """A question the history cannot answer: no such run, no such query, SQL that is not a SELECT."""


class History:
    """All runs of a location, and of further ones that are only read (runs shipped with the project).

    Any thread may call anything. New runs of other processes are there after `refresh`.
    """

    def __init__(self, location: str | Path = DEFAULT_LOCATION, also: Sequence[str | Path] = ()) -> None:
        """Loads what is there. Raises StorageError when the location cannot be read."""
        self.storage = open_storage(location)
        storages = (self.storage, *map(open_storage, also))
        self._temporary = tempfile.TemporaryDirectory(prefix="dsocr-history-")
        self._own = Path(self._temporary.name)
        for name, schema in TABLES.items():
            write_table(schema.empty_table(), self._own / f"{name}.parquet")
        roots = [Path(root) for storage in storages if (root := getattr(storage, "root", None))]
        self._database = Database([self._own, *roots])
        self._there = Entries(storages, self._own)
        self._annotations = AnnotationFiles(storages)
        self._entries: dict[str, Entry] = {}
        self._refreshing = threading.Lock()
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
        if gone or new or notes:
            new = self._load(gone, new, notes)
        self._annotations.remember(files)
        # A run may lie in a pack by now.
        self._entries |= {run_id: found[run_id] for run_id in self._entries}
        return len(gone) + len(new)

    @property
    def problems(self) -> dict[str, str]:
        """Entries that could not be read, with the reason."""
        return self._there.problems | self._annotations.problems

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
                self._there.problems |= error.reasons
                new = [entry for entry in new if f"{entry.kind}/{entry.name}" not in error.reasons]
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
        reasons: dict[str, str] = {}
        for entry in entries:
            if table in entry.tables:
                try:
                    files.setdefault(self._there.file(entry, table), []).append(entry)
                except EntryGone:
                    raise
                except (DsocrError, OSError, pa.ArrowException) as error:
                    reasons[f"{entry.kind}/{entry.name}"] = str(error)
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
            for entry in entries:
                entry.storage.directory(entry.kind, entry.name)  # raises EntryGone
            reasons = unreadable(table, files, entries)
            if not reasons:  # not one file's fault
                raise HistoryError(f"table {table}: {' '.join(str(error).split())[:300]}") from error
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
        return self._frame(query.sql, values)

    def _frame(self, sql: str, values: Mapping[str, Any]) -> pd.DataFrame:
        with contextlib.closing(self._database.cursor()) as cursor:
            frame: pd.DataFrame = cursor.execute(sql, dict(values)).df()
            return frame

    def _with_files(self, ask: Callable[[], T]) -> T:
        """Ask; again after a refresh when a run was folded away in between."""
        for _ in range(_TRIES):
            with contextlib.suppress(duckdb.IOException, EntryGone, FileNotFoundError):
                return ask()
            self.refresh()
        return ask()

    def sql(self, statement: str) -> pd.DataFrame:
        """The answer to one SELECT over the tables of `schema.TABLES`, `runs`, `facts` and `annotations`.

        Nothing outside the history's directories can be read, nothing can be changed. Raises HistoryError.
        """
        reason = select_only(statement)
        if reason:
            raise HistoryError(reason)
        try:
            return self._with_files(lambda: self._select(statement))
        except duckdb.Error as error:
            raise HistoryError(f"SQL: {' '.join(str(error).split())[:500]}") from error

    def _select(self, statement: str) -> pd.DataFrame:
        with contextlib.closing(self._database.cursor()) as cursor:
            for name in TABLES:
                if name not in HELD_WHOLE and name in statement.lower():
                    files = literal(self.files(name, self._entries))
                    cursor.execute(f"CREATE TEMP VIEW {name} AS FROM read_parquet({files})")
            frame: pd.DataFrame = cursor.execute(statement).df()
            return frame

    def files(self, table: str, run_ids: Iterable[str]) -> list[str]:
        """Parquet files with the rows of these runs, after one without rows that gives the columns."""
        entries = [self._entries[run_id] for run_id in run_ids if run_id in self._entries]
        with_table = [entry for entry in entries if table in entry.tables]
        found = dict.fromkeys(str(self._there.file(entry, table)) for entry in with_table)
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
        return [run_id for run_id in self.run_ids() if table in self._entries[run_id].tables]

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

    def file_names(self, run_id: str) -> list[str]:
        """Files a run has beside its document and tables (`predictions.jsonl`, `viz/...`)."""
        entry = self._entry(run_id)
        inside = "" if entry.kind == "runs" else f"files/{run_id}/"
        own = {"run.json", *(f"{name}.parquet" for name in TABLES)}
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
            raise HistoryError(f"there is no run '{run_id[:60]}'")
        return self._entries[run_id]

    # --- adding and marking ---------------------------------------------------------------------

    def writer(self, record: RunRecord) -> RunWriter:
        """Where a new run of this history is written."""
        return RunWriter(self.storage, record)

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
        """Hide runs; `restore` brings them back, `compact.empty_trash` deletes them."""
        self._mark_trash(run_ids, "on")

    def restore(self, run_ids: Iterable[str]) -> None:
        self._mark_trash(run_ids, "off")

    def trashed(self) -> list[str]:
        frame = self._frame("SELECT run_id FROM marks WHERE trashed ORDER BY run_id", {})
        return [run_id for run_id in frame["run_id"] if run_id in self._entries]

    def _mark_trash(self, run_ids: Iterable[str], value: str) -> None:
        ids = [self.record(run_id).id for run_id in run_ids]
        rows = [
            {"run_id": run_id, "kind": "trash", "page": None, "name": None, "value": value} for run_id in ids
        ]
        self._write_annotations(rows)

    def _write_annotations(self, rows: Sequence[Mapping[str, Any]]) -> None:
        if not rows:
            return
        now = time.time_ns()
        content = json_bytes({"schema_version": SCHEMA_VERSION, "time_ns": now, "rows": rows})
        self.storage.write_annotation(f"{now:020d}-{secrets.token_hex(6)}.json", content)
        self.refresh()

    # --- what a crash left ----------------------------------------------------------------------

    def leftovers(self) -> list[Leftover]:
        """Temporary directories of writers that did not finish."""
        return self.storage.leftovers()

    def clear_leftovers(self) -> list[Leftover]:
        return self.storage.clear()


class _BadRuns(Exception):
    """Entries (`runs/<id>`) whose files cannot be read, with the reason."""

    def __init__(self, reasons: dict[str, str]) -> None:
        super().__init__(str(reasons))
        self.reasons = reasons
