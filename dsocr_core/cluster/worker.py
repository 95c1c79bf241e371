"""Parts that run in a Dask worker: a plugin that holds the reader, and the tasks that the driver submits."""

from __future__ import annotations

import platform
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from distributed import WorkerPlugin, get_worker

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.cluster.output import Output, marker_of
from dsocr_core.cluster.pages import PageRef
from dsocr_core.cluster.reader import MODULE, Limits, Reader, ReaderError
from dsocr_core.reading.fingerprints import code_version
from dsocr_core.runs.sharded import Marker
from dsocr_core.runs.storage import StorageError

T = TypeVar("T")
WAITS_S = (1, 2, 4, 8, 16, 32)
"""Before a store that did not take a shard is asked again; then the run ends, and nothing is lost by that."""


@dataclass(frozen=True)
class WorkerJob:
    """Facts of a run that a worker must know."""

    name: str
    """Name of the plugin."""
    output: str
    settings: Mapping[str, Any]
    code: str
    batch: int | None = None
    limits: Limits = field(default_factory=Limits)
    module: str = MODULE
    """Module that the reader process runs."""


class PagesPlugin(WorkerPlugin):  # type: ignore[misc]
    """Holds the warm engine of a worker for as long as the run lasts."""

    def __init__(self, job: WorkerJob) -> None:
        self.job, self.name = job, job.name

    def setup(self, worker: Any) -> None:
        # Local workers are numbered, others have their address or were given a name.
        self.worker_name = worker.name if isinstance(worker.name, str) else f"{platform.node()}/{worker.name}"
        self.cancel = threading.Event()
        self.output = Output(self.job.output)
        self._folder = tempfile.TemporaryDirectory(prefix="dsocr-pages-", dir=worker.local_directory)
        job = self.job
        self.reader = Reader(job.settings, job.batch, job.limits, Path(self._folder.name), job.module)
        if job.code == code_version():  # else the first shard says what is wrong
            self.reader.start()

    def teardown(self, worker: Any) -> None:
        self.stop()
        self._folder.cleanup()

    def stop(self) -> None:
        """Read nothing more; what is whole is still committed."""
        self.cancel.set()
        self.reader.stop()

    def read(self, shard: str, pages: Sequence[PageRef], again: Marker | None) -> Marker:
        """Read a shard and commit it; of one that was read before, `again`, the pages that failed.

        Raises ReaderError, Cancelled, StorageError.
        """
        if self.job.code != code_version():
            raise ReaderError(
                f"worker {self.worker_name} has another version of this code; update it, then go on"
            )
        began = time.time()
        before = [] if again is None else self.output.pages(again)
        read = {page.number: page for page in before if page.result is not None}
        left = [page for page in pages if page.number not in read]
        # Pages that failed before are read one by one: no other of the shard can be to blame.
        for some in [left] if again is None else [[page] for page in left]:
            read |= {page.number: page for page in self.reader.read(some)}
        ordered = [read[page.number] for page in pages]
        attempt = self._asked_again(lambda: self.output.write_attempt(shard, ordered))
        generation = 0 if again is None else again.generation + 1
        times = (began, time.time())
        marker = marker_of(shard, attempt, ordered, self.worker_name, times, generation)
        self._asked_again(lambda: self.output.commit(marker))
        return marker

    def _asked_again(self, do: Callable[[], T]) -> T:
        for wait_s in WAITS_S:
            try:
                return do()
            except StorageError:
                if self.cancel.wait(wait_s):
                    raise Cancelled from None
        return do()


def read_shard(
    name: str, shard: str, pages: Sequence[Sequence[Any]], again: Mapping[str, Any] | None
) -> dict[str, Any]:
    """A task: the marker of a shard, or `fatal` where no page can be read here."""
    plugin = get_worker().plugins.get(name)
    try:
        if not isinstance(plugin, PagesPlugin):
            raise ReaderError("the run is over on this worker")
        before = None if again is None else Marker(**again)
        return {"marker": asdict(plugin.read(shard, [PageRef(*page) for page in pages], before))}
    except Cancelled:
        return {"cancelled": True}
    except DsocrError as error:
        return {"fatal": str(error)}


def stop_reading(name: str, dask_worker: Any) -> None:
    """Run on every worker at Ctrl-C."""
    plugin = dask_worker.plugins.get(name)
    if plugin is not None:
        plugin.stop()
