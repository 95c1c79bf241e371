"""`--cluster`: pages through workers of Dask, on this machine or behind a scheduler."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.console import Console

from dsocr_core.base.console import FAILED, OK, SafeConsole, print_json
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import duration
from dsocr_core.base.specs.kinds import CommandSpec
from dsocr_core.base.system import cores
from dsocr_core.cli.options import require_packages
from dsocr_core.cli.read import PageOptions
from dsocr_core.settings import Settings, SettingsError

LOCAL = "local"
REQUIREMENTS = "requirements-cluster.txt"
READER_MODULE = "dsocr_core.cluster.reader_process"
"""Module that the reader processes run."""
_INTERRUPTED = 130


@dataclass(frozen=True, kw_only=True)
class ClusterOptions(PageOptions):
    """Pages, and the cluster that reads them where one is named.

    Args:
        cluster: local, or the address of a Dask scheduler such as tcp://HOST:8786; see docs/scale.md
        workers: of a local cluster: worker processes (default: one a GPU, or one a CPU core)
        shard_pages: pages that are read and committed together by a cluster
        redo: `failed`: read pages again that failed or were quarantined, each alone
        fallback_percent: end a run over a cluster when more pages than that share have failed
        page_limit: seconds of a cluster's worker in which no page ends before its process is ended
        page_memory: GiB that the process of a cluster's worker may take (default: its share of the machine's)
    """

    cluster: str | None = None
    workers: int | None = None
    shard_pages: int = 256
    redo: str | None = None
    fallback_percent: Annotated[float, 0] = 10.0
    page_limit: float = 300.0
    page_memory: float | None = None

    def __post_init__(self) -> None:
        """Raises SettingsError for a cluster that cannot be, DsocrError without its packages."""
        if self.cluster is None:
            return
        if self.cluster != LOCAL and "://" not in self.cluster:
            raise SettingsError(
                f"--cluster is '{self.cluster}': give local, or an address like tcp://HOST:8786"
            )
        if self.cluster != LOCAL and self.workers:
            raise SettingsError("--workers is for --cluster local: a scheduler knows its own")
        require_packages("a cluster", ("distributed", "psutil"), REQUIREMENTS)

    def check_reading(self) -> None:
        """Raises SettingsError for options that reading over a cluster does not take."""
        if not self.out:
            raise SettingsError("--cluster needs --out: a directory that all workers see, or a URL")
        if self.pages:
            raise SettingsError("--pages is for one process: give --cluster a manifest of the files to read")
        if self.pages_together is not None:
            raise SettingsError("--pages-together is for one process: leave --cluster out")
        if self.redo not in (None, "failed"):
            raise SettingsError(f"--redo is '{self.redo}': give failed")
        if self.fallback_percent > 100:
            raise SettingsError(f"--fallback-percent is {self.fallback_percent:g}: give 0 to 100")


def run(
    settings: Settings,
    chosen: ClusterOptions,
    batch: int | None,
    artifacts: bool,
    console: Console,
    typed: str,
) -> int:
    """Read the pages; returns the exit code. Raises DsocrError, Cancelled."""
    from dsocr_core.cluster.output import Output
    from dsocr_core.cluster.progress import ClusterProgress, worker_table
    from dsocr_core.cluster.status import record_figures

    chosen.check_reading()
    location = absolute(str(chosen.out))
    output = Output(location)
    pages = Pages.of(settings, chosen, output, batch)
    with (
        ClusterProgress(SafeConsole(stderr=True)) as progress,
        stopped_by_interrupt() as cancel,
        workers_of(chosen, settings.device) as workers,
    ):
        say_where(workers.client, progress)
        ended, figures = pages.read(workers, progress, cancel)
        if artifacts and ended is None:
            _write_artifacts(output, workers, progress, cancel)
    notes = None if ended is None else str(ended)
    if chosen.save and figures.pages:
        run_id = record_figures(settings, pages.job.record(typed, notes), figures, location)
        console.print(f"recorded as run {run_id}", markup=False)
    if ended is not None:
        raise ended
    return _report(output, figures, worker_table(figures), chosen, console)


@dataclass(frozen=True)
class Workers:
    """A cluster, and what the process of a worker may take."""

    client: Any
    page_memory_gib: float

    @property
    def in_flight(self) -> int:
        """Shards that are handed out together, where they are no pages to read."""
        return 2 * max(1, len(self.client.nthreads()))


@contextlib.contextmanager
def workers_of(chosen: ClusterOptions, device: str) -> Iterator[Workers]:
    """The cluster that the options name, until the block ends. Raises DsocrError."""
    from dsocr_core.cluster.local import environments, joined, local_cluster, visible_gpus

    if chosen.cluster == LOCAL:
        each = environments(chosen.workers, visible_gpus(), cores(), device)
        with local_cluster(each) as client:
            yield Workers(client, chosen.page_memory or _memory_gib() / len(each))
    else:
        with joined(str(chosen.cluster)) as client:
            yield Workers(client, chosen.page_memory or 0.0)


@dataclass(frozen=True)
class Pages:
    """The pages that one backend is to read into an output."""

    job: Any
    output: Any
    chosen: ClusterOptions
    goes_on: bool
    """True where the output was begun before."""
    batch: int | None = None

    @classmethod
    def of(cls, settings: Settings, chosen: ClusterOptions, output: Any, batch: int | None = None) -> Pages:
        """Raises OtherJob where the output is another run's, and where there is nothing to redo."""
        from dsocr_core.cluster.job import Job

        if chosen.redo and output.document("run.json") is None:
            where = output.store.location
            raise DsocrError(f"{where}: no run is there whose failed pages could be read again")
        if isinstance(command := settings.spec("a"), CommandSpec):  # said now, not by a worker an hour later
            from dsocr_core.backends.command import template_words

            template_words(command.target)
        job = Job.of(settings, tuple(map(absolute, chosen.images)), chosen.shard_pages)
        return cls(job, output, chosen, output.begin(job), batch)

    def read(self, workers: Workers, progress: Any, cancel: threading.Event) -> tuple[DsocrError | None, Any]:
        """Read what is not committed yet; what ended the run before its time, and its figures."""
        from dsocr_core.cluster.driver import Driver, Order
        from dsocr_core.cluster.reader import Limits
        from dsocr_core.cluster.worker import WorkerJob

        job, chosen = self.job, self.chosen
        if self.goes_on:
            progress.said("going on with the run that is there")
        limits = Limits(chosen.page_limit, int(workers.page_memory_gib * 2**30))
        work = WorkerJob(
            f"dsocr-{job.digest[:12]}", self.output.store.location, job.settings, job.code,
            self.batch, limits, READER_MODULE,
        )  # fmt: skip
        order = Order(work, chosen.fallback_percent, chosen.redo is not None)
        driver = Driver(workers.client, job, self.output, order, progress)
        try:
            driver.run(cancel)
        except DsocrError as error:
            return error, driver.figures
        return None, driver.figures


