"""Parts that run in a Dask worker: a plugin that holds the reader, and the functions that the driver
submits.
"""

from __future__ import annotations

import platform
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from distributed import WorkerPlugin, get_worker

from dsocr_core.base.errors import Cancelled, DsocrError, one_line
from dsocr_core.cluster.local_files import LocalFiles
from dsocr_core.cluster.output import Output, marker_of, patiently
from dsocr_core.cluster.reader import MODULE, Limits, PieceRead, Reader, ReaderError
from dsocr_core.cluster.shards import PageRef
from dsocr_core.reading.fingerprints import code_version
from dsocr_core.runs.sharded import PageReading

TOLD_EVERY_S = 2.0
"""Seconds after which a worker says how many pages it has read."""


class PageSource(Protocol):
    """Reader of a worker's pages: `Reader`, or a stand-in that measures everything else."""

    def start(self) -> None: ...

    def read(self, pages: Sequence[PageRef], alone: bool = False) -> PieceRead: ...

    def stop(self) -> None: ...


@dataclass(frozen=True)
class WorkerJob:
    """Facts of a run that a worker must know."""

    name: str
    """Name of the plugin and of the topic that workers tell the driver on."""
    output: str
    settings: Mapping[str, Any]
    code: str
    batch: int | None = None
    limits: Limits = field(default_factory=Limits)
    module: str = MODULE
    """Module that the reader process runs."""
    told_every_s: float = TOLD_EVERY_S


def name_of(worker: Any) -> str:
    """Name it for people: local workers are numbered, others have their address or were given a name."""
    return worker.name if isinstance(worker.name, str) else f"{platform.node()}/{worker.name}"


class PagesPlugin(WorkerPlugin):  # type: ignore[misc]
    """Holds the warm engine of a worker for as long as the run lasts."""

    def __init__(
        self, job: WorkerJob, make_reader: Callable[[PagesPlugin], PageSource] | None = None
    ) -> None:
        self.job, self.name = job, job.name
        self._make_reader = make_reader or process_reader

    def setup(self, worker: Any) -> None:
        self.worker = worker
        self.worker_name = name_of(worker)
        self.cancel = threading.Event()
        self.output = Output(self.job.output)
        self._folder = tempfile.TemporaryDirectory(prefix="dsocr-pages-", dir=worker.local_directory)
        self.folder = Path(self._folder.name)
        self._telling, self._paused = threading.Lock(), 0
        self._told_at, self._read, self._failed = time.monotonic(), 0, 0
        self.reader = self._make_reader(self)
        if self.job.code == code_version():  # else the first piece says what is wrong
            self.reader.start()

    def teardown(self, worker: Any) -> None:
        self.stop()
        self._folder.cleanup()

    def stop(self) -> None:
        """Read nothing more; what is whole is still committed."""
        self.cancel.set()
        self.reader.stop()

    # --- what it tells the driver ---------------------------------------------------------------

    def on_page(self, page: PageReading) -> None:
        with self._telling:
            self._read += page.result is not None
            self._failed += page.result is None
            now = time.monotonic()
            if now - self._told_at < self.job.told_every_s:
                return
            read, failed, self._told_at = self._read, self._failed, now
            self._read = self._failed = 0
        self.tell({"read": read, "failed": failed})

    def on_pause(self, cause: str | None) -> None:
        """A shard waits, or goes on; said once, however many of them wait."""
        with self._telling:
            before, self._paused = self._paused, self._paused + (1 if cause else -1)
            if 0 not in (before, self._paused):
                return
        self.tell({"paused": cause})

    def tell(self, words: Mapping[str, Any]) -> None:
        # Dask puts the worker's address under "worker".
        self.worker.log_event(self.job.name, {"name": self.worker_name, **words})

    # --- work -----------------------------------------------------------------------------------

    def read(self, shard: str, pages: Sequence[PageRef], whole: bool, alone: bool) -> dict[str, Any]:
        """Read a piece; commit it where it is a whole shard, else leave its results as an attempt."""
        if self.job.code != code_version():
            raise ReaderError(
                f"worker {self.worker_name} has another version of this code; update it, then go on"
            )
        began = time.time()
        done = self.reader.read(pages, alone)
        outcome: dict[str, Any] = {
            "worker": self.worker_name, "began": began, "unread": list(done.unread),
            "started": list(done.started), "cause": done.cause,
        }  # fmt: skip
        if not done.pages:
            return outcome
        attempt = patiently(lambda: self.output.write_attempt(shard, done.pages), self.on_pause, self.cancel)
        marker = marker_of(shard, attempt, done.pages, self.worker_name, (began, time.time()))
        if whole and not done.unread:
            patiently(lambda: self.output.commit(marker), self.on_pause, self.cancel)
            return outcome | {"marker": asdict(marker)}
        return outcome | {"attempt": asdict(attempt), "ended": marker.ended}


def process_reader(plugin: PagesPlugin) -> PageSource:
    """The reader process, in the worker's own memory limit where the run has none."""
    job = plugin.job
    return Reader(job.settings, job.batch, job.limits, plugin.folder, job.module, plugin.on_page)


def _plugin(name: str) -> PagesPlugin:
    plugin = get_worker().plugins.get(name)
    if not isinstance(plugin, PagesPlugin):
        raise ReaderError("the run is over on this worker")
    return plugin


def read_piece(
    name: str, shard: str, pages: Sequence[Sequence[Any]], whole: bool, alone: bool
) -> dict[str, Any]:
    """A task: what became of a piece, with `fatal` where no page can be read here."""
    try:
        return _plugin(name).read(shard, [PageRef(*page) for page in pages], whole, alone)
    except Cancelled:
        return {"cancelled": True}
    except DsocrError as error:
        return {"fatal": str(error)}


def count_pdfs(name: str, paths: Sequence[str], dpi: int, max_pixels: int) -> list[int | None]:
    """A task: pages of each PDF, None for one that cannot be counted."""
    files = LocalFiles(_plugin(name).folder, dpi, max_pixels)
    counts: list[int | None] = []
    for path in paths:
        try:
            counts.append(files.pages_of(path))
        except DsocrError:
            counts.append(None)
        except OSError as error:
            raise DsocrError(f"{path}: {one_line(error)}") from error
    return counts


def stop_reading(name: str, dask_worker: Any) -> None:
    """Run on every worker at Ctrl-C."""
    plugin = dask_worker.plugins.get(name)
    if plugin is not None:
        plugin.stop()
