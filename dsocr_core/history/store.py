"""The history as one reads it: what lies in a place, loaded once, brought up to date by listing it."""

from __future__ import annotations

import contextlib
import json
import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dsocr_core.errors import DsocrError
from dsocr_core.history.database import HELD, HELD_WHOLE, Change, Database
from dsocr_core.history.place import EntryGone, Kind, Leftover, Place, open_place
from dsocr_core.history.queries import QUERIES, Query, literal, select_only
from dsocr_core.history.record import RecordError, RunRecord, json_bytes
from dsocr_core.history.schema import (
    SCHEMA_VERSION,
    TABLES,
    SchemaError,
    migrate_document,
    migrate_tables,
    version_of,
)
from dsocr_core.history.writer import RunWriter, write_table
from dsocr_core.settings import PROJECT_ROOT

Row = dict[str, Any]
T = TypeVar("T")

DEFAULT_LOCATION = PROJECT_ROOT / "data" / "runs" / "history"
SEED_LOCATION = PROJECT_ROOT / "data" / "history_seed"
"""Runs that come with the project; they are only read."""

_FILES_AT_ONCE = 100
_TRIES = 5
_MAX_DOCUMENT = 256 * 1024 * 1024


class HistoryError(DsocrError):
    """A question the history cannot answer: no such run, no such query, SQL that is not a SELECT."""


@dataclass(frozen=True)
class _Entry:
    """Where a run lies now."""

    record: RunRecord
    tables: frozenset[str]
    place: Place
    kind: Kind
    name: str
    """The run's own directory, or the pack it was folded into."""
    version: int
    only: frozenset[str] | None = None
    """Runs to take from a pack that holds some which are taken from another; None means all."""


