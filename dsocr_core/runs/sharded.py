"""A run in shards, as a cluster leaves it: a file of readings a shard, which its marker makes visible.

    run.json             the run's record, and under `cluster` what decides its pages; written first
    plan/complete.json   how many pages and shards there are, once everything is listed
    shards/SHARD/ATTEMPT.parquet   rows of readings; the same bytes, whoever has read the pages
    shards/SHARD/ATTEMPT.worker.parquet   their columns that depend on who has
    done/SHARD.json      the marker of a shard: names its attempt; only what a marker names is visible

A page's number is its place: shards have as many pages as `run.json` says, in their order.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

import pyarrow as pa

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.reading.jsonable import from_jsonable
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.results import SCHEMA
from dsocr_core.runs.schema import read_rows, with_columns
from dsocr_core.runs.storage import SMALL_BYTES, FileStore

RUN, COMPLETE = "run.json", "plan/complete.json"


def shard_rows(readings: bytes, of_worker: bytes) -> pa.Table:
    """Rows of readings from both files of a shard. Raises pyarrow's errors, OSError, ValueError."""
    rows, own = (read_rows(pa.py_buffer(content)) for content in (readings, of_worker))
    for name in own.column_names:
        rows = rows.append_column(name, own[name])
    return with_columns(rows, SCHEMA)


# --- markers ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Marker:
    """Marker that makes an attempt at a shard visible."""

    file: str  # file of readings, below the output
    sha256: str
    worker_sha256: str
    shard: str
    read: int
    failed: int
    quarantined: int
    causes: dict[str, int]  # failures and quarantined pages by cause
    worker: str
    began: float  # seconds since 1970
    ended: float

    @property
    def pages(self) -> int:
        return self.read + self.failed + self.quarantined

    @property
    def name(self) -> str:
        return f"done/{self.shard}.json"

    @property
    def worker_file(self) -> str:
        """File of what depends on who read them."""
        return f"{self.file.removesuffix('.parquet')}.worker.parquet"

    @property
    def index(self) -> int:
        return int(self.shard.partition("-")[0])


_MARKER = re.compile(r"\d{9}-[0-9a-f]{16}\.json")


def marker_bytes(values: Mapping[str, Any]) -> bytes:
    """The file of a marker with these values, and with a digest of them."""
    return json.dumps({**values, "digest": _digest(values)}).encode()


def _digest(values: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]


def _marker(content: bytes) -> Marker | None:
    """The marker of a file, which names files of its own shard; None for any other file."""
    with contextlib.suppress(InvalidFile, TypeError, ValueError):
        values = parse_json(content)
        if values.pop("digest", None) == _digest(values):
            known = {each.name: values[each.name] for each in fields(Marker) if each.name in values}
            marker = from_jsonable(Marker, known)
            own = rf"shards/{re.escape(marker.shard)}/[0-9a-f]+\.parquet"
            if _MARKER.fullmatch(f"{marker.shard}.json") and re.fullmatch(own, marker.file):
                return marker
    return None


# --- the run ----------------------------------------------------------------------------------------


class ShardedRun:
    """Reads a run in shards. Raises StorageError where the store is at fault, DsocrError for damage."""

    def __init__(self, store: FileStore | str) -> None:
        self.store = FileStore(store) if isinstance(store, str) else store

    def run(self) -> dict[str, Any]:
        """Read `run.json`. Raises DsocrError where there is no run of a cluster."""
        document = self.document(RUN)
        if document is None or "cluster" not in document:
            raise DsocrError(f"{self.store.location}: no run over many pages; give its --out")
        return document

    def document(self, name: str) -> dict[str, Any] | None:
        """A JSON file, None while there is none."""
        try:
            content = self.store.read(name, SMALL_BYTES)
            return None if content is None else parse_json(content)
        except InvalidFile as error:
            raise DsocrError(f"{self.store.location}/{name}: {error}") from error

    def marker(self, name: str) -> Marker | None:
        return next(self.markers([name]), None)

    def markers(self, names: Iterable[str] | None = None) -> Iterator[Marker]:
        """Markers that exist; where none is named, those of all shards in their order."""
        if names is None:
            names = [f"done/{name}" for name in self.store.names("done") if _MARKER.fullmatch(name)]
        for name, content in self.store.read_many(names):
            if (marker := _marker(content)) is None:
                raise DsocrError(f"{self.store.location}/{name}: no marker of a shard; remove it")
            yield marker

    def complete(self) -> list[Marker]:
        """Markers of all shards in their order. Raises DsocrError where a page is not read."""
        RunRecord.from_json(self.run())
        markers, planned = [*self.markers()], (self.document(COMPLETE) or {}).get("pages")
        if not (found := sum(marker.pages for marker in markers)) or found != planned:
            known = "" if planned is None else f" of {planned:,}"
            raise DsocrError(f"{found:,}{known} pages are read; taken are complete outputs")
        return markers

    def rows(self, marker: Marker) -> pa.Table:
        """Rows of readings of a shard, after both its files are checked against their checksums."""
        readings = self._content(marker, marker.file, marker.sha256)
        of_worker = self._content(marker, marker.worker_file, marker.worker_sha256)
        try:
            if len(rows := shard_rows(readings, of_worker)) != marker.pages or rows["page"].null_count:
                raise ValueError(f"it has {len(rows)} pages, its marker says {marker.pages}")
            return rows
        except (OSError, ValueError, pa.ArrowException) as error:
            where = f"{self.store.location}/{marker.file}"
            raise DsocrError(f"{where}: damaged ({one_line(error)})") from error

    def _content(self, marker: Marker, name: str, sha256: str) -> bytes:
        try:
            content = self.store.read(name)
        except InvalidFile:
            content = b""
        if content is None or hashlib.sha256(content).hexdigest() != sha256:
            what = "not there" if content is None else "damaged"
            raise DsocrError(f"{self.store.location}/{name}: {what}; remove {marker.name} to read it again")
        return content
