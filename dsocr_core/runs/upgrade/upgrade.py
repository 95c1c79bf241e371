"""`history upgrade`: takes what earlier versions wrote over, in place, once.

A run of a history is written anew beside the others; then the earlier one moves to `earlier/` and the new one
takes its name. `earlier/` is deleted when all are taken over. Stopped at any moment it is called again: what
lies in `earlier/` and nowhere else goes back first, and what is taken over is not taken over again.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
import pyarrow.compute as pc

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.temporary import Temporary
from dsocr_core.base.untrusted import parse_json, read_bytes
from dsocr_core.runs.checksums import read_checksums, verify
from dsocr_core.runs.importers.imported import ImportedRun, put
from dsocr_core.runs.importers.own_run import read_own_run
from dsocr_core.runs.parquet import read_rows
from dsocr_core.runs.record import RunRecord, read_document
from dsocr_core.runs.result_cache import RecordedResult, ResultStore
from dsocr_core.runs.schema import FLAT, SCHEMA_VERSION, TABLES, version_of
from dsocr_core.runs.storage.entries import DOCUMENT_LIMITS, Storage
from dsocr_core.runs.storage.store import StorageError
from dsocr_core.runs.upgrade.migrations import Tables, migrate
from dsocr_core.runs.upgrade.run_directories import (
    RECORDS,
    earlier_result,
    is_run_directory,
    upgrade_run_directory,
)
from dsocr_core.runs.writer import RunWriter

EARLIER = "earlier"
_NAMES = (*FLAT, "stage_timings", *TABLES)
_FAULTS = (DsocrError, OSError, LookupError, TypeError, ValueError, OverflowError, MemoryError)
"""Errors that a damaged or foreign run raises; pyarrow's own errors are among them."""


_RESULT = re.compile(r"[0-9a-f]{32}\.json")
_RESULT_BYTES = 64 * 1024 * 1024
Told = Callable[[str], None]


@dataclass
class Upgraded:
    """Counts of what was taken over, and for what could not be, by its place, the reason."""

    runs: int = 0
    results: int = 0
    """Entries of a result cache."""
    shards: int = 0
    """Shards of the output of a cluster."""
    failed: dict[str, str] = field(default_factory=dict)

    def add(self, place: str, other: Upgraded) -> None:
        """Take over what became of a place."""
        self.runs += other.runs
        self.results += other.results
        self.shards += other.shards
        self.failed |= {f"{place}: {entry}": reason for entry, reason in other.failed.items()}


def upgrade_any(directory: Path) -> Upgraded:
    """Take over a history, a run directory, or a result cache. Raises StorageError, OSError, Refused."""
    taken_over = (directory / "run.json").exists() and (directory / RECORDS).is_dir()
    if taken_over or is_run_directory(directory):
        return Upgraded(runs=1, failed=upgrade_run_directory(directory))
    if any(_RESULT.fullmatch(file.name) for file in directory.glob("*.json")):
        return _upgrade_results(directory)
    return upgrade(directory)


def _upgrade_results(directory: Path) -> Upgraded:
    """Every entry of a result cache as a row; the earlier one goes when that is there."""
    done, store = Upgraded(), ResultStore(directory)
    for file in sorted(directory.glob("*.json")):
        try:
            entry = parse_json(read_bytes(file, _RESULT_BYTES), any_number=True)
            if "run" in entry or not _RESULT.fullmatch(file.name):
                continue
            result = earlier_result(entry["result"])
            store.save(file.stem, RecordedResult(result, str(entry["created"])))
            file.unlink()
            done.results += 1
        except (*_FAULTS, AttributeError) as error:
            done.failed[file.name] = one_line(error, 300)
    return done


def upgrade(root: Path, on_run: Told = lambda run_id: None) -> Upgraded:
    """Take over every run of a history in a directory. Raises StorageError, OSError when it cannot write.

    What cannot be read, or is not what its SHA256SUMS says, stays where it is, and is named.
    """
    storage, done = Storage(root), Upgraded()
    earlier = root / EARLIER
    _put_back(root, earlier)
    storage.leftovers(clear=True)
    for kind, take in (("runs", _take_run), ("packs", _take_pack)):
        for entry in _entries(root, kind):
            try:
                done.runs += take(storage, entry, earlier, on_run)
            except _FAULTS as error:
                done.failed[f"{kind}/{entry.name}"] = one_line(error, 300)
    shutil.rmtree(earlier, ignore_errors=True)
    return done


def _entries(root: Path, kind: str) -> list[Path]:
    folder = root / kind
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def _put_back(root: Path, earlier: Path) -> None:
    """Have the runs again that a call was replacing when it was stopped."""
    for entry in _entries(earlier, "runs"):
        target = root / "runs" / entry.name
        if not target.exists():
            entry.rename(target)


def _verify(entry: Path, needed: Sequence[str]) -> None:
    """Hold all files against the entry's checksums, where it has them. Raises Damaged."""
    checksums = read_checksums(entry)
    if checksums is not None:
        verify(entry, checksums, dict.fromkeys((*needed, *checksums)))


