"""What lies in the storages of a history: which runs there are, and the files with their rows."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dsocr_core.errors import DsocrError
from dsocr_core.history.migrations import READ_BESIDE, Document
from dsocr_core.history.record import RecordError, RunRecord, read_document
from dsocr_core.history.schema import (
    SCHEMA_VERSION,
    TABLES,
    SchemaError,
    migrate_document,
    migrate_tables,
    version_of,
)
from dsocr_core.history.storage.base import EntryGone, Kind, Storage
from dsocr_core.history.writer import write_table


@dataclass(frozen=True)
class Entry:
    """Where a run lies now."""

    record: RunRecord
    tables: frozenset[str]
    storage: Storage
    kind: Kind
    name: str
    """The run's own directory, or the pack it was folded into."""
    version: int
    only: frozenset[str] | None = None
    """Runs to take from a pack that holds some which are taken from another; None means all."""


class Entries:
    """The runs of some storages, the first of which counts where a run lies in two."""

    def __init__(self, storages: Sequence[Storage], own: Path) -> None:
        """`own` is a directory for copies of tables that are not to be read as they lie."""
        self.problems: dict[str, str] = {}
        """What could not be read (`runs/<id>`, `packs/<id>`), with the reason; it is not tried again."""
        self._storages = storages
        self._own = own
        self._copies: dict[tuple[Kind, str, frozenset[str] | None, str], Path] = {}
        self._packs: dict[tuple[int, str], list[Entry]] = {}

    def found(self, loaded: Mapping[str, Entry]) -> dict[str, Entry]:
        """All runs that are there; those in `loaded` are not read again. One that lies in two storages (it is
        being folded) counts once.
        """
        found: dict[str, Entry] = {}
        for number, storage in enumerate(self._storages):
            # Runs are listed before packs: one that is folded in between is then found twice, never missed.
            names = sorted(storage.names("runs"))
            for entries in sorted(self._list_packs(number, storage), key=len, reverse=True):
                own = [entry for entry in entries if entry.record.id not in found]
                if len(own) < len(entries):
                    only = frozenset(entry.record.id for entry in own)
                    own = [replace(entry, only=only) for entry in own]
                found |= {entry.record.id: entry for entry in own}
            for name in names:
                if name in found or f"runs/{name}" in self.problems:
                    continue
                entry = loaded.get(name)
                if entry is None or entry.kind != "runs" or entry.storage is not storage:
                    entry = self._read_run(storage, name)
                if entry is not None:
                    found[name] = entry
        return found

    def _list_packs(self, number: int, storage: Storage) -> list[list[Entry]]:
        names = [name for name in sorted(storage.names("packs")) if f"packs/{name}" not in self.problems]
        for name in names:
            if not self._packs.get((number, name)):
                self._packs[number, name] = self._read_pack(storage, name)
        return [self._packs[number, name] for name in names]

    def _read_run(self, storage: Storage, name: str) -> Entry | None:
        content = storage.document("runs", name)
        if content is None:  # being uploaded, or just folded into a pack
            return None
        try:
            entry = _entry(read_document(content), storage, "runs", name)
            if entry.record.id != name:
                raise RecordError(f"its run.json says it is run {entry.record.id}")
            return entry
        except DsocrError as error:
            self.problems[f"runs/{name}"] = str(error)
            return None

    def _read_pack(self, storage: Storage, name: str) -> list[Entry]:
        content = storage.document("packs", name)
        if content is None:
            return []
        try:
            return [_entry(document, storage, "packs", name) for document in read_document(content)["runs"]]
        except (DsocrError, LookupError, TypeError) as error:
            self.problems[f"packs/{name}"] = str(error)
            return []

    def file(self, entry: Entry, table: str) -> Path:
        """The local Parquet file that holds the entry's rows, in the current version's columns."""
        if entry.version == SCHEMA_VERSION and entry.only is None:
            return entry.storage.directory(entry.kind, entry.name) / f"{table}.parquet"
        key = (entry.kind, entry.name, entry.only, table)
        if key not in self._copies:
            self._copies[key] = self._copy(entry, table)
        return self._copies[key]

    def _copy(self, entry: Entry, table: str) -> Path:
        """One of an entry's tables as it is to be read; what was written stays as it is."""
        target = Path(tempfile.mkdtemp(dir=self._own)) / f"{table}.parquet"
        source = entry.storage.directory(entry.kind, entry.name)
        tables = _read_tables(source, {table, *READ_BESIDE.get(table, ())})
        rows = migrate_tables(tables, entry.version, _documents(entry))[table]
        if entry.only is not None:
            rows = rows.filter(pc.is_in(rows["run_id"], pa.array(sorted(entry.only), pa.string())))
        write_table(rows, target)
        return target


def _entry(document: Mapping[str, Any], storage: Storage, kind: Kind, name: str) -> Entry:
    """Raises RecordError or SchemaError on anything that is not a run of a version up to this one."""
    version = version_of(dict(document))
    tables = document.get("tables")
    if not isinstance(tables, dict):
        raise RecordError("run record: it does not say which tables it has")
    document = migrate_document(dict(document), version)
    return Entry(
        RunRecord.from_json(document), frozenset(tables) & TABLES.keys(), storage, kind, name, version
    )


def _documents(entry: Entry) -> dict[str, Document]:
    """The records of the entry's runs as they were written, by run id. Raises RecordError, EntryGone."""
    content = entry.storage.document(entry.kind, entry.name)
    if content is None:
        raise EntryGone(f"{entry.kind}/{entry.name}: not there any longer")
    document = dict(read_document(content))
    runs = [document] if entry.kind == "runs" else document["runs"]
    return {str(run["id"]): dict(run) for run in runs}


def _read_tables(directory: Path, names: Collection[str]) -> dict[str, pa.Table]:
    """These Parquet tables of a directory, as far as it has them, as they are."""
    files = {name: directory / f"{name}.parquet" for name in names}
    return {name: pq.read_table(file) for name, file in files.items() if file.exists()}


def unreadable(table: str, files: Sequence[Path], entries: Sequence[Entry]) -> dict[str, str]:
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
