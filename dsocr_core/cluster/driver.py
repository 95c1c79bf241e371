"""The driver: a bounded number of pieces in Dask's hands, deaths counted, shards committed, progress told.

It holds what is in flight and some figures; what is planned comes as a stream, and results never come here.
"""

from __future__ import annotations

import contextlib
import itertools
import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from distributed import Client, Future, KilledWorker

from dsocr_core.base.errors import Cancelled, DsocrError, one_line
from dsocr_core.cluster.job import Job
from dsocr_core.cluster.lease import Lease
from dsocr_core.cluster.local import replace_lost_workers
from dsocr_core.cluster.mending import Death, Mending, Piece, after_death
from dsocr_core.cluster.output import Output, patiently
from dsocr_core.cluster.planning import Counts, Planning, ShardQueue
from dsocr_core.cluster.reader import MOST_STARTS
from dsocr_core.cluster.shards import Shard
from dsocr_core.cluster.status import Figures, causes_words
from dsocr_core.cluster.worker import PagesPlugin, WorkerJob, count_pdfs, read_piece, stop_reading
from dsocr_core.reading.records import CancelToken
from dsocr_core.runs.sharded import Marker, PageReading

FEWEST_JUDGED = 100
"""Pages before a share of failures ends a run."""
_POLL_S = 0.25
_WORKERS_EVERY_S = 2.0
_RESULT_S = 10.0
"""For what a task returned, which is small."""
_STOP_S = 30.0
"""Seconds to commit finished shards after Ctrl-C."""
_COUNT_PRIORITY = 10
"""Planning goes before reading: without shards workers wait."""


class Watching(Protocol):
    """Watcher that shows how the run goes."""

    def planned(self, pages: int, complete: bool) -> None: ...

    def committed(self, figures: Figures, in_flight: int, workers: int) -> None: ...

    def told(self, worker: str, words: Mapping[str, Any]) -> None:
        """A worker has read pages (`read`, `failed`) or waits (`paused`); on a thread of Dask's."""

    def said(self, words: str) -> None:
        """One line for people."""


class TooManyFailed(DsocrError):
    """The share of failed pages is above what was allowed; says how to go on."""


class SchedulerGone(DsocrError):
    """The scheduler cannot be reached any more; says how to go on."""


@dataclass(frozen=True)
class Order:
    """Order to the driver."""

    worker: WorkerJob
    fallback_percent: float = 10.0
    redo: bool = False
    """Read failed and quarantined pages again, alone."""
    again: str = "give the same command again"
    """Way to go on."""
    make_reader: Callable[[PagesPlugin], Any] | None = None


@dataclass
class _Flight:
    """Task in Dask's hands, and its shard."""

    pieces: dict[Future, Piece] = field(default_factory=dict)
    shards: dict[int, Shard] = field(default_factory=dict)
    mending: dict[int, Mending] = field(default_factory=dict)
    ready: list[Piece] = field(default_factory=list)
    """Pieces to be submitted before anything else is planned."""


