"""The output of a run over many pages, as its driver and workers write it: a run in shards.

    plan/00000000.parquet   the pages of shards 0 to 15, and so on; written before they are read

What else it holds says `runs/sharded.py`. A shard may be read twice, by a worker that was thought dead, say.
Each attempt writes files of its own, and the marker is made once: the second attempt finds it there and takes
its files away. So work is done at least once, and is visible exactly once.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

import pyarrow as pa

from dsocr_core.base.sanitise import json_bytes
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.pages import SHARDS_A_PART, PageRef, Shard
from dsocr_core.runs.schema import read_rows
from dsocr_core.runs.sharded import (
    COMPLETE,
    RUN,
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

    def begin(self, job: Job) -> bool:
        """Make it the job's; True when it was already. Raises OtherJob for another job's, OutputError."""
        content = json_bytes(job.document(), indent=1) + b"\n"
        if self.document(RUN) is None and self.store.put_new(RUN, content):
            return False
        job.check(self.run(), self.store.location)
        return True

    # --- the plan -------------------------------------------------------------------------------

    def write_plan(self, part: int, shards: Sequence[Shard]) -> None:
        rows = [(shard.index, *page) for shard in shards for page in shard.pages]
        table = pa.table([pa.array(column) for column in zip(*rows, strict=True)], names=_PLAN.names)
        self.store.put(f"plan/{part:08d}.parquet", parquet(table.cast(_PLAN)))

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

    def write(
        self, shard: str, pages: Sequence[PageReading], worker: str, times: tuple[float, float],
        again: Marker | None = None,
    ) -> Marker:  # fmt: skip
        """Write pages under a name that nobody else has, invisible until its marker is committed.

        `times` are when the worker began and ended to read them, `again` the marker that they replace.
        """
        base = f"shards/{shard}/{secrets.token_hex(8)}"
        readings, of_worker = shard_files(pages)
        self.store.put(f"{base}.worker.parquet", of_worker)
        self.store.put(f"{base}.parquet", readings)
        status, causes = Counter(page.status for page in pages), Counter[str]()
        stages: defaultdict[str, float] = defaultdict(float)
        for page in pages:
            if page.result is None:
                cause = cause_of(page)
                causes[cause if cause in causes or len(causes) < MOST_CAUSES else "other causes"] += 1
            for timing in page.timings:
                stages[timing.stage.value] += timing.milliseconds
        return Marker(
            file=f"{base}.parquet", worker_file=f"{base}.worker.parquet", bytes=len(readings),
            sha256=hashlib.sha256(readings).hexdigest(), worker_sha256=hashlib.sha256(of_worker).hexdigest(),
            shard=shard, read=status["read"], failed=status["failed"],
            quarantined=status["quarantined"], causes=dict(causes), worker=worker, began=times[0],
            ended=times[1], stages={stage: round(total, 3) for stage, total in stages.items()},
            tokens=sum(page.result.new_tokens or 0 for page in pages if page.result is not None),
            generation=again.generation + 1 if again else 0,
        )  # fmt: skip

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
        shards = self.store.names("shards")
        files = (f"shards/{shard}/{name}" for shard in shards for name in self.store.names(f"shards/{shard}"))
        removed = [file for file in files if file not in visible]
        for file in removed:
            self.store.remove(file)
        self.store.clear_parts()
        return len(removed)


def cause_of(page: PageReading) -> str:
    """Why a page failed, without its name: pages of one cause have the same."""
    error, path = page.error or "", page.path
    for name in (page.name, path, path.rpartition("/")[2]):
        error = error.removeprefix(f"{name}: ") if name else error
    head, mark, tail = error.partition(": ")
    if mark and "/" in head:  # the name of a temporary copy
        error = tail
    return error.partition(";")[0][:_MOST_OF_A_CAUSE] or "unknown"