class History:
    """All runs of a location, and of further ones that are only read (runs shipped with the project).

    Any thread may call anything. New runs of other processes are seen after `refresh`.
    """

    def __init__(self, location: str | Path = DEFAULT_LOCATION, also: Sequence[str | Path] = ()) -> None:
        """Loads what is there. Raises PlaceError when the location cannot be read."""
        self.place = open_place(location)
        self._places = (self.place, *map(open_place, also))
        self._temporary = tempfile.TemporaryDirectory(prefix="dsocr-history-")
        self._own = Path(self._temporary.name)
        for name, schema in TABLES.items():
            write_table(schema.empty_table(), self._own / f"{name}.parquet")
        roots = [Path(root) for place in self._places if (root := getattr(place, "root", None))]
        self._database = Database([self._own, *roots])
        self._entries: dict[str, _Entry] = {}
        self._copies: dict[tuple[Kind, str, frozenset[str] | None], Path] = {}
        self._packs: dict[tuple[int, str], list[_Entry]] = {}
        self._annotations: set[tuple[int, str]] = set()
        self._bad: dict[str, str] = {}
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
        found = self._list()
        gone = [run_id for run_id in self._entries if run_id not in found]
        new = [entry for run_id, entry in found.items() if run_id not in self._entries]
        notes, files = self._new_annotations()
        if gone or new or notes:
            new = self._load(gone, new, notes)
        self._annotations |= files
        # A run may lie in a pack by now.
        self._entries |= {run_id: found[run_id] for run_id in self._entries}
        return len(gone) + len(new)

    @property
    def problems(self) -> dict[str, str]:
        """Entries that could not be read, with the reason."""
        return dict(self._bad)

    def _list(self) -> dict[str, _Entry]:
        """All runs that are there. A run in two places (it is being folded) counts once."""
        found: dict[str, _Entry] = {}
        for number, place in enumerate(self._places):
            # Runs are listed before packs: one that is folded in between is then seen twice, never missed.
            names = sorted(place.names("runs"))
            for entries in sorted(self._list_packs(number, place), key=len, reverse=True):
                own = [entry for entry in entries if entry.record.id not in found]
                if len(own) < len(entries):
                    only = frozenset(entry.record.id for entry in own)
                    own = [replace(entry, only=only) for entry in own]
                found |= {entry.record.id: entry for entry in own}
            for name in names:
                if name in found or f"runs/{name}" in self._bad:
                    continue
                known = self._entries.get(name)
                if known is None or known.kind != "runs" or known.place is not place:
                    known = self._read_run(place, name)
                if known is not None:
                    found[name] = known
        return found

    def _list_packs(self, number: int, place: Place) -> list[list[_Entry]]:
        names = [name for name in sorted(place.names("packs")) if f"packs/{name}" not in self._bad]
        for name in names:
            if not self._packs.get((number, name)):
                self._packs[number, name] = self._read_pack(place, name)
        return [self._packs[number, name] for name in names]

    def _read_run(self, place: Place, name: str) -> _Entry | None:
        content = place.document("runs", name)
        if content is None:  # being uploaded, or just folded into a pack
            return None
        try:
            entry = _entry(_document(content), place, "runs", name)
            if entry.record.id != name:
                raise RecordError(f"its run.json says it is run {entry.record.id}")
            return entry
        except DsocrError as error:
            self._bad[f"runs/{name}"] = str(error)
            return None

    def _read_pack(self, place: Place, name: str) -> list[_Entry]:
        content = place.document("packs", name)
        if content is None:
            return []
        try:
            return [_entry(document, place, "packs", name) for document in _document(content)["runs"]]
        except (DsocrError, LookupError, TypeError) as error:
            self._bad[f"packs/{name}"] = str(error)
            return []

    def _load(self, gone: Sequence[str], new: Sequence[_Entry], notes: Sequence[Row]) -> list[_Entry]:
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
                self._bad |= error.reasons
                new = [entry for entry in new if f"{entry.kind}/{entry.name}" not in error.reasons]
        for run_id in gone:
            self._entries.pop(run_id)
        self._entries |= {entry.record.id: entry for entry in new}
        return list(new)

    def _load_runs(self, change: Change, new: Sequence[_Entry]) -> None:
        change.add_runs([entry.record for entry in new])
        for table in HELD:
            for files, entries in self._batches(table, new):
                self._load_files(change, table, files, entries)
        change.add_statistics()

    def _batches(self, table: str, entries: Sequence[_Entry]) -> Iterator[tuple[list[Path], list[_Entry]]]:
        """Entries that have the table, so many files at a time; a pack's runs share one file."""
        files: dict[Path, list[_Entry]] = {}
        reasons: dict[str, str] = {}
        for entry in entries:
            if table in entry.tables:
                try:
                    files.setdefault(self._table_file(entry, table), []).append(entry)
                except EntryGone:
                    raise
                except (DsocrError, OSError, pa.ArrowException) as error:
                    reasons[f"{entry.kind}/{entry.name}"] = str(error)
        if reasons:
            raise _BadRuns(reasons)
        places = list(files)
        for start in range(0, len(places), _FILES_AT_ONCE):
            batch = places[start : start + _FILES_AT_ONCE]
            yield batch, [entry for file in batch for entry in files[file]]

    def _load_files(
        self, change: Change, table: str, files: Sequence[Path], entries: Sequence[_Entry]
    ) -> None:
        try:
            change.add_table(table, files, [entry.record.id for entry in entries])
        except duckdb.Error as error:
            for entry in entries:
                entry.place.directory(entry.kind, entry.name)  # raises EntryGone
            reasons = _unreadable(table, files, entries)
            if not reasons:  # not one file's fault
                raise HistoryError(f"table {table}: {' '.join(str(error).split())[:300]}") from error
            raise _BadRuns(reasons) from error

    def _table_file(self, entry: _Entry, table: str) -> Path:
        """The local Parquet file that holds the entry's rows, in the current version's columns."""
        if entry.version == SCHEMA_VERSION and entry.only is None:
            return entry.place.directory(entry.kind, entry.name) / f"{table}.parquet"
        key = (entry.kind, entry.name, entry.only)
        if key not in self._copies:
            self._copies[key] = self._copy(entry)
        return self._copies[key] / f"{table}.parquet"

    def _copy(self, entry: _Entry) -> Path:
        """Where an entry's tables are as they are to be read; what was written stays as it is."""
        target = Path(tempfile.mkdtemp(dir=self._own))
        source = entry.place.directory(entry.kind, entry.name)
        for name, table in migrate_tables(read_tables(source), entry.version).items():
            if entry.only is not None:
                table = table.filter(pc.is_in(table["run_id"], pa.array(sorted(entry.only), pa.string())))
            write_table(table, target / f"{name}.parquet")
        return target

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
        found = dict.fromkeys(str(self._table_file(entry, table)) for entry in with_table)
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

    def _tables(self, entry: _Entry) -> dict[str, pa.Table]:
        only = [("run_id", "=", entry.record.id)]
        return {
            name: pq.read_table(self._table_file(entry, name), schema=TABLES[name], filters=only)
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
            for name in entry.place.files(entry.kind, entry.name)
            if name.startswith(inside) and name not in own
        ]

    def file(self, run_id: str, relative: str) -> Path:
        """A local copy of one of those files. Raises HistoryError or PlaceError."""
        entry = self._entry(run_id)
        inside = relative if entry.kind == "runs" else f"files/{run_id}/{relative}"
        return entry.place.file(entry.kind, entry.name, inside)

    def lies_in(self, run_id: str) -> tuple[Place, Kind, str]:
        """The place a run lies in, and the name of its own directory or of the pack that holds it."""
        entry = self._entry(run_id)
        return entry.place, entry.kind, entry.name

    def _entry(self, run_id: str) -> _Entry:
        if run_id not in self._entries:
            raise HistoryError(f"there is no run '{run_id[:60]}'")
        return self._entries[run_id]

    # --- adding and marking ---------------------------------------------------------------------

    def writer(self, record: RunRecord) -> RunWriter:
        """Where a new run of this history is written."""
        return RunWriter(self.place, record)

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
        self.place.write_annotation(f"{now:020d}-{secrets.token_hex(6)}.json", content)
        self.refresh()

    def _new_annotations(self) -> tuple[list[Row], set[tuple[int, str]]]:
        """Rows of files not read before; files that were folded together are known by their old names."""
        rows: list[Row] = []
        files: set[tuple[int, str]] = set()
        for number, place in enumerate(self._places):
            for name in sorted(place.annotation_names()):
                if (number, name) in self._annotations or f"annotations/{name}" in self._bad:
                    continue
                try:
                    parts = annotation_parts(name, place.read_annotation(name))
                except FileNotFoundError:  # folded just now
                    continue
                except DsocrError as error:
                    self._bad[f"annotations/{name}"] = str(error)
                    continue
                for part, of_part in parts.items():
                    if (number, part) not in self._annotations | files:
                        rows += of_part
                files |= {(number, name), *((number, part) for part in parts)}
        return rows, files

    # --- what a crash left ----------------------------------------------------------------------

    def leftovers(self) -> list[Leftover]:
        """Temporary directories of writers that did not finish."""
        return self.place.leftovers()

    def clear_leftovers(self) -> list[Leftover]:
        return self.place.clear()


