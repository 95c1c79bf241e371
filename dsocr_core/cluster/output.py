"""The output of a run over many pages: what is in it, and when it can be seen.

    run.json                     settings, inputs, checkpoint and code; written first, compared later
    plan/00000000.parquet        the pages of shards 0 to 15, and so on; written before they are read
    plan/complete.json           how many pages and shards there are, once everything is listed
    shards/SHARD/ATTEMPT.parquet results of an attempt to read a shard; .times.parquet has the stages' times
    done/SHARD.json              the marker of a shard: names its attempt; only what a marker names is visible
    done/SHARD.1.json            the same after `--redo failed`; the highest generation counts

A shard may be read twice, by a worker that was thought dead, say. Each attempt writes files of its own, and
the marker is made once: the second attempt finds it there and takes its files away. So work is done at least
once, and is visible exactly once.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.cluster.job import Job
from dsocr_core.cluster.rows import Row, cause_of, read_results, results_file, times_file
from dsocr_core.cluster.shards import PageRef, Shard, shard_key
from dsocr_core.errors import DsocrError
from dsocr_core.history.storage.store import Store
from dsocr_core.outside.untrusted import Refused, parse_json

RUN, COMPLETE = "run.json", "plan/complete.json"
SHARDS_A_PART = 16
MOST_CAUSES = 20
"""Of failures that a marker counts by name."""

_MARKER = re.compile(r"(\d{9}-[0-9a-f]{16})(?:\.(\d{1,4}))?\.json")
_PLAN = pa.schema(
    [("shard", pa.int64()), ("number", pa.int64()), ("path", pa.string()), ("page", pa.int64())]
)


class OutputError(DsocrError):
    """A file of the output that is not what this program writes; names it."""


@dataclass(frozen=True)
class Marker:
    """What makes a shard visible."""

    shard: str
    file: str
    """Its results, below the output."""
    times: str
    bytes: int
    sha256: str
    read: int
    failed: int
    quarantined: int
    causes: Mapping[str, int]
    """Failures and quarantined pages by cause."""
    worker: str
    began: float
    """Seconds since 1970."""
    ended: float
    stages: Mapping[str, float] = field(default_factory=dict)
    """Milliseconds of each stage, summed over the pages."""
    tokens: int = 0
    generation: int = 0

    @property
    def pages(self) -> int:
        return self.read + self.failed + self.quarantined

    @property
    def name(self) -> str:
        return f"done/{self.shard}{f'.{self.generation}' if self.generation else ''}.json"

    @property
    def index(self) -> int:
        return int(self.shard.partition("-")[0])


@dataclass(frozen=True)
class Attempt:
    """Files of results that no marker names yet."""

    file: str
    times: str
    bytes: int
    sha256: str


class Output:
    """Reads and writes an output. Raises StorageError where the store is at fault."""

    def __init__(self, store: Store | str) -> None:
        self.store = Store(store) if isinstance(store, str) else store

    # --- the run --------------------------------------------------------------------------------

    def begin(self, job: Job) -> bool:
        """Make it the job's; True when it was already. Raises OtherJob for another job's, OutputError."""
        content = json.dumps(job.to_json(), indent=1).encode() + b"\n"
        if self.store.put_new(RUN, content):
            return False
        job.check(self.document(RUN) or {}, self.store.location)
        return True

    def run(self) -> dict[str, Any]:
        """What it was made with. Raises DsocrError where there is no run."""
        document = self.document(RUN)
        if document is None:
            raise DsocrError(f"{self.store.location}: no run over many pages; give its --out")
        return document

    def document(self, name: str) -> dict[str, Any] | None:
        """A JSON file, None while there is none. Raises OutputError."""
        content = self.store.read(name)
        if content is None:
            return None
        try:
            return parse_json(content)
        except Refused as error:
            raise OutputError(f"{self.store.location}/{name}: {error}") from error

    # --- the plan -------------------------------------------------------------------------------

    def write_plan(self, part: int, shards: Sequence[Shard]) -> None:
        rows = [(shard.index, *page) for shard in shards for page in shard.pages]
        columns = [
            pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), _PLAN, strict=True)
        ]
        buffer = io.BytesIO()
        pq.write_table(pa.Table.from_arrays(columns, schema=_PLAN), buffer, compression="zstd")
        self.store.put(f"plan/{part:08d}.parquet", buffer.getvalue())

    def complete_plan(self, pages: int, shards: int) -> None:
        self.store.put(COMPLETE, json.dumps({"pages": pages, "shards": shards}).encode())

    def plan_parts(self) -> list[str]:
        return [name for name in self.store.names("plan") if name.endswith(".parquet")]

    def plan_part(self, name: str) -> pa.Table:
        """A part of the plan. Raises OutputError."""
        try:
            table = pq.read_table(pa.BufferReader(self.store.read(f"plan/{name}") or b""))
            return table.cast(_PLAN)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise OutputError(f"{self.store.location}/plan/{name}: damaged; remove it") from error

    def planned(self) -> Iterator[tuple[int, PageRef]]:
        """Every page of the plan with its shard's index, part by part."""
        for name in self.plan_parts():
            for row in self.plan_part(name).to_pylist():
                yield row["shard"], PageRef(row["number"], row["path"], row["page"])

    def planned_shards(self, indexes: Iterable[int], job: Job) -> Iterator[Shard]:
        """Those shards of the plan."""
        wanted = sorted(set(indexes))
        parts = sorted({index // SHARDS_A_PART for index in wanted})
        for part in parts:
            pages: dict[int, list[PageRef]] = {}
            for row in self.plan_part(f"{part:08d}.parquet").to_pylist():
                pages.setdefault(row["shard"], []).append(PageRef(row["number"], row["path"], row["page"]))
            for index in wanted:
                if index in pages:
                    yield Shard(index, tuple(pages[index]), shard_key(job.digest, pages[index]))

    # --- shards ---------------------------------------------------------------------------------

    def write_attempt(self, shard: str, rows: Sequence[Row]) -> Attempt:
        """Results under a name that nobody else has, and that nobody sees."""
        base = f"shards/{shard}/{secrets.token_hex(8)}"
        results = results_file(rows)
        attempt = Attempt(
            f"{base}.parquet", f"{base}.times.parquet", len(results), hashlib.sha256(results).hexdigest()
        )
        self.store.put(attempt.times, times_file(rows))
        self.store.put(attempt.file, results)
        return attempt

    def commit(self, marker: Marker) -> bool:
        """Make the attempt visible; False when another one is, and this one's files are taken away."""
        if self.store.put_new(marker.name, json.dumps(asdict(marker)).encode()):
            return True
        there = self.marker(marker.name)
        if there is not None and there.file == marker.file:
            return True  # an earlier try whose answer was lost
        self.drop(marker)
        return False

    def drop(self, attempt: Attempt | Marker) -> None:
        self.store.remove(attempt.file)
        self.store.remove(attempt.times)

    def marker(self, name: str) -> Marker | None:
        content = self.store.read(name)
        return None if content is None else self._marker(name, content)

    def marker_names(self) -> dict[str, str]:
        """The markers that count by the names of their shards."""
        highest: dict[str, tuple[int, str]] = {}
        for name in self.store.names("done"):
            if (found := _MARKER.fullmatch(name)) is not None:
                one = (int(found[2] or 0), f"done/{name}")
                highest[found[1]] = max(highest.get(found[1], one), one)
        return {shard: name for shard, (_, name) in highest.items()}

    def markers(self, names: Iterable[str]) -> Iterator[Marker]:
        """Raises OutputError for one that is damaged."""
        for name, content in self.store.read_many(names):
            yield self._marker(name, content)

    def _marker(self, name: str, content: bytes) -> Marker:
        try:
            return _checked(Marker(**parse_json(content)))
        except (Refused, TypeError, AttributeError) as error:
            raise OutputError(f"{self.store.location}/{name}: no marker of a shard; remove it") from error

    # --- results --------------------------------------------------------------------------------

    def results(self, marker: Marker) -> pa.Table:
        """The results of a shard, page by page. Raises OutputError when they are not what was committed."""
        content = self.store.read(marker.file)
        if content is None or hashlib.sha256(content).hexdigest() != marker.sha256:
            what = "not there" if content is None else "damaged"
            raise OutputError(
                f"{self.store.location}/{marker.file}: {what}; remove {marker.name} to read it again"
            )
        try:
            return read_results(content)
        except ValueError as error:
            raise OutputError(f"{self.store.location}/{marker.file}: {error}") from error

    def rows(self, file: str, times: str) -> list[dict[str, Any]]:
        """The rows of an attempt as they were written. Raises OutputError."""
        try:
            rows: list[dict[str, Any]] = read_results(self.store.read(file) or b"").to_pylist()
            measured = pq.read_table(pa.BufferReader(self.store.read(times) or b"")).to_pylist()
        except (OSError, ValueError, pa.ArrowException) as error:
            raise OutputError(f"{self.store.location}/{file}: damaged") from error
        of_page: dict[int, list[Any]] = {}
        for row in measured:
            of_page.setdefault(row["number"], []).append([row["stage"], row["milliseconds"], row["calls"]])
        return [row | {"times": of_page.get(row["number"], [])} for row in rows]

    def all_results(self) -> Iterator[pa.Table]:
        """The results of every visible shard, in the order of the pages."""
        for _, name in sorted(self.marker_names().items()):
            marker = self.marker(name)
            if marker is not None:
                yield self.results(marker)

    def clear_attempts(self) -> int:
        """Remove files that no marker names; how many. Only while nobody writes."""
        visible: set[str] = set()
        for marker in self.markers(f"done/{name}" for name in self.store.names("done")):
            visible |= {marker.file, marker.times}
        removed = 0
        for shard in self.store.names("shards"):
            for name in self.store.names(f"shards/{shard}"):
                if (file := f"shards/{shard}/{name}") not in visible:
                    self.store.remove(file)
                    removed += 1
        return removed


_MOST_OF_A_TEXT = 500
_TEXTS = ("shard", "file", "times", "sha256", "worker")
_COUNTS = ("bytes", "read", "failed", "quarantined", "tokens", "generation")


def _checked(marker: Marker) -> Marker:
    """The marker where its values are of their types, none below 0. Raises TypeError."""
    texts = [getattr(marker, name) for name in _TEXTS] + [*marker.causes, *marker.stages]
    counts = [getattr(marker, name) for name in _COUNTS] + [*marker.causes.values()]
    times = [marker.began, marker.ended, *marker.stages.values()]
    good = (
        all(isinstance(text, str) and len(text) <= _MOST_OF_A_TEXT for text in texts)
        and all(type(count) is int and count >= 0 for count in counts)
        and all(type(value) in (int, float) and 0 <= value < 1e12 for value in times)
        and _MARKER.fullmatch(f"{marker.shard}.json") is not None
        and all(name.startswith(f"shards/{marker.shard}/") for name in (marker.file, marker.times))
        and not any(".." in name for name in (marker.file, marker.times))
    )
    if not good:
        raise TypeError("a value of another type")
    return marker


def marker_of(
    shard: str,
    attempt: Attempt,
    rows: Sequence[Row],
    worker: str,
    began: float,
    ended: float,
    generation: int = 0,
) -> Marker:
    """The marker that makes an attempt visible, with the figures of its rows."""
    count = {"read": 0, "failed": 0, "quarantined": 0}
    causes: dict[str, int] = {}
    stages: dict[str, float] = {}
    tokens = 0
    for row in rows:
        count[row["status"]] += 1
        tokens += row.get("new_tokens") or 0
        if row["status"] != "read":
            cause = cause_of(row)
            cause = cause if cause in causes or len(causes) < MOST_CAUSES else "other causes"
            causes[cause] = causes.get(cause, 0) + 1
        for stage, milliseconds, _ in row.get("times", ()):
            stages[stage] = stages.get(stage, 0.0) + milliseconds
    return Marker(
        shard, attempt.file, attempt.times, attempt.bytes, attempt.sha256,
        **count, causes=causes, worker=worker, began=began, ended=ended,
        stages={stage: round(milliseconds, 3) for stage, milliseconds in stages.items()},
        tokens=tokens, generation=generation,
    )  # fmt: skip
