"""Parts that run in a Dask worker: the tasks that the driver submits, and the worker's reader process.

Two shards are read at the same time, so that the engine's batch never drains. When the reader process dies,
it is started again, and the pages that it had begun are read one by one, while nothing else is read. A page
that ends the process again is to blame.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import platform
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import dask
from distributed import WorkerPlugin, get_worker

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.base.child import Child, ChildGone, module_environment
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.base.system import memory_of
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.pages import PageReading, PageRef
from dsocr_core.reading.fingerprints import code_version
from dsocr_core.reading.records import result_from_jsonable
from dsocr_core.reading.writing import StorageError
from dsocr_core.runs.sharded import Marker

WAITS_S = (1, 2, 4, 8, 16, 32)
"""Seconds before each new try to write a shard. After the last one the run ends; it can be resumed."""
LOAD_LIMIT_S = 900.0
SHARDS_IN_FLIGHT = 2
"""Threads of a worker. While one shard ends the next begins, so that the batch never drains."""
MOST_STARTS = 3
"""Most starts of a process or worker that dies before it has begun a page."""
_TRIM = "MALLOC_TRIM_THRESHOLD_"
_LOOK_S, _STOP_S = 0.2, 5.0


@dataclass(frozen=True)
class WorkerJob:
    """Facts of a run for its workers. `name` is the plugin's, `module` is that of its reader process.

    The process is ended where no begun page ends within `page_limit_s`, or above `memory_bytes`; 0 is none.
    """

    name: str
    output: str
    settings: Mapping[str, Any]
    code: str
    batch: int | None = None
    page_limit_s: float = 300.0
    memory_bytes: int = 0
    module: str = "dsocr_core.cluster.reader_process"


class PagesPlugin(WorkerPlugin):  # type: ignore[misc]
    """Dask plugin that holds the warm engine of a worker while a run lasts."""

    def __init__(self, job: WorkerJob) -> None:
        self.job, self.name = job, job.name

    def setup(self, worker: Any) -> None:
        # Local workers have numbers, others their address or a name.
        self.worker_name = worker.name if isinstance(worker.name, str) else f"{platform.node()}/{worker.name}"
        self.cancel = threading.Event()
        self.output = Output(self.job.output)
        self._folder = tempfile.TemporaryDirectory(prefix="dsocr-pages-", dir=worker.local_directory)
        self.reader = Reader(self.job, Path(self._folder.name))
        if self.job.code == code_version():  # a fault is reported by the first shard
            self.reader.start()

    def teardown(self, worker: Any) -> None:
        self.stop()
        self._folder.cleanup()

    def stop(self) -> None:
        """Stop reading. Finished shards are still committed."""
        self.cancel.set()
        self.reader.stop()

    def read(self, shard: str, pages: Sequence[PageRef]) -> Marker:
        """Read a shard and commit it. Raises DsocrError, Cancelled."""
        if self.job.code != code_version():
            raise DsocrError(
                f"worker {self.worker_name} has another version of this code; update it, then go on"
            )
        began = time.time()
        read = self.reader.read(pages)
        times, marker = (began, time.time()), None
        for wait_s in (*WAITS_S, None):
            try:
                marker = marker or self.output.write(shard, read, self.worker_name, times)
                self.output.commit(marker)
                break
            except StorageError:
                if wait_s is None:
                    raise
                if self.cancel.wait(wait_s):
                    raise Cancelled from None
        assert marker is not None
        return marker


def read_shard(name: str, shard: str, pages: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """Dask task that reads a shard. Returns its marker, or `fatal` where this worker can read no page."""
    plugin = get_worker().plugins.get(name)
    try:
        if not isinstance(plugin, PagesPlugin):
            raise DsocrError("the run is over on this worker")
        return {"marker": asdict(plugin.read(shard, [PageRef(*page) for page in pages]))}
    except Cancelled:
        return {"cancelled": True}
    except DsocrError as error:
        return {"fatal": str(error)}


def stop_reading(name: str, dask_worker: Any) -> None:
    """Run on every worker at Ctrl-C."""
    plugin = dask_worker.plugins.get(name)
    if plugin is not None:
        plugin.stop()


# --- the reader process ---------------------------------------------------------------------------


@dataclass
class _Page:
    """A page that was sent to the process. Its reading is None until it has ended."""

    ref: PageRef
    began: bool = False
    reading: PageReading | None = None


class Reader:
    """The reader process of one worker, and the pages that it reads. Thread-safe."""

    def __init__(self, job: WorkerJob, folder: Path) -> None:
        """`folder` is where the process puts downloads."""
        self._job, self._folder = job, folder
        self._changed = threading.Condition()
        self._process: _Process | None = None
        self._stopped = False
        self._turns, self._only = threading.Semaphore(SHARDS_IN_FLIGHT), threading.Lock()
        self._numbers = itertools.count()

    def start(self) -> None:
        """Begin to load the model."""
        with self._changed:
            self._living()

    def read(self, pages: Sequence[PageRef], alone: bool = False) -> list[PageReading]:
        """Read pages, in any order: each gets a result, an error, or is quarantined.

        Raises DsocrError where no page can be read, Cancelled after `stop`.
        """
        found: list[PageReading] = []
        left, deaths = list(pages), 0
        while left:
            with self._turn(alone):
                sent, death = self._sent(left)
            found += [page.reading for page in sent if page.reading is not None]
            begun = [page.ref for page in sent if page.reading is None and page.began]
            left = [page.ref for page in sent if page.reading is None and not page.began]
            deaths = 0 if begun else deaths + 1
            if left and deaths == MOST_STARTS:
                raise DsocrError(f"the reader process ended {deaths} times before it began a page: {death}")
            for page in begun:
                if alone:
                    words = f"{death}; it ended 2 processes, the last one while it was read alone"
                    found.append(page.failed(words, quarantined=True))
                else:
                    found += self.read([page], alone=True)
        return found

    @contextlib.contextmanager
    def _turn(self, alone: bool) -> Iterator[None]:
        """Wait for a turn. Shards share the process; a page that is read alone takes all turns."""
        more: list[Any] = [self._only, *[self._turns] * (SHARDS_IN_FLIGHT - 1)] if alone else []
        with contextlib.ExitStack() as turns:
            for each in (*more, self._turns):
                turns.enter_context(each)
            yield

    def stop(self) -> None:
        """End the process and wait for it. Pages being read raise Cancelled."""
        with self._changed:
            self._stopped = True
            process, self._process = self._process, None
            self._changed.notify_all()
            if process is not None:
                process.end("stopped")
                # Its memory is free then, and its CPU time is counted with this process's.
                self._changed.wait_for(lambda: process.death, _STOP_S)

    def _sent(self, refs: Sequence[PageRef]) -> tuple[list[_Page], str | None]:
        """Send pages and wait until they have ended, or until the process has died."""
        with self._changed:
            process = self._living()
            self._changed.wait_for(lambda: process.ready or process.death or self._stopped)
            self._require_running()
            if process.fatal is not None:
                raise DsocrError(process.fatal)
            pages = {next(self._numbers): _Page(ref) for ref in refs}
            process.pages |= pages
        process.send(  # outside the lock: it waits for the process
            json.dumps({"id": number, "path": ref.path, "page": ref.page, "source": ref.source})
            for number, ref in zip(pages, refs, strict=True)
        )
        with self._changed:
            self._changed.wait_for(lambda: process.death or process.done(pages) or self._stopped)
            if not process.done(pages):
                self._require_running()
            return list(pages.values()), process.death

    def _living(self) -> _Process:
        """Process that runs, started if needed. Hold the lock. Raises Cancelled after `stop`."""
        self._require_running()
        if self._process is None or self._process.death:
            self._process = _Process(self._job, self._folder, self._changed)
        return self._process

    def _require_running(self) -> None:
        if self._stopped:
            raise Cancelled


class _Process:
    """One run of the reader process. Its fields change under the reader's lock."""

    def __init__(self, job: WorkerJob, folder: Path, changed: threading.Condition) -> None:
        self._job, self._changed = job, changed
        self.pages: dict[int, _Page] = {}
        """Pages that were sent and have not ended."""
        self.ready = False
        self.fatal: str | None = None
        self.death: str | None = None
        """Why it ended, in words; None while it runs."""
        self._ended_for: str | None = None
        self._heard = time.monotonic()
        command = [sys.executable, "-m", job.module]
        self._child = Child(command, module_environment(child_environment()), talks=True)
        threading.Thread(target=self._serve, daemon=True).start()
        about = {"settings": dict(job.settings), "batch": job.batch, "folder": str(folder)}
        self.send([json.dumps(about)])

    def done(self, numbers: Iterable[int]) -> bool:
        return not any(number in self.pages for number in numbers)

    def send(self, lines: Iterable[str]) -> None:
        with contextlib.suppress(ChildGone):  # `_serve` hears of it
            self._child.send("".join(f"{line}\n" for line in lines).encode())

    def end(self, why: str) -> None:
        self._ended_for = self._ended_for or why
        self._child.kill()

    def _serve(self) -> None:
        """Take messages and check the limits, until the process has ended."""
        look_at = 0.0
        try:
            while True:
                line = self._child.receive(_LOOK_S)
                message = None if line is None else parse_json(line)
                with self._changed:
                    if message is not None:
                        self._heard = time.monotonic()
                        self._take(message)
                        self._changed.notify_all()
                    if time.monotonic() >= look_at:
                        look_at = time.monotonic() + _LOOK_S
                        self._check()
        except (InvalidFile, AttributeError, LookupError, TypeError, ValueError):
            if self._child.alive:  # else it was cut off by its death
                self.end("wrote what is no message")
        except ChildGone:
            pass
        self._child.close()
        printed = self._child.last_line(200) if (self._child.returncode or 0) > 0 else ""
        with self._changed:
            self.death = self._ended_for or ": ".join(filter(None, (self._child.how_it_ended(), printed)))
            self._changed.notify_all()

    def _take(self, message: dict[str, Any]) -> None:
        """Take one message. Raises LookupError, TypeError or ValueError where it is malformed."""
        if "ready" in message or "fatal" in message:
            self.fatal = message.get("fatal")
            self.ready = True
            return
        number = int(message["began"] if "began" in message else message["id"])
        page = self.pages[number]
        if "began" in message:
            page.began = True
            return
        if "error" in message:
            page.reading = page.ref.failed(str(message["error"]))
        else:
            page.reading = page.ref.read(result_from_jsonable(message["result"]))
        del self.pages[number]

    def _check(self) -> None:
        """End the process when it takes more time or memory than a page may."""
        if self.ready and not any(page.began for page in self.pages.values()):
            self._heard = time.monotonic()
        limit_s = self._job.page_limit_s if self.ready else LOAD_LIMIT_S
        if time.monotonic() - self._heard > limit_s:
            what = "no page ended" if self.ready else "the model was not loaded"
            self.end(f"{what} within {limit_s:g} s")
        if (most := self._job.memory_bytes) and (memory_of(self._child.pid) or (0, 0))[1] > most:
            self.end(f"took more than {most / 2**30:.2g} GiB of memory")


def child_environment() -> dict[str, str]:
    """Environment of this process without the allocator's threshold that Dask sets.

    Dask makes the allocator of its workers give every free page back at once. An engine takes the same memory
    for each page it reads: with that setting a page cost a third more time (docs/performance.md).
    """
    by_dask = dask.config.get(f"distributed.nanny.pre-spawn-environ.{_TRIM}", None)
    is_dasks = os.environ.get(_TRIM) == str(by_dask)
    return {name: value for name, value in os.environ.items() if name != _TRIM or not is_dasks}