def _take_run(storage: Storage, entry: Path, earlier: Path, on_run: Told) -> int:
    document = read_document(read_bytes(entry / "run.json", DOCUMENT_LIMITS["runs"]))
    if version_of(document) == SCHEMA_VERSION:
        return 0
    run = read_own_run(entry, bounded=False)
    with RunWriter(storage, run.record) as writer:
        put(run, writer)
        directory = writer.complete()
        earlier_run = earlier / "runs" / entry.name
        earlier_run.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(earlier_run, ignore_errors=True)
        entry.rename(earlier_run)
        writer.publish(directory)
    on_run(entry.name)
    return 1


def _take_pack(storage: Storage, entry: Path, earlier: Path, on_run: Told) -> int:
    """Every run of a pack becomes a run of its own."""
    pack = read_document(read_bytes(entry / "pack.json", DOCUMENT_LIMITS["packs"]))
    _verify(entry, ["pack.json", *(file.name for file in entry.glob("*.parquet"))])
    tables = {name: read_rows(file) for name in _NAMES if (file := entry / f"{name}.parquet").is_file()}
    count = 0
    for document in pack["runs"]:
        run_id = str(document["id"])
        if (storage.root / "runs" / run_id).exists():
            continue
        own = {name: table.filter(pc.equal(table["run_id"], run_id)) for name, table in tables.items()}
        own = {name: table for name, table in own.items() if len(table)}
        beside = entry / "files" / run_id
        found = sorted(beside.rglob("*")) if beside.is_dir() else []
        files = {path.relative_to(beside).as_posix(): path for path in found if path.is_file()}
        given = {name: value for name, value in document.items() if name != "sha256"}
        given.setdefault("schema_version", pack["schema_version"])
        current, made = migrate(given, own)
        record = RunRecord.from_json(current)
        with RunWriter(storage, record) as writer:
            put(ImportedRun(record, entry, _without_ids(made), files), writer)
        on_run(run_id)
        count += 1
    target = earlier / "packs" / entry.name
    target.parent.mkdir(parents=True, exist_ok=True)
    entry.rename(target)
    return count


def _without_ids(tables: Tables) -> Tables:
    return {
        name: table.drop_columns(["run_id"]) if "run_id" in table.column_names else table
        for name, table in tables.items()
    }


# --- in an object store ---------------------------------------------------------------------------


def upgrade_url(url: str) -> Upgraded:
    """Take over every run of a history by its URL. Raises StorageError."""
    try:
        store, base = fsspec.core.url_to_fs(url.rstrip("/"), use_listings_cache=False)
        done = Upgraded()
        for run in _names(store, f"{base}/{EARLIER}/runs"):
            if not store.exists(f"{base}/runs/{run}/run.json"):
                if store.exists(f"{base}/runs/{run}"):  # what was put there of the new one
                    store.rm(f"{base}/runs/{run}", recursive=True)
                _move(store, f"{base}/{EARLIER}/runs/{run}", f"{base}/runs/{run}", "run.json")
        for kind, document in (("runs", "run.json"), ("packs", "pack.json")):
            for name in _names(store, f"{base}/{kind}"):
                _take(store, base, f"{kind}/{name}", document, done)
        if store.exists(f"{base}/{EARLIER}"):
            store.rm(f"{base}/{EARLIER}", recursive=True)
    except (OSError, ValueError, ImportError) as error:
        raise StorageError(f"{url}: could not be taken over ({one_line(error, 200)})") from error
    return done


def _names(store: Any, folder: str) -> list[str]:
    if not store.exists(folder):
        return []
    return sorted(str(path).rstrip("/").rpartition("/")[2] for path in store.ls(folder, detail=False))


def _take(store: Any, base: str, entry: str, document: str, done: Upgraded) -> None:
    """One run or pack: what it becomes is put up before anything of it goes."""
    if not store.exists(f"{base}/{entry}/{document}"):
        return
    version = read_document(store.cat_file(f"{base}/{entry}/{document}")).get("schema_version")
    if version == SCHEMA_VERSION and document == "run.json":
        return
    with Temporary("upgrade") as name:
        local = Path(name) / "history"
        store.get(f"{base}/{entry}", str(local / entry), recursive=True)
        found = upgrade(local)
        done.failed |= found.failed
        if found.failed:
            return
        _move(store, f"{base}/{entry}", f"{base}/{EARLIER}/{entry}", document)
        for run in sorted((local / "runs").iterdir()):
            files = sorted(path for path in run.rglob("*") if path.is_file())
            for file in sorted(files, key=lambda file: file.name == "run.json"):  # which makes it one, last
                store.put_file(str(file), f"{base}/runs/{run.name}/{file.relative_to(run).as_posix()}")
            done.runs += 1


def _move(store: Any, source: str, target: str, document: str) -> None:
    """Copy a folder, its document last; then take it away, its document first."""
    files = sorted(store.find(source), key=lambda file: file.rpartition("/")[2] == document)
    for file in files:
        store.copy(file, f"{target}{file.removeprefix(source)}")
    for file in reversed(files):
        store.rm_file(file)
    if store.exists(source):  # where a folder is more than its files
        store.rm(source, recursive=True)
