"""Shards in a stream: planned on a thread of their own while others are read, a few ahead."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Container

from dsocr_core.cluster.job import Job
from dsocr_core.cluster.listing import list_files
from dsocr_core.cluster.planning import Planning
from dsocr_core.cluster.shards import Shard
from dsocr_core.errors import Cancelled, DsocrError, one_line

_AHEAD = 64
_POLL_S = 0.25


class ShardQueue:
    """The shards of a job that are not done. Its thread ends when `stopping` is set."""

    def __init__(
        self,
        planning: Planning,
        job: Job,
        done: Container[str],
        on_planned: Callable[[int, bool], None],
        stopping: threading.Event,
    ) -> None:
        """`done` are names of committed shards; `on_planned` is told pages, and whether these are all."""
        self._planning, self._job, self._done = planning, job, done
        self._on_planned, self._stopping = on_planned, stopping
        self._planned: queue.Queue[Shard | DsocrError | None] = queue.Queue(_AHEAD)
        self.ended = False
        """Whether everything was planned, and taken."""
        threading.Thread(target=self._plan, name="plan", daemon=True).start()

    def next(self) -> Shard | None:
        """A shard, if one is planned by now. Raises what planning raises."""
        if self.ended:
            return None
        try:
            found = self._planned.get_nowait()
        except queue.Empty:
            return None
        if isinstance(found, DsocrError):
            raise found
        self.ended = found is None
        return found

    def _plan(self) -> None:
        pages = 0
        try:
            for shard in self._planning.shards(list_files(self._job.inputs)):
                pages += len(shard.pages)
                self._on_planned(pages, False)
                if shard.name not in self._done:
                    self._put(shard)
            self._on_planned(pages, True)
            self._put(None)
        except Cancelled:
            pass
        except DsocrError as error:
            self._put(error)
        except Exception as error:  # noqa: BLE001 - told on the driver's own thread
            self._put(DsocrError(f"the inputs could not be planned: {one_line(error)}"))

    def _put(self, found: Shard | DsocrError | None) -> None:
        while not self._stopping.is_set():
            try:
                self._planned.put(found, timeout=_POLL_S)
                return
            except queue.Full:
                continue
