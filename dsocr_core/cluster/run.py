"""The driver: a bounded number of shards in Dask's hands, lost workers counted, progress shown.

It holds what is in flight and some figures; what is planned comes as a stream, and results never come here.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from distributed import Client, Future, KilledWorker

from dsocr_core.base.errors import Cancelled, DsocrError, one_line
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.lease import Lease, driving
from dsocr_core.cluster.local import replace_lost_workers
from dsocr_core.cluster.local_files import LocalFiles
from dsocr_core.cluster.output import Output, marker_of
from dsocr_core.cluster.pages import Shard, list_files, planned_shards
from dsocr_core.cluster.progress import ClusterProgress
from dsocr_core.cluster.reader import MOST_STARTS
from dsocr_core.cluster.status import Figures, causes_words
from dsocr_core.cluster.worker import PagesPlugin, WorkerJob, read_shard, stop_reading
from dsocr_core.reading.records import CancelToken
from dsocr_core.runs.sharded import Marker

FEWEST_JUDGED = 100
"""Pages before a share of failures ends a run."""
MOST_LOSSES = 3
"""Workers that may be lost with a shard: machines are also lost for other reasons."""
DRIVER = "driver"
"""Committer of a shard that no worker could read."""
AGAIN = "give the same command again"
_POLL_S = 0.25
_WORKERS_EVERY_S = 2.0
_RESULT_S = 10.0
"""For what a task returned, which is small."""
_STOP_S = 30.0
"""Seconds to commit finished shards after Ctrl-C."""


class TooManyFailed(DsocrError):
    """The share of failed pages is above what was allowed; says how to go on."""


class SchedulerGone(DsocrError):
    """The scheduler cannot be reached any more; says how to go on."""


@dataclass(frozen=True)
class Work:
    """A shard to read, and its marker where only its failed pages are read again."""

    shard: Shard
    again: Marker | None = None


@dataclass(frozen=True)
class Order:
    """Order to the driver."""

    worker: WorkerJob
    fallback_percent: float = 10.0
    redo: bool = False
    """Read failed and quarantined pages again, one by one."""


def run(
    client: Client, job: Job, output: Output, order: Order, progress: ClusterProgress,
    figures: Figures, cancel: CancelToken,
) -> None:  # fmt: skip
    """Read everything that is not committed yet; `figures` are filled with what came of it all.

    Raises OtherDriver while another one writes into the output; Cancelled, TooManyFailed, SchedulerGone, and
    DsocrError for what concerns all pages. What was committed by then stays.
    """
    with driving(output, cancel) as lease, tempfile.TemporaryDirectory(prefix="dsocr-count-") as folder:
        driver = Driver(client, job, output, order, progress, figures, cancel)
        try:
            driver.prepare_workers()
            driver.drive(driver.works(Path(folder)), lease)
            # Nobody writes now: what no marker names is of attempts that came to nothing.
            output.clear_attempts()
        except Cancelled:
            driver.finish_whole()
            words = f"stopped: {figures.pages:,} pages are committed; to go on, {AGAIN}"
            raise Cancelled(words) from None
        finally:
            driver.leave()


class Driver:
    """One run on a cluster."""

    def __init__(
        self, client: Client, job: Job, output: Output, order: Order, progress: ClusterProgress,
        figures: Figures, cancel: CancelToken,
    ) -> None:  # fmt: skip
        self.client, self.job, self.output, self.order = client, job, output, order
        self.progress, self.figures, self._cancel = progress, figures, cancel
        self._in_flight: dict[Future, Work] = {}
        self._ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self._again: list[Work] = []
        """Shards whose worker was lost."""
        self._alone: list[Work] = []
        """Shards that lost two: read by themselves, last, as a third loss is then no other shard's fault."""
        self._losses: Counter[str] = Counter()
        self._threads, self._workers, self._asked = 0, 0, 0.0
        self._numbers = itertools.count()

    # --- workers --------------------------------------------------------------------------------

    def prepare_workers(self) -> None:
        """Have every worker ready to read; one that dies meanwhile is started again. Raises SchedulerGone."""
        for left in reversed(range(MOST_STARTS)):
            try:
                self.client.register_plugin(PagesPlugin(self.order.worker), name=self.order.worker.name)
                return
            except OSError as error:  # a lost connection, to a worker or to the scheduler
                if not left or self.client.status != "running":
                    self._gone(error)
            replace_lost_workers(self.client)

    def leave(self) -> None:
        """Give the engines' memory back, where the cluster is still there."""
        name = self.order.worker.name
        if self.client.status == "running":
            try:
                self.client.sync(self.client._unregister_worker_plugin, name=name, callback_timeout=_STOP_S)
            except Exception as error:  # noqa: BLE001 - the run is over, whatever the cluster says
                self.progress.said(f"workers do not know that the run is over ({one_line(error, 80)})")

    def finish_whole(self) -> None:
        """Workers stop reading; shards that are whole are committed meanwhile, and counted."""
        name, deadline = self.order.worker.name, time.monotonic() + _STOP_S
        if self.client.status != "running":
            return
        try:
            self.client.sync(
                self.client._run, stop_reading, name, on_error="ignore", callback_timeout=_STOP_S
            )
        except Exception as error:  # noqa: BLE001 - the run ends, whatever the cluster says
            self.progress.said(f"not all workers could be stopped ({one_line(error, 80)})")
        while self._in_flight and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                future = self._ended.get(timeout=_POLL_S)
                work = self._in_flight.pop(future, None)
                if work is not None and future.status == "finished":
                    with contextlib.suppress(Exception):  # it counts when the run goes on
                        self._count(Marker(**future.result(timeout=_RESULT_S)["marker"]), work.again)

    # --- what is to be read ---------------------------------------------------------------------

    def works(self, folder: Path) -> Iterator[Work]:
        """The shards that are not committed; of those that are, the figures are counted."""
        names = self.output.marker_names()
        markers = {marker.shard: marker for marker in self.output.markers(names.values())}
        for marker in markers.values():
            self.figures.add(marker)
        if self.order.redo:
            failed = {each.index: each for each in markers.values() if each.failed or each.quarantined}
            for shard in self.output.planned(failed, self.job):
                yield Work(shard, failed[shard.index])
            return
        if markers:
            self.progress.said(f"{self.figures.pages:,} pages were committed before, and are skipped")
        settings, pages = self.job.settings, 0
        files = LocalFiles(folder, settings["pdf_dpi"], int(settings["max_megapixels"] * 1_000_000))

        def count(path: str) -> int | None:
            try:
                return files.pages_of(path)
            except DsocrError:  # the worker that reads it says what is wrong
                return None

        for shard in planned_shards(self.output, self.job, list_files(self.job.inputs), count):
            pages += len(shard.pages)
            self.progress.planned(pages, False)
            if shard.name not in names:
                yield Work(shard)
        self.progress.planned(pages, True)

    # --- the loop -------------------------------------------------------------------------------

    def drive(self, works: Iterator[Work], lease: Lease) -> None:
        """Keep every worker's threads busy until everything is read."""
        while True:
            self._look(lease)
            # As many shards as workers have threads, and a few that wait: no worker waits for the driver.
            while len(self._in_flight) < self._threads + self._threads // 16:
                work = self._again.pop() if self._again else next(works, None)
                if work is None and self._alone and not self._in_flight:
                    work = self._alone.pop()
                if work is None:
                    break
                self._submit(work)
            if not self._in_flight and not self._again and not self._alone and self._threads:
                return
            with contextlib.suppress(queue.Empty):
                self._take(self._ended.get(timeout=_POLL_S))

    def _look(self, lease: Lease) -> None:
        """Ctrl-C, other drivers, the scheduler, the workers. Raises Cancelled, OtherDriver, SchedulerGone."""
        if self._cancel.is_set():
            raise Cancelled
        lease.check()
        if self.client.status != "running":
            self._gone()
        now = time.monotonic()
        if now - self._asked < _WORKERS_EVERY_S and self._threads:
            return
        self._asked = now
        try:
            threads: Mapping[str, int] = self.client.nthreads()
        except (OSError, TimeoutError, ValueError) as error:
            self._gone(error)
        replace_lost_workers(self.client)
        if not threads and self._workers:
            self.progress.said("no worker is left; waiting for one")
        self._threads, self._workers = sum(threads.values()), len(threads)

    def _gone(self, error: Exception | None = None) -> NoReturn:
        words = f"the scheduler is gone; {self.figures.pages:,} pages are committed; start it, then {AGAIN}"
        raise SchedulerGone(words) from error

    def _submit(self, work: Work) -> None:
        shard, again = work.shard, work.again and asdict(work.again)
        future = self.client.submit(
            read_shard, self.order.worker.name, shard.name, [tuple(page) for page in shard.pages], again,
            key=f"read-{shard.name}-{next(self._numbers)}", pure=False,
        )  # fmt: skip
        self._await(future, work)

    def _await(self, future: Future, work: Work) -> None:
        self._in_flight[future] = work
        future.add_done_callback(self._ended.put)

    def _take(self, future: Future) -> None:
        work = self._in_flight.pop(future, None)
        if work is None:
            return
        if future.status in ("pending", "lost"):  # who had what it returned was lost: Dask runs it again
            self._await(future, work)
            return
        if future.status == "cancelled":
            self._gone()
        try:
            outcome = future.result(timeout=_RESULT_S)
        except KilledWorker as error:
            self._take_loss(work, error.allowed_failures + 1)
        except TimeoutError:
            self._await(future, work)
            return
        except Exception as error:
            if future.status != "error":  # it is there, and nobody is left to fetch it from
                self._gone(error)
            raise DsocrError(f"a worker failed: {one_line(error)}") from error
        else:
            if "fatal" in outcome:
                raise DsocrError(outcome["fatal"])
            if "cancelled" in outcome:
                raise Cancelled
            self._count(Marker(**outcome["marker"]), work.again)
        future.release()

    def _take_loss(self, work: Work, count: int) -> None:
        """The worker was lost. It may have committed the shard before."""
        shard = work.shard
        generation = 0 if work.again is None else work.again.generation + 1
        suffix = f".{generation}" if generation else ""
        if (marker := self.output.marker(f"done/{shard.name}{suffix}.json")) is not None:
            self._count(marker, work.again)
            return
        self._losses[shard.name] += count
        if self._losses[shard.name] < MOST_LOSSES:
            (self._again if self._losses[shard.name] == 1 else self._alone).append(work)
            return
        words = f"its worker was lost {self._losses[shard.name]} times"
        self.progress.said(f"pages of shard {shard.index:,} count as failed: {words}")
        before = {} if work.again is None else {page.number: page for page in self.output.pages(work.again)}
        pages = [
            was
            if (was := before.get(page.number)) is not None and was.result is not None
            else page.failed(words)
            for page in shard.pages
        ]
        attempt, now = self.output.write_attempt(shard.name, pages), time.time()
        marker = marker_of(shard.name, attempt, pages, DRIVER, (now, now), generation)
        self.output.commit(marker)
        self._count(marker, work.again)

    def _count(self, marker: Marker, replaces: Marker | None) -> None:
        figures, most = self.figures, self.order.fallback_percent
        figures.add(marker, replaces)
        if marker.quarantined:
            causes = causes_words(marker.causes)
            self.progress.said(f"shard {marker.index:,}: {marker.quarantined:,} quarantined; {causes}")
        self.progress.committed(figures)
        failed = figures.failed + figures.quarantined
        if not self.order.redo and figures.pages >= FEWEST_JUDGED and 100 * failed > most * figures.pages:
            raise TooManyFailed(
                f"{failed:,} of {figures.pages:,} pages failed, more than "
                f"{most:g}%: {causes_words(figures.causes)}; mend that, or give a higher --fallback-percent "
                f"and {AGAIN}"
            )