class Driver:
    """One run on a cluster."""

    def __init__(self, client: Client, job: Job, output: Output, order: Order, watching: Watching) -> None:
        self.client, self.job, self.output, self.order = client, job, output, order
        self.watching = watching
        self.figures = Figures()
        self._flight = _Flight()
        self._ended: queue.SimpleQueue[Future] = queue.SimpleQueue()
        self._shards: ShardQueue | None = None
        self._cancel: CancelToken = threading.Event()
        self._stopping = threading.Event()
        self._threads, self._workers, self._asked = 0, 0, 0.0
        self._replaced: dict[int, Marker] = {}
        """Earlier markers of shards that are read again."""
        self._numbers = itertools.count()
        self._lease = Lease(output)

    def run(self, cancel: CancelToken) -> Figures:
        """Read everything that is not committed yet; what came of it all.

        Raises OtherDriver while another one writes into the output; Cancelled, TooManyFailed, SchedulerGone,
        and DsocrError for what concerns all pages. What was committed by then stays.
        """
        self._cancel = cancel
        with self._patiently(partial(self._lease.take, cancel)):
            return self._run()

    def _run(self) -> Figures:
        name = self.order.worker.name
        done = self._begin()
        self._prepare_workers(name)
        try:
            if self.order.redo:
                self._read_failed_again()
            else:
                self._shards = ShardQueue(
                    self._planning(), self.job, done, self.watching.planned, self._stopping
                )
            self._drive()
            # Nobody writes now: what no marker names is of attempts that came to nothing.
            self._patiently(self.output.clear_attempts)
        except Cancelled:
            self._finish_whole()
            raise Cancelled(
                f"stopped: {self.figures.pages:,} pages are committed; to go on, {self.order.again}"
            ) from None
        finally:
            self._stopping.set()
            self._leave(name)
        return self.figures

    def _prepare_workers(self, name: str) -> None:
        """Have every worker ready to read; one that dies meanwhile is started again. Raises SchedulerGone."""
        for left in reversed(range(MOST_STARTS)):
            try:
                plugin = PagesPlugin(self.order.worker, self.order.make_reader)
                self.client.register_plugin(plugin, name=name)
                self.client.subscribe_topic(name, self._on_event)
                return
            except OSError as error:  # a lost connection, to a worker or to the scheduler
                if not left or self.client.status != "running":
                    self._gone(error)
            replace_lost_workers(self.client)

    def _leave(self, name: str) -> None:
        """Give the engines' memory back, where the cluster is still there."""
        if self.client.status == "running":
            try:
                self.client.unsubscribe_topic(name)
                self.client.sync(self.client._unregister_worker_plugin, name=name, callback_timeout=_STOP_S)
            except Exception as error:  # noqa: BLE001 - the run is over, whatever the cluster says
                self.watching.said(f"workers were not told that the run is over ({one_line(error, 80)})")

    # --- what is to be read ---------------------------------------------------------------------

    def _begin(self) -> set[str]:
        """The names of shards that were committed before, their figures taken in."""
        names = self._patiently(self.output.marker_names)
        markers: list[Marker] = []
        if names:
            markers = self._patiently(lambda: list(self.output.markers(names.values())))
        for marker in markers:
            self.figures.add(marker)
        if markers and not self.order.redo:
            self.watching.said(f"{self.figures.pages:,} pages were committed before, and are skipped")
        return set(names)

    def _planning(self) -> Planning:
        return Planning(self.output, self.job, self._start_count, self._on_pause, self._stopping)

    def _start_count(self, paths: Sequence[str]) -> Counts:
        settings = self.job.settings
        max_pixels = int(settings["max_megapixels"] * 1_000_000)
        future = self.client.submit(
            count_pdfs, self.order.worker.name, list(paths), settings["pdf_dpi"], max_pixels,
            key=f"count-{next(self._numbers)}-{id(self)}", priority=_COUNT_PRIORITY, pure=False, retries=3,
        )  # fmt: skip

        def counts() -> Sequence[int | None]:
            while True:
                if self._stopping.is_set():
                    raise Cancelled
                try:
                    return future.result(timeout=1)  # type: ignore[no-any-return]
                except TimeoutError:
                    continue

        return counts

    def _read_failed_again(self) -> None:
        """Retry each failed page as a piece of its own; results already committed stay."""
        names = self._patiently(self.output.marker_names)
        failed = {
            marker.index: marker
            for marker in self._patiently(lambda: list(self.output.markers(names.values())))
            if marker.failed or marker.quarantined
        }
        for shard in self.output.planned_shards(failed, self.job):
            marker = failed[shard.index]
            pages: list[PageReading] = self._patiently(partial(self.output.pages, marker))
            mending = Mending(shard, generation=marker.generation + 1)
            mending.pages = [page for page in pages if page.result is not None]
            again = [page.number for page in pages if page.result is None]
            pieces = [Piece(shard.index, (page,), whole=False, suspect=True) for page in again]
            mending.pending = len(pieces)
            self._flight.shards[shard.index], self._flight.mending[shard.index] = shard, mending
            self._flight.ready += pieces
            self._replaced[shard.index] = marker

    # --- the loop -------------------------------------------------------------------------------

    def _drive(self) -> None:
        flight = self._flight
        while True:
            self._look()
            # As many pieces as workers have threads, and a few that wait: no worker waits for the driver.
            while len(flight.pieces) < self._threads + self._threads // 16:
                if flight.ready:
                    self._submit(flight.ready.pop())
                elif self._shards is not None and (shard := self._shards.next()) is not None:
                    flight.shards[shard.index] = shard
                    self._submit(Piece(shard.index, tuple(page.number for page in shard.pages)))
                else:
                    break
            if not flight.pieces and not flight.ready and (self._shards is None or self._shards.ended):
                return
            self._take_ended(_POLL_S)

    def _look(self) -> None:
        """Ctrl-C, other drivers, the scheduler, the workers. Raises Cancelled, OtherDriver, SchedulerGone."""
        if self._cancel.is_set():
            raise Cancelled
        self._lease.check()
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
            self.watching.said("no worker is left; waiting for one")
        self._threads, self._workers = sum(threads.values()), len(threads)

    def _gone(self, error: Exception | None = None) -> None:
        raise SchedulerGone(
            f"the scheduler is gone; {self.figures.pages:,} pages are committed; start it, then "
            f"{self.order.again}"
        ) from error

    def _submit(self, piece: Piece) -> None:
        shard = self._flight.shards[piece.shard]
        wanted = set(piece.pages)
        pages = [tuple(page) for page in shard.pages if page.number in wanted]
        future = self.client.submit(
            read_piece, self.order.worker.name, shard.name, pages, piece.whole, piece.suspect,
            key=f"read-{shard.name}-{next(self._numbers)}", pure=False,
        )  # fmt: skip
        self._await(future, piece)

    def _take_ended(self, wait_s: float) -> None:
        """Take what has ended, after the first of it."""
        while True:
            try:
                future = self._ended.get(timeout=wait_s) if wait_s else self._ended.get_nowait()
            except queue.Empty:
                return
            wait_s = 0
            piece = self._flight.pieces.pop(future, None)
            if piece is not None:
                self._take(future, piece)

    def _take(self, future: Future, piece: Piece) -> None:
        if future.status in ("pending", "lost"):  # who had what it returned was lost: Dask runs it again
            self._await(future, piece)
            return
        if future.status == "cancelled":
            self._gone()
        try:
            outcome = future.result(timeout=_RESULT_S)
        except KilledWorker as error:
            self._take_death(piece, error)
        except TimeoutError:
            self._await(future, piece)
            return
        except Exception as error:
            if future.status != "error":  # it is there, and nobody is left to fetch it from
                self._gone(error)
            raise DsocrError(f"a worker failed: {one_line(error)}") from error
        else:
            self._take_outcome(piece, outcome)
        future.release()

    def _await(self, future: Future, piece: Piece) -> None:
        self._flight.pieces[future] = piece
        future.add_done_callback(self._ended.put)

    def _take_outcome(self, piece: Piece, outcome: Mapping[str, Any]) -> None:
        if "fatal" in outcome:
            raise DsocrError(outcome["fatal"])
        if outcome.get("cancelled"):
            raise Cancelled
        if "marker" in outcome:
            self._count_whole(piece, outcome)
        else:
            self._take_part(piece, outcome)

    def _count_whole(self, piece: Piece, outcome: Mapping[str, Any]) -> None:
        """A worker has committed the shard; its marker came with the outcome."""
        del self._flight.shards[piece.shard]
        self._flight.mending.pop(piece.shard, None)
        self._count(Marker(**outcome["marker"]))

    def _take_part(self, piece: Piece, outcome: Mapping[str, Any]) -> None:
        """A part of a shard was read, and perhaps the process died on the rest."""
        mending = self._mending(piece)
        mending.add(piece, outcome)
        unread = outcome["unread"]
        if unread:
            death = Death(outcome["cause"])
            self._read_again(piece, unread, outcome["started"], death)
        self._end_piece(mending)

    def _take_death(self, piece: Piece, error: KilledWorker) -> None:
        """The worker was lost. It may have committed the shard before."""
        shard = self._flight.shards[piece.shard]
        marker = None
        if piece.whole:
            marker = self._patiently(lambda: self.output.marker(f"done/{shard.name}.json"))
        if marker is not None:
            self._flight.shards.pop(piece.shard)
            self._count(marker)
            return
        mending = self._mending(piece)
        count = error.allowed_failures + 1
        death = Death("its worker was lost", of_worker=True, count=count)
        self._read_again(piece, piece.pages, (), death)
        self._end_piece(mending)

    def _mending(self, piece: Piece) -> Mending:
        """The shard of a piece that is no whole any more; the piece itself is one that is pending."""
        flight = self._flight
        if piece.shard not in flight.mending:
            flight.mending[piece.shard] = Mending(flight.shards[piece.shard], pending=1)
        return flight.mending[piece.shard]

    def _read_again(self, piece: Piece, unread: Sequence[int], started: Sequence[int], death: Death) -> None:
        mending = self._mending(piece)
        then = after_death(piece, unread, started, death)
        if then.quarantined is not None:
            page = next(page for page in mending.shard.pages if page.number == then.quarantined)
            mending.quarantine(page, piece.deaths + death.count, death.cause)
            self.watching.said(f"quarantined {page.source}: {death.cause}")
        mending.pending += len(then.pieces)
        self._flight.ready += then.pieces

    def _end_piece(self, mending: Mending) -> None:
        mending.pending -= 1
        index = mending.shard.index
        if mending.pending == 1 and not mending.attempts and not mending.pages:
            only = next((one for one in self._flight.ready if one.shard == index and one.whole), None)
            if only is not None:  # read once more as it is: no mending
                del self._flight.mending[index]
                return
        if mending.pending:
            return
        marker = self._patiently(lambda: mending.commit(self.output))
        del self._flight.mending[index], self._flight.shards[index]
        self._count(marker, self._replaced.pop(index, None))

    def _count(self, marker: Marker, replaces: Marker | None = None) -> None:
        self.figures.add(marker, replaces)
        self.watching.committed(self.figures, len(self._flight.pieces), self._workers)
        figures, most = self.figures, self.order.fallback_percent
        if not self.order.redo and figures.pages >= FEWEST_JUDGED and figures.failed_percent() > most:
            raise TooManyFailed(
                f"{figures.failed + figures.quarantined:,} of {figures.pages:,} pages failed, more than "
                f"{most:g}%: {causes_words(figures.causes)}; mend that, or give a higher --fallback-percent "
                f"and {self.order.again}"
            )

    # --- the end --------------------------------------------------------------------------------

    def _finish_whole(self) -> None:
        """Workers stop reading; shards that are whole are committed meanwhile, and counted."""
        self._stopping.set()
        if self.client.status != "running":
            return
        try:
            self.client.sync(
                self.client._run, stop_reading, self.order.worker.name, on_error="ignore",
                callback_timeout=_STOP_S,
            )  # fmt: skip
        except Exception as error:  # noqa: BLE001 - the run ends, whatever the cluster says
            self.watching.said(f"not all workers could be stopped ({one_line(error, 80)})")
        deadline = time.monotonic() + _STOP_S
        while self._flight.pieces and time.monotonic() < deadline:
            try:
                future = self._ended.get(timeout=_POLL_S)
            except queue.Empty:
                continue
            piece = self._flight.pieces.pop(future, None)
            if piece is not None and future.status == "finished":
                with contextlib.suppress(Exception):  # it counts when the run goes on
                    outcome = future.result(timeout=_RESULT_S)
                    if "marker" in outcome:
                        self._count_whole(piece, outcome)

    def _patiently(self, do: Callable[[], Any]) -> Any:
        return patiently(do, self._on_pause, self._cancel)

    def _on_pause(self, cause: str | None) -> None:
        self._say_pause("", cause)

    def _say_pause(self, who: str, cause: str | None) -> None:
        words = f"paused: {cause}; trying again" if cause else "the output is there again: going on"
        self.watching.said(f"{who}{words}")

    def _on_event(self, event: tuple[float, Mapping[str, Any]]) -> None:
        _, words = event
        if "paused" in words:
            self._say_pause(f"{words['name']}: ", words["paused"])
        else:
            self.watching.told(str(words["name"]), words)
