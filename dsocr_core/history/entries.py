"""What lies in the storages of a history: which runs there are, and the files with their rows."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dsocr_core.errors import DsocrError
from dsocr_core.history.checksums import CHECKSUMS, Damaged, Verifier, read_checksums, version_of_file
from dsocr_core.history.packs import whole_groups, whole_lines, whole_runs
from dsocr_core.history.probe import TableFile, unreadable, why_unreadable
from dsocr_core.history.record import RecordError, RunRecord, read_document
from dsocr_core.history.schema import (
    SCHEMA_VERSION,
    TABLES,
    UPGRADE,
    version_of,
)
from dsocr_core.history.storage.base import EntryGone, Kind, NoRoom, Storage, writing
from dsocr_core.history.storage.local import LocalStorage
from dsocr_core.history.writer import write_table

BAD_FILE = (DsocrError, OSError, LookupError, ValueError, TypeError, OverflowError, MemoryError)
"""What reading a damaged or foreign table raises; pyarrow's own errors are among them."""


@dataclass(frozen=True, eq=False)
class Entry:
    """Where a run lies now."""

    record: RunRecord
    rows: Mapping[str, int]
    """How many rows it has in each of its tables."""
    storage: Storage
    kind: Kind
    name: str
    """The run's own directory, or the pack it was folded into."""
    version: int
    only: frozenset[str] | None = None
    """Runs to take from a pack that holds some which are taken from another; None means all."""
    damaged: bool = False
    """Whether it is what could be read of a damaged pack."""

    @property
    def tables(self) -> Collection[str]:
        return self.rows.keys()

    @property
    def key(self) -> str:
        """What `problems` names it by."""
        return f"{self.kind}/{self.name}"


