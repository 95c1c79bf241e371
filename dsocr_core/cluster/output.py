"""The output of a run over many pages, as its driver and workers write it: a run in shards.

    plan/00000000.parquet   the pages of shards 0 to 15, and so on; written before they are read

What else it holds says `runs/sharded.py`.

A shard may be read twice, by a worker that was thought dead, say. Each attempt writes files of its own, and
the marker is made once: the second attempt finds it there and takes its files away. So work is done at least
once, and is visible exactly once.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

import pyarrow as pa

from dsocr_core.base.sanitise import json_bytes
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.pages import SHARDS_A_PART, PageRef, Shard
from dsocr_core.runs.parquet import read_rows
from dsocr_core.runs.sharded import (
    COMPLETE,
    RUN,
    Attempt,
    Marker,
    OutputError,
    PageReading,
    ShardedRun,
    marker_bytes,
    parquet,
    shard_files,
)

MOST_CAUSES = 20
"""Causes of failures that a marker counts by name."""
_MOST_OF_A_CAUSE = 80

_PLAN = pa.schema(
    [("shard", pa.int64()), ("number", pa.int64()), ("path", pa.string()), ("page", pa.int64())]
)


class Output(ShardedRun):
    """Reads and writes an output. Raises StorageError where the store is at fault."""

    # --- the run --------------------------------------------------------------------------------

    def begin(self, job: Job, command: str | None = None) -> bool:
        """Make it the job's; True when it was already. Raises OtherJob for another job's, OutputError."""
        if self.document(RUN) is None:
            content = json_bytes(job.document(command), indent=1) + b"\n"
            if self.store.put_new(RUN, content):
                return False
        job.check(self.run(), self.store.location)
        return True

    # --- the plan -------------------------------------------------------------------------------

    def write_plan(self, part: int, shards: Sequence[Shard]) -> None:
        rows = [(shard.index, *page) for shard in shards for page in shard.pages]
        columns = [
            pa.array(column, kind.type) for column, kind in zip(zip(*rows, strict=True), _PLAN, strict=True)
        ]
        self.store.put(f"plan/{part:08d}.parquet", parquet(pa.Table.from_arrays(columns, schema=_PLAN)))

    def complete_plan(self, pages: int, shards: int) -> None:
        self.store.put(COMPLETE, json.dumps({"pages": pages, "shards": shards}).encode())

    def plan_parts(self) -> list[str]:
        return [name for name in self.store.names("plan") if name.endswith(".parquet")]

    def plan_part(self, name: str) -> Iterator[tuple[int, PageRef]]:
        """The pages of a part of the plan, each with its shard's index. Raises OutputError."""
        try:
            table = read_rows(pa.py_buffer(self.store.read(f"plan/{name}") or b"")).cast(_PLAN)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise OutputError(f"{self.store.location}/plan/{name}: damaged; remove it") from error
        for row in table.to_pylist():
            yield row["shard"], PageRef(row["number"], row["path"], row["page"])

    def planned(self, indexes: Iterable[int], job: Job) -> Iterator[Shard]:
        """Those shards, as the plan has them."""
        wanted = sorted(set(indexes))
        for part in sorted({index // SHARDS_A_PART for index in wanted}):
            pages: dict[int, list[PageRef]] = {}
            for index, page in self.plan_part(f"{part:08d}.parquet"):
                pages.setdefault(index, []).append(page)
            yield from (Shard.of(index, pages[index], job.digest) for index in wanted if index in pages)

    # --- shards ---------------------------------------------------------------------------------

    def write_attempt(self, shard: str, pages: Sequence[PageReading]) -> Attempt:
        """Write pages under a name that nobody else has; invisible until a marker names it."""
        base = f"shards/{shard}/{secrets.token_hex(8)}"
        readings, of_worker = shard_files(pages)
        attempt = Attempt(
            f"{base}.parquet", f"{base}.worker.parquet", len(readings),
            hashlib.sha256(readings).hexdigest(), hashlib.sha256(of_worker).hexdigest(),
        )  # fmt: skip
        self.store.put(attempt.worker_file, of_worker)
        self.store.put(attempt.file, readings)
        return attempt

    def commit(self, marker: Marker) -> bool:
        """Make the attempt visible; False when another one is, and this one's files are taken away."""
        if self.store.put_new(marker.name, marker_bytes(asdict(marker))):
            return True
        there = self.marker(marker.name)
        if there is not None and there.file == marker.file:
            return True  # an earlier try whose answer was lost
        self.store.remove(marker.file)
        self.store.remove(marker.worker_file)
        return False

    def clear_attempts(self) -> int:
        """Remove files that no marker names; how many. Only while nobody writes."""
        visible: set[str] = set()
        for marker in self.markers(f"done/{name}" for name in self.store.names("done")):
            visible |= {marker.file, marker.worker_file}
        removed = 0
        for shard in self.store.names("shards"):
            for name in self.store.names(f"shards/{shard}"):
                if (file := f"shards/{shard}/{name}") not in visible:
                    self.store.remove(file)
                    removed += 1
        self.store.clear_parts()
        return removed


def marker_of(
    shard: str, attempt: Attempt, pages: Sequence[PageReading], worker: str, times: tuple[float, float],
    generation: int = 0,
) -> Marker:  # fmt: skip
    """The marker that makes an attempt visible, with the figures of its pages; `times`: began and ended."""
    count = Counter(page.status for page in pages)
    causes: dict[str, int] = {}
    stages: dict[str, float] = {}
    for page in pages:
        if page.result is None:
            cause = cause_of(page)
            cause = cause if cause in causes or len(causes) < MOST_CAUSES else "other causes"
            causes[cause] = causes.get(cause, 0) + 1
        for timing in page.timings:
            stages[timing.stage.value] = stages.get(timing.stage.value, 0.0) + timing.milliseconds
    return Marker(
        **asdict(attempt), shard=shard, read=count["read"], failed=count["failed"],
        quarantined=count["quarantined"], causes=causes, worker=worker, began=times[0], ended=times[1],
        stages={stage: round(milliseconds, 3) for stage, milliseconds in stages.items()},
        tokens=sum(page.result.new_tokens or 0 for page in pages if page.result is not None),
        generation=generation,
    )  # fmt: skip


def cause_of(page: PageReading) -> str:
    """Why a page failed, without its name: pages of one cause have the same."""
    error, path = page.error or "", page.path
    for name in (page.name, path, path.rpartition("/")[2]):
        error = error.removeprefix(f"{name}: ") if name else error
    head, mark, tail = error.partition(": ")
    if mark and "/" in head:  # the name of a temporary copy
        error = tail
    return error.partition(";")[0][:_MOST_OF_A_CAUSE] or "unknown"