def _report(output: Any, figures: Any, table: Any, chosen: ClusterOptions, console: Console) -> int:
    from dsocr_core.cluster.status import StatusReader, causes_words

    status = StatusReader(output).read()
    if chosen.json:
        print_json(status.to_json())
    else:
        if figures.workers:
            console.print(table)
        for name in figures.stragglers:
            worker = figures.workers[name]
            console.print(f"straggler {name}: {worker.pages_per_s or 0:.3g} pages/s", markup=False)
        failed = status.failed + status.quarantined
        words = f"{status.done:,} of {status.pages:,} pages read"
        if failed:
            words += f", {failed:,} failed: {causes_words(figures.causes)}; --redo failed reads them again"
        console.print(words, markup=False)
        console.print(f"written to {chosen.out}", markup=False)
    return OK if status.complete and not status.failed and not status.quarantined else FAILED


def _write_artifacts(output: Any, workers: Workers, progress: Any, cancel: threading.Event) -> None:
    """Raises DsocrError, Cancelled."""
    from dsocr_core.cluster.artifacts import write_artifacts

    progress.said("writing artifacts")
    with workers.client.get_executor(pure=False) as executor:
        written = write_artifacts(output, executor, workers.in_flight, cancel=cancel)
    progress.said(f"artifacts of {written.pages:,} pages in {written.shards:,} archives")
    if written.failures:
        named = "; ".join(written.named[:3])
        progress.said(f"{written.failures:,} pages have none: {named}")


def say_where(client: Any, progress: Any) -> None:
    link = client.dashboard_link if importlib.util.find_spec("bokeh") else ""
    progress.said(f"cluster {client.scheduler.address}" + (f", dashboard {link}" if link else ""))


def absolute(given: str) -> str:
    """Workers may have been started in another folder."""
    return given if "://" in given else str(Path(given).absolute())


def _memory_gib() -> float:
    """Give what workers may share: nine tenths of the machine's memory."""
    import psutil

    return float(0.9 * psutil.virtual_memory().total / 2**30)


@contextlib.contextmanager
def stopped_by_interrupt() -> Iterator[threading.Event]:
    """An event that the first Ctrl-C sets; the second one ends this process at once."""
    cancel = threading.Event()

    def stop(*_: object) -> None:
        if cancel.is_set():
            os._exit(_INTERRUPTED)
        cancel.set()

    previous = signal.signal(signal.SIGINT, stop)
    try:
        yield cancel
    finally:
        signal.signal(signal.SIGINT, previous)


def print_status(directory: str, json: bool, console: Console) -> int:
    """Print how far a run over a cluster is, from its output."""
    from dsocr_core.cluster.output import Output
    from dsocr_core.cluster.progress import worker_table
    from dsocr_core.cluster.status import StatusReader, causes_words

    reader = StatusReader(Output(directory))
    state, figures = reader.read(), reader.figures
    if json:
        print_json(state.to_json())
        return OK
    words = f"{state.done:,} of {state.pages:,} pages read"
    if state.pages_per_s:
        words += f", {state.pages_per_s:.3g} pages/s"
        if not state.complete:
            words += f", {duration(1e3 * state.left / state.pages_per_s)} left at that speed"
    console.print(words, markup=False)
    if figures.causes:
        failed = f"{state.failed:,} failed, {state.quarantined:,} quarantined"
        console.print(f"{failed}: {causes_words(figures.causes)}", markup=False)
    if figures.workers:
        console.print(worker_table(figures))
    console.print("complete" if state.complete else "not complete", markup=False)
    return OK
