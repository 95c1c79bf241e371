"""The output of a run over many pages, as its driver and workers write it: a run in shards.

`runs/sharded.py` describes its files. A shard may be read twice, for example by a worker that was thought
dead. Each attempt writes files of its own. The marker of a shard is created once: a later attempt finds it
and removes its own files. So work is done at least once, and is visible exactly once.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import io
import itertools
import json
import os
import secrets
import socket
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.sanitise import encodable, json_bytes
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.pages import PageReading, Shard
from dsocr_core.runs.results import result_table, row_table
from dsocr_core.runs.sharded import COMPLETE, RUN, Marker, ShardedRun, marker_bytes

DRIVER = "driver.json"
"""File that names the driver which writes into the output."""
MOST_CAUSES = 20
"""Causes of failures that a marker counts by name."""
_MOST_OF_A_CAUSE, _MOST_OF_AN_ERROR = 80, 1000
_OF_WORKER = ("environment", "times", "top_ids", "top_logits", "exact")
"""Columns of a page that depend on who read it."""


class Output(ShardedRun):
    """Reader and writer of an output. A fault of the store raises StorageError."""

    def begin(self, job: Job) -> bool:
        """Claim the output for a job; True when it had it already. Raises DsocrError for a different job."""
        content = json_bytes(job.document(), indent=1) + b"\n"
        if self.document(RUN) is None and self.store.put(RUN, content, new=True):
            return False
        job.check(self.run(), self.store.location)
        return True

    @contextlib.contextmanager
    def driving(self) -> Iterator[None]:
        """Be the only driver of the output within the block. Raises DsocrError where there is another.

        In a directory that is a file lock, which the system releases when the process ends in any way. Object
        stores have no locks: there it is a file that only one driver can create.
        """
        me = json.dumps({"host": socket.gethostname(), "process": os.getpid()}).encode()
        if (root := self.store.root) is not None:
            root.mkdir(parents=True, exist_ok=True)
            with (root / DRIVER).open("a+b") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except OSError:
                    raise self._other_driver("or end it") from None
                file.truncate(0)
                file.write(me)
                file.flush()
                yield
                file.truncate(0)
            return
        if not self.store.put(DRIVER, me, new=True):
            raise self._other_driver(f"or, where it was killed, remove {self.store.location}/{DRIVER}")
        try:
            yield
        finally:
            self.store.remove(DRIVER)

    def _other_driver(self, way_out: str) -> DsocrError:
        there: dict[str, Any] = {}
        with contextlib.suppress(DsocrError):  # it may be written just now
            there = self.document(DRIVER) or {}
        who = f"the driver on {there.get('host')}, process {there.get('process')},"
        return DsocrError(f"{self.store.location}: {who} writes into it; wait for its end, {way_out}")

    def unread(self, shards: Iterable[Shard], markers: Iterable[Marker]) -> Iterator[Shard]:
        """Yield shards without a marker. After the last one the number of pages is stored.

        Raises DsocrError where the inputs have changed.
        """
        committed, before = {marker.index: marker for marker in markers}, self.document(COMPLETE)
        pages = count = 0
        for shard in shards:
            marker = committed.pop(shard.index, None)
            if marker is None and (before is None or shard.index < before["shards"]):
                yield shard
            elif marker is None or marker.shard != shard.name:
                self._require_same(marker, shard)
            pages, count = pages + len(shard.pages), count + 1
        if committed:
            self._require_same(committed[min(committed)], None)
        self.store.put(COMPLETE, json.dumps({"pages": pages, "shards": count}).encode())

    def _require_same(self, marker: Marker | None, shard: Shard | None) -> None:
        """Raise DsocrError, which names the first page that differs from the committed one."""
        before = [] if marker is None else self.rows(marker)["page"].to_pylist()
        now = [] if shard is None else [page.source for page in shard.pages]
        index = next(each.index for each in (marker, shard) if each is not None)
        first = index * int(self.run()["cluster"]["shard_pages"])
        for number, (was, found) in enumerate(itertools.zip_longest(before, now), first + 1):
            if was != found:
                raise DsocrError(
                    f"{self.store.location}: its inputs have changed: page {number:,} was "
                    f"{was or 'nothing'}, now it is {found or 'nothing'}; give another --out"
                )

    def write(
        self, shard: str, pages: Sequence[PageReading], worker: str, times: tuple[float, float]
    ) -> Marker:
        """Write pages to new files, invisible until their marker is committed.

        `times` are when the worker began and ended to read them, in seconds.
        """
        readings, of_worker = shard_files(pages)
        status, causes = Counter(page.status for page in pages), Counter[str]()
        for page in pages:
            if page.result is None:
                cause = cause_of(page)
                causes[cause if cause in causes or len(causes) < MOST_CAUSES else "other causes"] += 1
        marker = Marker(
            file=f"shards/{shard}/{secrets.token_hex(8)}.parquet",
            sha256=hashlib.sha256(readings).hexdigest(), worker_sha256=hashlib.sha256(of_worker).hexdigest(),
            shard=shard, read=status["read"], failed=status["failed"], quarantined=status["quarantined"],
            causes=dict(causes), worker=worker, began=times[0], ended=times[1],
        )  # fmt: skip
        self.store.put(marker.worker_file, of_worker)
        self.store.put(marker.file, readings)
        return marker

    def commit(self, marker: Marker) -> bool:
        """Make an attempt visible. False where another attempt is; then this one's files are removed."""
        if self.store.put(marker.name, marker_bytes(asdict(marker)), new=True):
            return True
        there = self.marker(marker.name)
        if there is not None and there.file == marker.file:
            return True  # an earlier try whose answer was lost
        self.store.remove(marker.file)
        self.store.remove(marker.worker_file)
        return False

    def clear_failed(self) -> int:
        """Make shards with failed pages unread. Returns the failed pages. Nobody else may write meanwhile."""
        failed = [each for each in self.markers() if each.read < each.pages]
        for marker in failed:
            self.store.remove(marker.name)
        return sum(each.pages - each.read for each in failed)

    def clear_attempts(self) -> int:
        """Remove files that no marker names. Returns how many. Nobody else may write meanwhile."""
        visible = {file for marker in self.markers() for file in (marker.file, marker.worker_file)}
        shards = self.store.names("shards")
        files = (f"shards/{shard}/{name}" for shard in shards for name in self.store.names(f"shards/{shard}"))
        removed = [file for file in files if file not in visible]
        for file in removed:
            self.store.remove(file)
        self.store.clear_parts()
        return len(removed)


