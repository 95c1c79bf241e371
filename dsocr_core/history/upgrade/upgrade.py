"""`history upgrade`: takes the runs of earlier versions over, in place, once.

A run is written anew beside the others; then the earlier one moves to `earlier/` and the new one takes its
name. `earlier/` is deleted when all are taken over. Stopped at any moment it is called again: what lies in
`earlier/` and nowhere else goes back first, and what is taken over is not taken over again.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dsocr_core.errors import DsocrError, one_line
from dsocr_core.history.checksums import CHECKSUMS, read_checksums, verify
from dsocr_core.history.record import RunRecord, read_document
from dsocr_core.history.schema import FLAT, SCHEMA_VERSION, TABLES, version_of
from dsocr_core.history.storage.entries import DOCUMENT_LIMITS, Storage
from dsocr_core.history.upgrade.migrations import Document, migrate
from dsocr_core.history.writer import RunWriter
from dsocr_core.outputs.artifacts import PREDICTIONS
from dsocr_core.outside.untrusted import read_bytes

EARLIER = "earlier"
_NAMES = (*FLAT, "stage_timings", *TABLES)
_MADE = frozenset(
    {"run.json", CHECKSUMS, *(f"{name}.parquet" for name in _NAMES), PREDICTIONS, f"vendor/{PREDICTIONS}"}
)
"""What the new run has from its record and tables, or has no more: a run directory has the lines."""
_FAULTS = (DsocrError, OSError, LookupError, TypeError, ValueError, OverflowError, MemoryError)
"""What a damaged or foreign run raises; pyarrow's own errors are among them."""


@dataclass
class Upgraded:
    """What was taken over, and what could not be: by `runs/ID` or `packs/NAME` the reason."""

    runs: int = 0
    failed: dict[str, str] = field(default_factory=dict)


def upgrade(root: Path, on_run: Callable[[str], None] = lambda run_id: None) -> Upgraded:
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


def _take_run(storage: Storage, entry: Path, earlier: Path, on_run: Callable[[str], None]) -> int:
    document = read_document(read_bytes(entry / "run.json", DOCUMENT_LIMITS["runs"]))
    if version_of(document) == SCHEMA_VERSION:
        return 0
    names = [name for name in _NAMES if (entry / f"{name}.parquet").is_file()]
    _verify(entry, ["run.json", *(f"{name}.parquet" for name in names)])
    tables = {name: pq.read_table(entry / f"{name}.parquet") for name in names}
    files = {
        path.relative_to(entry).as_posix(): path
        for path in sorted(entry.rglob("*"))
        if path.is_file() and path.relative_to(entry).as_posix() not in _MADE
    }
    with _written(storage, document, tables, files) as writer:
        directory = writer.complete()
        earlier_run = earlier / "runs" / entry.name
        earlier_run.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(earlier_run, ignore_errors=True)
        entry.rename(earlier_run)
        writer.publish(directory)
    on_run(entry.name)
    return 1


def _take_pack(storage: Storage, entry: Path, earlier: Path, on_run: Callable[[str], None]) -> int:
    """Every run of a pack becomes a run of its own."""
    pack = read_document(read_bytes(entry / "pack.json", DOCUMENT_LIMITS["packs"]))
    _verify(entry, ["pack.json", *(file.name for file in entry.glob("*.parquet"))])
    tables = {name: pq.read_table(file) for name in _NAMES if (file := entry / f"{name}.parquet").is_file()}
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
        given.setdefault(
            "schema_version", read_document((entry / "pack.json").read_bytes())["schema_version"]
        )
        with _written(
            storage, given, {name: table for name, table in own.items() if len(table)}, files
        ) as writer:
            writer.finish()
        on_run(run_id)
        count += 1
    target = earlier / "packs" / entry.name
    target.parent.mkdir(parents=True, exist_ok=True)
    entry.rename(target)
    return count


def _written(
    storage: Storage, document: Document, tables: Mapping[str, pa.Table], files: Mapping[str, Path]
) -> RunWriter:
    """A writer with everything of an earlier run in it."""
    counts: Any = document.get("tables")
    for name, table in tables.items():
        if isinstance(counts, dict) and counts.get(name, len(table)) != len(table):
            raise ValueError(f"{name}.parquet has {len(table)} rows, run.json says {counts[name]}")
    document, current = migrate(dict(document), dict(tables))
    writer = RunWriter(storage, RunRecord.from_json(document))
    try:
        for name, table in current.items():
            writer.add(name, table.drop_columns(["run_id"]) if "run_id" in table.column_names else table)
        for name, path in files.items():
            target = writer.directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target)
    except BaseException:
        writer.close()
        raise
    return writer
