"""Parts that run in a Dask worker: a plugin that holds the reader, and the tasks that the driver submits."""

from __future__ import annotations

import platform
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

from distributed import WorkerPlugin, get_worker

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.pages import PageRef
from dsocr_core.cluster.reader import Reader, ReaderError, WorkerJob
from dsocr_core.reading.fingerprints import code_version
from dsocr_core.runs.sharded import Marker
from dsocr_core.runs.storage import StorageError

T = TypeVar("T")
WAITS_S = (1, 2, 4, 8, 16, 32)
"""Before a store that did not take a shard is asked again; then the run ends, and nothing is lost by that."""


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
        self.reader = Reader(self.job, Path(self._folder.name))
        if self.job.code == code_version():  # else the first shard says what is wrong
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
        ordered, times = [read[page.number] for page in pages], (began, time.time())
        marker = self._repeated(lambda: self.output.write(shard, ordered, self.worker_name, times, again))
        marker = replace(marker, ended=time.time())
        self._repeated(lambda: self.output.commit(marker))
        return marker

    def _repeated(self, do: Callable[[], T]) -> T:
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
