"""A run in shards, as a cluster leaves it: a file of readings a shard, which its marker makes visible.

    run.json             the run's record, and under `cluster` what decides its pages; written first
    plan/complete.json   how many pages and shards there are, once everything is listed
    shards/SHARD/ATTEMPT.parquet   rows of readings; the same bytes, whoever has read the pages
    shards/SHARD/ATTEMPT.worker.parquet   what depends on who has: times, environment, likeliest tokens
    done/SHARD.json      the marker of a shard: names its attempt; only what a marker names is visible
    done/SHARD.1.json    the same of pages that were read again; the highest generation counts

A page's number is its place: shards have as many pages as `run.json` says, in their order.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.sanitise import encodable
from dsocr_core.models.stages import Stage
from dsocr_core.reading.input_parity import KNOWN_INPUT
from dsocr_core.reading.jsonable import from_jsonable, to_jsonable
from dsocr_core.reading.records import POSTPROCESS_ERROR, OcrResult, StageTiming, top_two_steps
from dsocr_core.runs.results import SCHEMA, failure_table, result_of, result_table
from dsocr_core.runs.schema import encodable_value, read_rows
from dsocr_core.runs.storage import SMALL_BYTES, Store

RUN, COMPLETE = "run.json", "plan/complete.json"
Status = Literal["read", "failed", "quarantined"]
_QUARANTINED = "quarantined"
"""The fact of a page that ended every process it came to."""
_MOST_OF_AN_ERROR = 1000
_TIMING = pa.struct([("stage", pa.string()), ("milliseconds", pa.float64()), ("calls", pa.int64())])
_WORKER = pa.schema([("page", pa.string()), ("timings", pa.list_(_TIMING)), ("more", pa.string())])
"""Columns of a page that depend on who read it. `more` is JSON of environment and steps."""
_FAULTS = (OSError, ValueError, LookupError, TypeError, pa.ArrowException)


class OutputError(DsocrError):
    """A file of the output that is not what this program writes; names it."""


# --- a page -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PageReading:
    """Outcome of a page: a result, or why there is none."""

    number: int
    """In the run."""
    name: str
    path: str
    """Path of its file, or a URL."""
    result: OcrResult | None = None
    error: str | None = None
    quarantined: bool = False

    @property
    def status(self) -> Status:
        return "read" if self.result is not None else "quarantined" if self.quarantined else "failed"


def shard_files(pages: Sequence[PageReading]) -> tuple[bytes, bytes]:
    """Parquet of pages in their order: what was read, and what depends on who read it."""
    ordered = sorted(pages, key=lambda page: page.number)
    workers = pa.Table.from_pylist([_worker_row(page) for page in ordered], _WORKER)
    return _parquet(readings_table([_of_any(page) for page in ordered])), _parquet(workers)


def _of_any(page: PageReading) -> PageReading:
    """The page as any worker would have it."""
    if page.result is None:
        return page
    facts = {name: value for name, value in page.result.environment.items() if _is_of_page(name)}
    return replace(page, result=replace(page.result, timings=(), environment=facts, top_two=()))


def _is_of_page(name: str) -> bool:
    """Tell the facts of an environment that any worker finds."""
    return name == POSTPROCESS_ERROR or name.startswith(KNOWN_INPUT)


def readings_table(pages: Sequence[PageReading]) -> pa.Table:
    """Rows of readings of pages, in their order."""
    table = pa.concat_tables([_rows(page) for page in pages]).combine_chunks()
    # Not as a request has it: a URL is no path.
    at, paths = SCHEMA.get_field_index("path"), [encodable_value(page.path) for page in pages]
    return table.set_column(at, SCHEMA.field(at), pa.array(paths, pa.string()))


def _rows(page: PageReading) -> pa.Table:
    if page.result is not None:
        return result_table(page.name, page.result, files=[page.result.request.file])
    facts = [{"name": _QUARANTINED, "value": "it ended its processes"}] if page.quarantined else []
    error = (page.error or "not known")[:_MOST_OF_AN_ERROR]
    return failure_table({"page": page.name, "source": page.name, "error": error, "environment": facts})


def _worker_row(page: PageReading) -> dict[str, Any]:
    if page.result is None:
        return {"page": encodable(page.name)}
    facts = {name: value for name, value in page.result.environment.items() if not _is_of_page(name)}
    more = {"environment": facts, "top_two": to_jsonable(page.result.top_two)}
    timings = to_jsonable(page.result.timings)
    return {"page": encodable(page.name), "timings": timings, "more": json.dumps(more)}


def read_shard(readings: bytes, of_worker: bytes, numbers: Iterable[int]) -> list[PageReading]:
    """The pages that `shard_files` wrote; their numbers in order. Raises ValueError."""
    try:
        rows, more = (
            read_rows(pa.py_buffer(content), schema).to_pylist()
            for content, schema in ((readings, SCHEMA), (of_worker, _WORKER))
        )
        return [_page(number, row, worker) for number, row, worker in zip(numbers, rows, more, strict=True)]
    except _FAULTS as error:
        raise ValueError(one_line(error)) from error


def _page(number: int, row: Mapping[str, Any], worker: Mapping[str, Any]) -> PageReading:
    result, own = result_of(row), PageReading(number, row["page"], row["path"] or "")
    if result is None:
        facts = {each["name"] for each in row["environment"] or ()}
        return replace(own, error=row["error"] or "no text", quarantined=_QUARANTINED in facts)
    more = parse_json(worker["more"], any_number=True)
    ids, logits = ([each for step in more["top_two"] for each in step[name]] for name in ("ids", "logits"))
    timings = tuple(StageTiming(**each | {"stage": Stage(each["stage"])}) for each in worker["timings"])
    environment, top_two = result.environment | more["environment"], top_two_steps(ids, logits)
    return replace(own, result=replace(result, timings=timings, environment=environment, top_two=top_two))


def _parquet(table: pa.Table) -> bytes:
    """The table as a Parquet file; the same table makes the same bytes."""
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", compression_level=1)
    return buffer.getvalue()


# --- markers ----------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Marker:
    """Marker that makes an attempt at a shard visible."""

    file: str
    """File of readings, below the output."""
    worker_file: str
    """File of what depends on who read them."""
    bytes: int
    sha256: str
    worker_sha256: str
    shard: str
    read: int
    failed: int
    quarantined: int
    causes: dict[str, int]
    """Failures and quarantined pages by cause."""
    worker: str
    began: float
    """Seconds since 1970."""
    ended: float

    @property
    def pages(self) -> int:
        return self.read + self.failed + self.quarantined

    @property
    def name(self) -> str:
        return f"done/{self.shard}.json"

    @property
    def index(self) -> int:
        return int(self.shard.partition("-")[0])


_MARKER = re.compile(r"(\d{9}-[0-9a-f]{16})(?:\.(\d{1,4}))?\.json")


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
            own = re.compile(rf"shards/{re.escape(marker.shard)}/[0-9a-f]+(\.worker)?\.parquet")
            if _MARKER.fullmatch(f"{marker.shard}.json") and own.fullmatch(marker.file):
                return marker if own.fullmatch(marker.worker_file) else None
    return None


# --- the run ----------------------------------------------------------------------------------------


class ShardedRun:
    """Reads a run in shards. Raises StorageError where the store is at fault, OutputError for damage."""

    def __init__(self, store: Store | str) -> None:
        self.store = Store(store) if isinstance(store, str) else store

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
            raise OutputError(f"{self.store.location}/{name}: {error}") from error

    def marker(self, name: str) -> Marker | None:
        return next(self.markers([name]), None)

    def marker_names(self) -> dict[str, str]:
        """The markers that count by the names of their shards."""
        highest: dict[str, tuple[int, str]] = {}
        for name in self.store.names("done"):
            if (found := _MARKER.fullmatch(name)) is not None:
                one = (int(found[2] or 0), f"done/{name}")
                highest[found[1]] = max(highest.get(found[1], one), one)
        return {shard: name for shard, (_, name) in highest.items()}

    def markers(self, names: Iterable[str]) -> Iterator[Marker]:
        """Markers that exist."""
        for name, content in self.store.read_many(names):
            if (marker := _marker(content)) is None:
                raise OutputError(f"{self.store.location}/{name}: no marker of a shard; remove it")
            yield marker

    def pages(self, marker: Marker) -> list[PageReading]:
        """The pages of a shard, both files held against their checksums."""
        first = marker.index * int(self.run()["cluster"]["shard_pages"])
        readings = self._content(marker, marker.file, marker.sha256)
        of_worker = self._content(marker, marker.worker_file, marker.worker_sha256)
        try:
            return read_shard(readings, of_worker, range(first, first + marker.pages))
        except ValueError as error:
            raise OutputError(f"{self.store.location}/{marker.file}: damaged ({error})") from error

    def _content(self, marker: Marker, name: str, sha256: str) -> bytes:
        try:
            content = self.store.read(name)
        except InvalidFile:
            content = b""
        if content is None or hashlib.sha256(content).hexdigest() != sha256:
            what = "not there" if content is None else "damaged"
            raise OutputError(f"{self.store.location}/{name}: {what}; remove {marker.name} to read it again")
        return content