class Entries:
    """The runs of some storages, the first of which counts where a run lies in two."""

    def __init__(self, storages: Sequence[Storage], own: Path) -> None:
        """`own` is a directory for copies of tables that are not to be read as they lie."""
        self.problems: dict[str, str] = {}
        """What could not be read (`runs/<id>`, `packs/<id>`), with the file and the cause; it is tried again
        when one of its files is another."""
        self._storages = storages
        self._own = own
        self._verifier = Verifier()
        self._copies: dict[tuple[Kind, str, frozenset[str] | None, str], Path] = {}
        self._packs: dict[tuple[int, str], list[Entry]] = {}
        self._unproved: list[Entry] = []
        """Found just now, without checksums."""
        self._versions: dict[str, tuple[Storage, Kind, str, object]] = {}
        """Of entries with a problem: their files when it was found."""

    def found(self, loaded: Mapping[str, Entry]) -> dict[str, Entry]:
        """All runs that are there; those in `loaded` are not read again. One that lies in two storages (it is
        being folded) counts once.
        """
        self._forget_what_changed()
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
        self._prove()
        return {run_id: entry for run_id, entry in found.items() if not self._lost(entry)}

    def _lost(self, entry: Entry) -> bool:
        return entry.key in self.problems and not entry.damaged

    def set_problems(self, reasons: Mapping[Entry, str]) -> None:
        for entry, reason in reasons.items():
            self.set_problem(entry.storage, entry.kind, entry.name, reason)

    def set_problem(self, storage: Storage, kind: Kind, name: str, reason: str) -> None:
        """An entry cannot be read; it is tried again when one of its files is another."""
        self.problems[f"{kind}/{name}"] = reason
        self._versions[f"{kind}/{name}"] = (storage, kind, name, _files_version(storage, kind, name))

    def _forget_what_changed(self) -> None:
        for key, (storage, kind, name, version) in list(self._versions.items()):
            if _files_version(storage, kind, name) != version:
                self.forget_problem(key)

    def forget_problem(self, key: str) -> None:
        """Try an entry again."""
        self.problems.pop(key, None)
        self._versions.pop(key, None)
        for at in [at for at in self._packs if f"packs/{at[1]}" == key]:
            del self._packs[at]

    # --- reading --------------------------------------------------------------------------------

    def _list_packs(self, number: int, storage: Storage) -> list[list[Entry]]:
        names = sorted(storage.names("packs"))
        for name in names:
            if (number, name) not in self._packs:
                entries = self._read_pack(storage, name)
                if entries is not None:
                    self._packs[number, name] = entries
        return [self._packs.get((number, name), []) for name in names]

    def _read_run(self, storage: Storage, name: str) -> Entry | None:
        try:
            content = storage.document("runs", name)
            if content is None:
                self._check_undocumented(storage, name)
                return None  # being uploaded, or just folded into a pack
            document = read_document(content)
            entry = _entry(document, storage, "runs", name)
            if entry.record.id != name:
                raise RecordError(f"it says it is run {entry.record.id}")
            files = ["run.json", *(f"{table}.parquet" for table in entry.tables)]
            if not self._verified(storage, "runs", name, document, files):
                self._unproved.append(entry)
            return entry
        except EntryGone:
            raise
        except Damaged as error:
            self.set_problem(storage, "runs", name, str(error))
        except DsocrError as error:
            self.set_problem(storage, "runs", name, f"run.json: {error}")
        return None

    def _check_undocumented(self, storage: Storage, name: str) -> None:
        """In a directory a run appears whole, so one that lost its document is damaged. Raises Damaged."""
        if isinstance(storage, LocalStorage) and (storage.root / "runs" / name / CHECKSUMS).exists():
            raise Damaged("run.json", "missing")

    def _verified(
        self, storage: Storage, kind: Kind, name: str, document: Mapping[str, Any], files: Iterable[str]
    ) -> bool:
        """Whether an entry has checksums, which these files match. Raises Damaged."""
        try:
            return self._verified_as_it_lies(storage, kind, name, document, files)
        except Damaged:
            if not storage.fetch_again(kind, name):
                raise
        return self._verified_as_it_lies(storage, kind, name, document, files)

    def _verified_as_it_lies(
        self, storage: Storage, kind: Kind, name: str, document: Mapping[str, Any], files: Iterable[str]
    ) -> bool:
        directory = storage.directory(kind, name)
        try:
            checksums = read_checksums(directory)
            if checksums is not None:
                self._verifier.verify(directory, checksums, files)
            elif document.get("checksums"):
                raise Damaged(CHECKSUMS, "missing")
        except Damaged:
            storage.directory(kind, name)  # raises EntryGone
            raise
        return checksums is not None

    def _prove(self) -> None:
        """Read what has no checksums; name what cannot be read."""
        unproved, self._unproved = self._unproved, []
        files = {
            entry.storage.directory(entry.kind, entry.name) / f"{table}.parquet": entry
            for entry in unproved
            for table in entry.tables
        }
        bad = unreadable([_table_file(file, [entry]) for file, entry in files.items()])
        for file, reason in bad.items():
            files[file].storage.directory("runs", files[file].name)  # raises EntryGone
            self.set_problems({files[file]: f"{file.name}: {reason}"})

    def unreadable(self, table: str, entries: Iterable[Entry]) -> dict[Entry, str]:
        """Those of the entries whose file of a table cannot be read, with the reason. Raises EntryGone."""
        together: dict[Path, list[Entry]] = {}
        for entry in entries:
            entry.storage.directory(entry.kind, entry.name)  # raises EntryGone
            together.setdefault(self.file(entry, table), []).append(entry)
        bad = unreadable([_table_file(file, sharing) for file, sharing in together.items()])
        return {entry: f"{table}.parquet: {why}" for file, why in bad.items() for entry in together[file]}

    def verify_file(self, entry: Entry, name: str) -> None:
        """Raises Damaged, StorageError."""
        try:
            entry.storage.file(entry.kind, entry.name, name)  # fetches it
        except EntryGone:
            entry.storage.directory(entry.kind, entry.name)  # raises it again where the entry is gone
            raise Damaged(name, "missing") from None
        self._verified(entry.storage, entry.kind, entry.name, {}, [name])

    def find_damage(self, loaded: Iterable[Entry]) -> bool:
        """Hold the files of loaded entries against their checksums again, where they are others by now.

        Whether any is damaged; the next `found` leaves those out.
        """
        before = len(self.problems)
        for entry in {entry.key: entry for entry in loaded}.values():
            with contextlib.suppress(EntryGone):
                if entry.kind == "packs":
                    self._read_pack(entry.storage, entry.name)
                else:
                    self._read_run(entry.storage, entry.name)
        self._prove()
        return len(self.problems) > before

    def _read_pack(self, storage: Storage, name: str) -> list[Entry] | None:
        """The runs of a pack, as far as they can be read; None while it is uploaded."""
        try:
            content = storage.document("packs", name)
            if content is None:
                return None
            return self._pack_entries(storage, name, content)
        except EntryGone:
            raise
        except (DsocrError, LookupError, TypeError) as error:
            self.set_problem(storage, "packs", name, str(error))
            return []

    def _pack_entries(self, storage: Storage, name: str, content: bytes) -> list[Entry]:
        reasons: list[str] = []
        has_checksums = True
        try:
            document = read_document(content)
            documents = list(document["runs"])
            has_checksums = self._verified(storage, "packs", name, document, ["pack.json"])
        except EntryGone:
            raise
        except (DsocrError, LookupError, TypeError) as error:
            documents = whole_lines(content)
            reasons.append(str(error) if isinstance(error, Damaged) else f"pack.json: {error}")
        entries = [_entry(each, storage, "packs", name) for each in documents]
        directory = storage.directory("packs", name)
        whole = {entry.record.id for entry in entries}
        for table in sorted({table for entry in entries for table in entry.tables}):
            of_table = [entry for entry in entries if table in entry.tables]
            reason = self._table_problem(storage, name, table, of_table, has_checksums)
            if reason is not None:
                reasons.append(f"{table}.parquet: {reason}")
                whole -= _unreadable_runs(directory / f"{table}.parquet", table, of_table)
        if not reasons:
            return entries
        lost = sorted(entry.record.id for entry in entries if entry.record.id not in whole)
        named = f"; of its runs cannot be read: {', '.join(lost[:5])}" if lost else ""
        more = f" and {len(lost) - 5} more" if len(lost) > 5 else ""
        self.set_problem(storage, "packs", name, "; ".join(reasons) + named + more)
        only = frozenset(whole)
        return [replace(entry, only=only, damaged=True) for entry in entries if entry.record.id in whole]

    def _table_problem(
        self, storage: Storage, name: str, table: str, entries: Sequence[Entry], has_checksums: bool
    ) -> str | None:
        """What is wrong with a table of a pack; None when nothing is."""
        directory = storage.directory("packs", name)
        if not has_checksums:
            return why_unreadable(_table_file(directory / f"{table}.parquet", entries))
        try:
            self._verified(storage, "packs", name, {"checksums": True}, [f"{table}.parquet"])
        except Damaged as error:
            return error.cause
        return None

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
        with writing("temporary files", NoRoom):
            target = Path(tempfile.mkdtemp(dir=self._own)) / f"{table}.parquet"
        source = entry.storage.directory(entry.kind, entry.name)
        rows = (whole_groups if entry.damaged else pq.read_table)(source / f"{table}.parquet")
        if entry.only is not None:
            rows = rows.filter(pc.is_in(rows["run_id"], pa.array(sorted(entry.only), pa.string())))
        with writing("temporary files", NoRoom):
            write_table(rows, target)
        return target