class _BadRuns(Exception):
    """Entries (`runs/<id>`) whose files cannot be read, with the reason."""

    def __init__(self, reasons: dict[str, str]) -> None:
        super().__init__(str(reasons))
        self.reasons = reasons


def _entry(document: Mapping[str, Any], place: Place, kind: Kind, name: str) -> _Entry:
    """Raises RecordError or SchemaError on anything that is not a run of a known version."""
    version = version_of(dict(document))
    tables = document.get("tables")
    if not isinstance(tables, dict):
        raise RecordError("run record: it does not say which tables it has")
    document = migrate_document(dict(document), version)
    return _Entry(
        RunRecord.from_json(document), frozenset(tables) & TABLES.keys(), place, kind, name, version
    )


def _document(content: bytes) -> dict[str, Any]:
    if len(content) > _MAX_DOCUMENT:
        raise RecordError(f"a document of {len(content)} bytes is too large")
    try:
        data = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise RecordError(f"not a JSON document ({str(error)[:80]})") from error
    if not isinstance(data, dict):
        raise RecordError("not a JSON object")
    return data


def annotation_parts(name: str, content: bytes) -> dict[str, list[Row]]:
    """The rows of an annotation file, by the name of the file each part was first written as.

    Raises RecordError on a foreign file.
    """
    data = _document(content)
    try:
        return {str(part.get("name", name)): _annotation_rows(part) for part in data.get("parts", [data])}
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
        raise RecordError(f"annotation file: {str(error)[:80]}") from error


def _annotation_rows(part: Mapping[str, Any]) -> list[Row]:
    moment = int(part["time_ns"])
    written = datetime.fromtimestamp(moment / 1e9, UTC).replace(tzinfo=None)
    rows = []
    for number, row in enumerate(part["rows"]):
        values = {name: row.get(name) for name in ("run_id", "kind", "page", "name", "value")}
        if not all(value is None or isinstance(value, str) for value in values.values()):
            raise TypeError("a value is not text")
        rows.append(values | {"position": moment + number, "time": written})
    return rows


def read_tables(directory: Path) -> dict[str, pa.Table]:
    """The Parquet tables of a directory, as they are."""
    return {file.stem: pq.read_table(file) for file in sorted(directory.glob("*.parquet"))}


def _unreadable(table: str, files: Sequence[Path], entries: Sequence[_Entry]) -> dict[str, str]:
    """Which entries' files are not what the schema says, each read on its own."""
    reasons = {}
    for entry in {(entry.kind, entry.name): entry for entry in entries}.values():
        file = next((file for file in files if entry.name in file.parts), None)
        try:
            if file is None:
                continue
            found = pq.read_table(file)
            if not found.schema.equals(TABLES[table]):
                raise SchemaError(f"{table}.parquet does not have the columns of version {SCHEMA_VERSION}")
        except (OSError, pa.ArrowException, SchemaError) as error:
            reasons[f"{entry.kind}/{entry.name}"] = f"{table}.parquet: {str(error)[:200]}"
    return reasons
