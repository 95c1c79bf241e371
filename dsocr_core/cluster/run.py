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
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NoReturn

from distributed import Client, Future, KilledWorker, wait

from dsocr_core.base.errors import Cancelled, DsocrError, one_line
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.lease import Lease, driving
from dsocr_core.cluster.local import replace_lost_workers
from dsocr_core.cluster.local_files import LocalFiles
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.pages import Shard, list_files, planned_shards
from dsocr_core.cluster.reader import MOST_STARTS, WorkerJob
from dsocr_core.cluster.status import ClusterProgress, Figures, causes_words, read_status
from dsocr_core.cluster.worker import PagesPlugin, read_shard, stop_reading
from dsocr_core.reading.records import CancelToken
from dsocr_core.runs.sharded import Marker

FEWEST_JUDGED = 100
"""Pages before a share of failures ends a run."""
MOST_LOSSES = 3
"""Workers that may be lost with a shard: machines are also lost for other reasons."""
DRIVER = "driver"
"""Committer of a shard that no worker could read."""
AGAIN = "give the same command again"
_POLL_S, _WORKERS_EVERY_S = 0.25, 2.0
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


@dataclass
class Driver:
    """One run on a cluster.

    It ends where more than `fallback_percent` of the pages fail. `redo` has failed and quarantined pages read
    again, one by one.
    """

    client: Client
    job: Job
    output: Output
    worker: WorkerJob
    progress: ClusterProgress
    cancel: CancelToken
    fallback_percent: float = 10.0
    redo: bool = False

    def __post_init__(self) -> None:
        self.figures = Figures()
        self._in_flight: dict[Future, Work] = {}
        self._ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self._again: list[Work] = []
        """Shards whose worker was lost."""
        self._alone: list[Work] = []
        """Shards that lost two: read by themselves, last, as a third loss is then no other shard's fault."""
        self._losses: Counter[str] = Counter()
        self._threads, self._asked = 0, 0.0
        self._numbers = itertools.count()

    def run(self) -> None:
        """Read everything that is not committed yet.

        Raises OtherDriver while another one writes into the output; Cancelled, TooManyFailed, SchedulerGone,
        and DsocrError for what concerns all pages. What was committed by then stays.
        """
        folder = tempfile.TemporaryDirectory(prefix="dsocr-")
        with driving(self.output, self.cancel) as lease, folder:
            try:
                self._prepare_workers()
                self._drive(self._works(Path(folder.name)), lease)
                # Nobody writes now: what no marker names is of attempts that came to nothing.
                self.output.clear_attempts()
            except Cancelled:
                self._ask_workers(self.client._run, stop_reading, self.worker.name, on_error="ignore")
                if self.client.status == "running":  # shards that are whole are committed meanwhile
                    with contextlib.suppress(Exception):
                        wait([*self._in_flight], timeout=_STOP_S)
                self.figures = read_status(self.output)
                words = f"stopped: {self.figures.pages:,} pages are committed; to go on, {AGAIN}"
                raise Cancelled(words) from None
            finally:  # engines give their memory back, where the cluster is still there
                self._ask_workers(self.client._unregister_worker_plugin, name=self.worker.name)

    # --- workers --------------------------------------------------------------------------------

    def _prepare_workers(self) -> None:
        """Have every worker ready to read; one that dies meanwhile is started again. Raises SchedulerGone."""
        for left in reversed(range(MOST_STARTS)):
            try:
                self.client.register_plugin(PagesPlugin(self.worker), name=self.worker.name)
                return
            except OSError as error:  # a lost connection, to a worker or to the scheduler
                if not left or self.client.status != "running":
                    self._gone(error)
            replace_lost_workers(self.client)

    def _ask_workers(self, *call: object, **keywords: object) -> None:
        """Ask the workers for something at the run's end, which comes whatever they answer."""
        if self.client.status == "running":
            try:
                self.client.sync(*call, **keywords, callback_timeout=_STOP_S)
            except Exception as error:  # noqa: BLE001
                self.progress.say(f"not all workers know that the run is over ({one_line(error, 80)})")

    # --- what is to be read ---------------------------------------------------------------------

    def _works(self, folder: Path) -> Iterator[Work]:
        """The shards that are not committed; of those that are, the figures are counted."""
        names = self.output.marker_names()
        markers = list(self.output.markers(names.values()))
        for marker in markers:
            self.figures.add(marker)
        if self.redo:
            failed = {each.index: each for each in markers if each.failed or each.quarantined}
            for shard in self.output.planned(failed, self.job):
                yield Work(shard, failed[shard.index])
            return
        if markers:
            self.progress.say(f"{self.figures.pages:,} pages were committed before, and are skipped")
        settings = self.job.settings
        files = LocalFiles(folder, settings["pdf_dpi"], int(settings["max_megapixels"] * 1_000_000))

        def count(path: str) -> int | None:
            try:
                return files.pages_of(path)
            except DsocrError:  # the worker that reads it says what is wrong
                return None

        for shard in planned_shards(self.output, self.job, list_files(self.job.inputs), count):
            self.figures.planned += len(shard.pages)
            if shard.name not in names:
                yield Work(shard)
        self.figures.listed = True

    # --- the loop -------------------------------------------------------------------------------

    def _drive(self, works: Iterator[Work], lease: Lease) -> None:
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
        if self.cancel.is_set():
            raise Cancelled
        lease.check()
        if self.client.status != "running":
            self._gone()
        now = time.monotonic()
        if now - self._asked < _WORKERS_EVERY_S and self._threads:
            return
        self._asked = now
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
        raise SchedulerGone(words) from error

    def _submit(self, work: Work) -> None:
        shard, again = work.shard, work.again and asdict(work.again)
        future = self.client.submit(
            read_shard, self.worker.name, shard.name, [tuple(page) for page in shard.pages], again,
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
        if future.status == "cancelled":
            self._gone()
        try:
            if future.status in ("pending", "lost"):  # who had what it returned was lost: Dask runs it again
                raise TimeoutError
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
        shard, again = work.shard, work.again
        newest = self.output.marker_names().get(shard.name)
        marker = None if newest is None else self.output.marker(newest)
        if marker is not None and (again is None or marker.generation > again.generation):
            self._count(marker, again)
            return
        self._losses[shard.name] += count
        if self._losses[shard.name] < MOST_LOSSES:
            (self._again if self._losses[shard.name] == 1 else self._alone).append(work)
            return
        words = f"its worker was lost {self._losses[shard.name]} times"
        self.progress.say(f"pages of shard {shard.index:,} count as failed: {words}")
        pages = {page.number: page.failed(words) for page in shard.pages}
        before = [] if again is None else self.output.pages(again)
        pages |= {page.number: page for page in before if page.result is not None}
        now = time.time()
        marker = self.output.write(shard.name, list(pages.values()), DRIVER, (now, now), again)
        self.output.commit(marker)
        self._count(marker, again)

    def _count(self, marker: Marker, replaces: Marker | None) -> None:
        figures, most = self.figures, self.fallback_percent
        figures.add(marker, replaces)
        if marker.quarantined:
            causes = causes_words(marker.causes)
            self.progress.say(f"shard {marker.index:,}: {marker.quarantined:,} quarantined; {causes}")
        self.progress.committed(figures)
        failed = figures.failed + figures.quarantined
        if not self.redo and figures.pages >= FEWEST_JUDGED and 100 * failed > most * figures.pages:
            raise TooManyFailed(
                f"{failed:,} of {figures.pages:,} pages failed, more than "
                f"{most:g}%: {causes_words(figures.causes)}; mend that, or give a higher --fallback-percent "
                f"and {AGAIN}"
            )
