"""Folding old runs into larger files, and emptying the trash.

A pack holds what its runs hold, rows in the same order; every question has the same answer before, after
and while it is made. A run lies in its own directory until its pack is whole, and in both for a moment:
readers count it once. A crash in between is made good by the next call.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.errors import DsocrError
from dsocr_core.history.annotations import annotation_name, read_annotations
from dsocr_core.history.checksums import write_checksums
from dsocr_core.history.packs import pack_document
from dsocr_core.history.record import json_bytes, read_document
from dsocr_core.history.schema import SCHEMA_VERSION, TABLES
from dsocr_core.history.storage.base import ANNOTATION_LIMIT, EntryExists, Storage, writing
from dsocr_core.history.store import History

KEEP_LOOSE = 50
"""The newest runs stay as they are: they are the ones people copy, send and delete."""

RUNS_PER_PACK = 500
_FEWEST_ANNOTATIONS = 50
# Runs of one row group are read together when one of them is asked for.
_GROUP_ROWS, _GROUP_BYTES = 50_000, 32 * 1024 * 1024


@dataclass
class CompactReport:
    """What was folded or deleted."""

    packed: int = 0
    packs: list[str] = field(default_factory=list)
    deleted: int = 0
    annotations: int = 0
    """Annotation files folded into one."""


def compact(history: History, keep: int = KEEP_LOOSE) -> CompactReport:
    """Fold all but the newest `keep` runs of the history's own location into packs.

    Runs in the trash are folded, too; `empty_trash` deletes them. Raises StorageError.
    """
    history.refresh()
    storage, report = history.storage, CompactReport()
    loose = storage.names("runs")
    # The rest of an earlier call: runs that are read from their pack.
    in_packs = {run_id for run_ids in history.packed().values() for run_id in run_ids}
    for run_id in sorted(loose & in_packs):
        storage.remove("runs", run_id)
    old = [run_id for run_id in history.run_ids() if run_id in loose - in_packs]
    old = old[: max(len(old) - keep, 0)]
    for start in range(0, len(old), RUNS_PER_PACK):
        group = old[start : start + RUNS_PER_PACK]
        report.packs.append(_pack(history, group))
        for run_id in group:
            storage.remove("runs", run_id)
        report.packed += len(group)
    report.annotations = _fold_annotations(storage)
    history.refresh()
    return report


def empty_trash(history: History) -> CompactReport:
    """Delete the runs in the trash for good; a pack that holds some is made anew without them.

    Runs of further, read-only locations stay in the trash. Raises StorageError.
    """
    history.refresh()
    storage, report = history.storage, CompactReport()
    trashed = set(history.trashed())
    for run_id in sorted(trashed & storage.names("runs")):
        storage.remove("runs", run_id)
        report.deleted += 1
    packed = history.packed()
    for name in sorted(storage.names("packs")):
        inside = packed.get(name, [])
        # A damaged pack stays for what may still be got out of it, until it is put into the trash itself.
        damaged = f"packs/{name}" in history.damaged()
        if f"packs/{name}" not in trashed and (damaged or not trashed.intersection(inside)):
            continue
        rest = [run_id for run_id in inside if run_id not in trashed]
        if rest:
            report.packs.append(_pack(history, rest))
        storage.remove("packs", name)
        report.deleted += len(inside) - len(rest) + int(damaged)
    history.refresh()
    return report


def _pack(history: History, run_ids: Sequence[str]) -> str:
    """Write a pack of these runs; returns its name, which tells which runs it holds."""
    name = f"pack-{hashlib.sha256(chr(10).join(run_ids).encode()).hexdigest()[:20]}"
    with history.storage.scratch(name) as directory, writing(directory):
        counts = _write_tables(history, run_ids, directory)
        for run_id in run_ids:
            for relative in history.file_names(run_id):
                _link(history.file(run_id, relative), directory / "files" / run_id / relative)
        documents = [history.record(run_id).to_json() | {"tables": counts[run_id]} for run_id in run_ids]
        (directory / "pack.json").write_bytes(pack_document(documents))
        write_checksums(directory)
        try:
            history.storage.publish(directory, "packs", name)
        except EntryExists:  # an earlier call made it and stopped before the runs were removed
            shutil.rmtree(directory, ignore_errors=True)
    return name


def _write_tables(history: History, run_ids: Iterable[str], directory: Path) -> dict[str, dict[str, int]]:
    """One Parquet file a table; returns how many rows each run has in each."""
    counts: dict[str, dict[str, int]] = {}
    with contextlib.ExitStack() as files:
        writers: dict[str, _GroupWriter] = {}
        for run_id in run_ids:
            tables = history.tables(run_id)
            counts[run_id] = {name: len(table) for name, table in tables.items()}
            for name, table in tables.items():
                if name not in writers:
                    writers[name] = files.enter_context(_GroupWriter(directory, name))
                writers[name].add(table)
    return counts


class _GroupWriter:
    """A Parquet file of whole runs, in row groups of about the same size."""

    def __init__(self, directory: Path, name: str) -> None:
        schema = TABLES[name]
        self._file = pq.ParquetWriter(
            directory / f"{name}.parquet", schema, compression="zstd", compression_level=1,
            write_page_checksum=True,
        )  # fmt: skip
        self._waiting: list[pa.Table] = []

    def __enter__(self) -> _GroupWriter:
        return self

    def __exit__(self, *_: Any) -> None:
        self._write()
        self._file.close()

    def add(self, table: pa.Table) -> None:
        self._waiting.append(table)
        if (
            sum(map(len, self._waiting)) >= _GROUP_ROWS
            or sum(part.nbytes for part in self._waiting) >= _GROUP_BYTES
        ):
            self._write()

    def _write(self) -> None:
        if self._waiting:
            table = pa.concat_tables(self._waiting)
            self._file.write_table(table, row_group_size=max(len(table), 1))
            self._waiting = []


def _link(source: Path, target: Path) -> None:
    """The same file under a second name; a copy where the file system cannot do that."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _fold_annotations(storage: Storage) -> int:
    """Many small annotation files into one; their rows keep their times and the names they came under."""
    names = sorted(storage.annotation_names())
    if len(names) < _FEWEST_ANNOTATIONS:
        return 0
    parts: dict[str, Any] = {}
    read = []
    total = 0
    for name in names:
        with contextlib.suppress(DsocrError, FileNotFoundError):  # damaged and foreign files are left alone
            read_annotations(storage, name)
            content = storage.read_annotation(name)
            total += len(content)
            if total > ANNOTATION_LIMIT // 2:
                break
            data = read_document(content)
            for part in data.get("parts", [data]):
                parts[part.get("name", name)] = {"name": name, **part}
            read.append(name)
    if len(read) < _FEWEST_ANNOTATIONS:
        return 0
    folded = json_bytes({"schema_version": SCHEMA_VERSION, "parts": list(parts.values())})
    newest = max(int(part["time_ns"]) for part in parts.values())
    storage.write_annotation(annotation_name(newest, folded), folded)
    for name in read:
        storage.remove_annotation(name)
    return len(read)
