"""The driver: hands a bounded number of shards to Dask, counts lost workers, shows progress.

It holds shards in flight and some figures. The plan comes as a stream, and results are written by workers.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from distributed import Client, Future, KilledWorker, wait

from dsocr_core.base.errors import Cancelled, DsocrError, one_line
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.local import replace_lost_workers
from dsocr_core.cluster.local_files import LocalFiles
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.pages import Shard, cut, list_files
from dsocr_core.cluster.status import ClusterProgress, Figures, causes_words, read_status
from dsocr_core.cluster.worker import MOST_STARTS, PagesPlugin, WorkerJob, read_shard, stop_reading
from dsocr_core.reading.records import CancelToken
from dsocr_core.runs.sharded import Marker

MOST_LOSSES = 3
"""Workers that a shard may lose before its pages count as failed: machines also fail for other reasons."""
AGAIN = "give the same command again"
_POLL_S, _WORKERS_EVERY_S = 0.25, 2.0
_STOP_S = 30.0
"""Seconds that workers have to commit finished shards after Ctrl-C, or to answer."""


@dataclass
class Driver:
    """One run on a cluster.

    `redo` reads shards again in which pages failed or were quarantined.
    """

    client: Client
    job: Job
    output: Output
    worker: WorkerJob
    progress: ClusterProgress
    cancel: CancelToken
    redo: bool = False

    def __post_init__(self) -> None:
        self.figures = Figures()
        self._in_flight: dict[Future, Shard] = {}
        self._ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self._again: list[Shard] = []
        """Shards whose worker was lost and which are read again."""
        self._alone: list[Shard] = []
        """Shards that lost two workers. Each is read alone in the end: a third loss is its own fault."""
        self._losses: Counter[str] = Counter()
        self._threads, self._asked = 0, 0.0
        self._numbers = itertools.count()

    def run(self) -> None:
        """Read everything that is not committed yet.

        Raises Cancelled, and DsocrError where another driver writes into the output or for a fault that
        concerns all pages. What was committed before stays.
        """
        folder = tempfile.TemporaryDirectory(prefix="dsocr-")
        with self.output.driving(), folder:
            try:
                self._prepare_workers()
                self._drive(self._shards(Path(folder.name)))
                # Nobody writes now: files that no marker names are of failed attempts.
                self.output.clear_attempts()
            except Cancelled:
                self._ask_workers(self.client._run, stop_reading, self.worker.name, on_error="ignore")
                if self.client.status == "running":  # workers commit finished shards meanwhile
                    with contextlib.suppress(Exception):
                        wait([*self._in_flight], timeout=_STOP_S)
                self.figures = read_status(self.output)
                words = f"stopped: {self.figures.pages:,} pages are committed; to go on, {AGAIN}"
                raise Cancelled(words) from None
            finally:  # engines free their memory, if the cluster still runs
                self._ask_workers(self.client._unregister_worker_plugin, name=self.worker.name)

    # --- workers --------------------------------------------------------------------------------

    def _prepare_workers(self) -> None:
        """Load the model on every worker; one that dies meanwhile is started again. Raises DsocrError."""
        for left in reversed(range(MOST_STARTS)):
            try:
                self.client.register_plugin(PagesPlugin(self.worker), name=self.worker.name)
                return
            except OSError as error:  # a lost connection, to a worker or to the scheduler
                if not left or self.client.status != "running":
                    self._gone(error)
            replace_lost_workers(self.client)

    def _ask_workers(self, *call: object, **keywords: object) -> None:
        """Run something on all workers at the run's end; the run ends even where they do not answer."""
        if self.client.status == "running":
            try:
                self.client.sync(*call, **keywords, callback_timeout=_STOP_S)
            except Exception as error:  # noqa: BLE001
                self.progress.say(f"not all workers know that the run is over ({one_line(error, 80)})")

    # --- what is to be read ---------------------------------------------------------------------

    def _shards(self, folder: Path) -> Iterator[Shard]:
        """Yield shards that are not committed; committed ones are added to the figures."""
        if self.redo:
            self.progress.say(f"shards of {self.output.clear_failed():,} failed pages are read again")
        markers = list(self.output.markers())
        self.figures = read_status(self.output)
        if markers:
            self.progress.say(f"{self.figures.pages:,} pages were committed before, and are skipped")
        settings = self.job.settings
        files = LocalFiles(folder, settings["pdf_dpi"], int(settings["max_megapixels"] * 1_000_000))

        def count(path: str) -> int | None:
            try:
                return files.pages_of(path)
            except DsocrError:  # the worker that reads it says what is wrong
                return None

        return self.output.unread(cut(self.job, list_files(self.job.inputs), count), markers)

    # --- the loop -------------------------------------------------------------------------------

    def _drive(self, shards: Iterator[Shard]) -> None:
        """Keep every worker's threads busy until everything is read."""
        while True:
            self._look()
            # As many shards as workers have threads, and a few that wait: no worker waits for the driver.
            while len(self._in_flight) < self._threads + self._threads // 16:
                shard = self._again.pop() if self._again else next(shards, None)
                if shard is None and self._alone and not self._in_flight:
                    shard = self._alone.pop()
                if shard is None:
                    break
                task = read_shard, self.worker.name, shard.name, [tuple(page) for page in shard.pages]
                key = f"read-{shard.name}-{next(self._numbers)}"
                self._await(self.client.submit(*task, key=key, pure=False), shard)
            if not self._in_flight and not self._again and not self._alone and self._threads:
                return
            with contextlib.suppress(queue.Empty):
                self._take(self._ended.get(timeout=_POLL_S))

    def _look(self) -> None:
        """Check for Ctrl-C and for a lost scheduler or worker. Raises Cancelled, DsocrError."""
        if self.cancel.is_set():
            raise Cancelled
        if self.client.status != "running":
            self._gone()
        if time.monotonic() - self._asked < _WORKERS_EVERY_S and self._threads:
            return
        self._asked = time.monotonic()
        try:
            threads = sum(self.client.nthreads().values())
        except (OSError, TimeoutError, ValueError) as error:
            self._gone(error)
        replace_lost_workers(self.client)
        if not threads and self._threads:
            self.progress.say("no worker is left; waiting for one")
        self._threads = threads

    def _gone(self, error: Exception | None = None) -> NoReturn:
        words = f"the scheduler is gone; {self.figures.pages:,} pages are committed; start it, then {AGAIN}"
        raise DsocrError(words) from error

    def _await(self, future: Future, shard: Shard) -> None:
        self._in_flight[future] = shard
        future.add_done_callback(self._ended.put)

    def _take(self, future: Future) -> None:
        """Take the outcome of a shard. Raises DsocrError for a fault that concerns all pages."""
        shard = self._in_flight.pop(future, None)
        if shard is None:
            return
        if future.status == "cancelled":
            self._gone()
        try:
            if future.status in ("pending", "lost"):  # the worker that had the result was lost
                raise TimeoutError
            outcome = future.result(timeout=_STOP_S)
        except KilledWorker as error:
            self._take_loss(shard, error.allowed_failures + 1)
        except TimeoutError:
            self._await(future, shard)
            return
        except Exception as error:
            if future.status != "error":  # it is committed, though its worker is gone
                self._gone(error)
            raise DsocrError(f"a worker failed: {one_line(error)}") from error
        else:
            if "fatal" in outcome:
                raise DsocrError(outcome["fatal"])
            if "cancelled" in outcome:
                raise Cancelled
            self._count(Marker(**outcome["marker"]))
        future.release()

    def _take_loss(self, shard: Shard, count: int) -> None:
        """Handle a shard whose worker was lost, unless it was committed before."""
        marker = self.output.marker(f"done/{shard.name}.json")
        self._losses[shard.name] += count
        losses = self._losses[shard.name]
        if marker is None and losses < MOST_LOSSES:
            (self._again if losses == 1 else self._alone).append(shard)
            return
        if marker is None:
            words = f"its worker was lost {losses} times"
            self.progress.say(f"pages of shard {shard.index:,} count as failed: {words}")
            pages, now = [page.failed(words) for page in shard.pages], time.time()
            marker = self.output.write(shard.name, pages, "driver", (now, now))
            self.output.commit(marker)
        self._count(marker)

    def _count(self, marker: Marker) -> None:
        self.figures.add(marker)
        if marker.quarantined:
            causes = causes_words(marker.causes)
            self.progress.say(f"shard {marker.index:,}: {marker.quarantined:,} quarantined; {causes}")
        self.progress.committed(self.figures)