def shard_files(pages: Sequence[PageReading]) -> tuple[bytes, bytes]:
    """Parquet of pages in their order: what was read, and what depends on who read it."""
    rows = [_row(page) for page in sorted(pages, key=lambda page: page.number)]
    table = pa.concat_tables(rows).combine_chunks()
    files = io.BytesIO(), io.BytesIO()
    for file, part in zip(files, (table.drop_columns([*_OF_WORKER]), table.select(_OF_WORKER)), strict=True):
        pq.write_table(part, file, compression="zstd", compression_level=1)
    return files[0].getvalue(), files[1].getvalue()


def _row(page: PageReading) -> pa.Table:
    result, path = page.result, encodable(page.path)  # not as a request has it: a URL is no path
    if result is not None:
        return result_table(page.name, result, {"path": path}, [result.request.file])
    facts = [{"name": "quarantined", "value": "it ended its processes"}] if page.quarantined else []
    error = (page.error or "not known")[:_MOST_OF_AN_ERROR]
    row = {"page": page.name, "source": page.name, "path": path, "error": error, "environment": facts}
    return row_table(row)


def cause_of(page: PageReading) -> str:
    """Cause of a page's failure without the page's name, so that equal causes are equal texts."""
    error, path = page.error or "", page.path
    for name in (page.name, path, path.rpartition("/")[2]):
        error = error.removeprefix(f"{name}: ") if name else error
    head, mark, tail = error.partition(": ")
    if mark and "/" in head:  # the name of a temporary copy
        error = tail
    return error.partition(";")[0][:_MOST_OF_A_CAUSE] or "unknown"