def _entry(document: Mapping[str, Any], storage: Storage, kind: Kind, name: str) -> Entry:
    """Raises RecordError or SchemaError on anything that is not a run of a version up to this one."""
    version = version_of(dict(document))
    tables = document.get("tables")
    if not isinstance(tables, dict) or not all(isinstance(rows, int) for rows in tables.values()):
        raise RecordError("it does not say which tables the run has")
    if version < SCHEMA_VERSION:
        raise RecordError(UPGRADE)
    rows = {table: count for table, count in tables.items() if table in TABLES}
    return Entry(RunRecord.from_json(document), rows, storage, kind, name, version)


def _table_file(file: Path, entries: Sequence[Entry]) -> TableFile:
    """A table that these entries share."""
    current = all(entry.version == SCHEMA_VERSION for entry in entries)
    return TableFile(file, file.stem, {entry.record.id: entry.rows[file.stem] for entry in entries}, current)


def _unreadable_runs(file: Path, table: str, entries: Sequence[Entry]) -> set[str]:
    """The runs of a pack that a damage of one of its tables costs."""
    rows = {entry.record.id: entry.rows[table] for entry in entries}
    try:
        return rows.keys() - whole_runs(whole_groups(file), rows)
    except (OSError, ValueError, LookupError, MemoryError):  # pyarrow's own are among them
        return set(rows)


def _files_version(storage: Storage, kind: Kind, name: str) -> object:
    """What changes when a document or table of an entry is replaced."""
    root = getattr(storage, "root", None)
    if root is None:
        return None
    directory: Path = root / kind / name
    return {path.name: version_of_file(path) for path in directory.glob("*") if not path.is_dir()}
