"""`--cluster`: pages through workers of Dask, on this machine or behind a scheduler."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rich.console import Console

from dsocr_core.base.console import FAILED, OK, SafeConsole, print_json
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.specs.kinds import CommandSpec
from dsocr_core.base.system import cores
from dsocr_core.cli.options import require_packages
from dsocr_core.cli.read import PageOptions
from dsocr_core.settings import Settings, SettingsError, history_location

if TYPE_CHECKING:
    from distributed import Client

    from dsocr_core.cluster.status import Figures
    from dsocr_core.runs.record import RunRecord

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


def run(settings: Settings, chosen: ClusterOptions, batch: int | None, console: Console, typed: str) -> int:
    """Read the pages; returns the exit code. Raises DsocrError, Cancelled."""
    from dsocr_core.cluster.job import Job
    from dsocr_core.cluster.output import Output
    from dsocr_core.cluster.progress import ClusterProgress, status_line, worker_table
    from dsocr_core.cluster.reader import Limits
    from dsocr_core.cluster.run import Order
    from dsocr_core.cluster.run import run as read_over_cluster
    from dsocr_core.cluster.status import Figures, read_status
    from dsocr_core.cluster.worker import WorkerJob

    chosen.check_reading()
    location = absolute(str(chosen.out))
    output = Output(location)
    if chosen.redo and output.document("run.json") is None:
        raise DsocrError(f"{location}: no run is there whose failed pages could be read again")
    if isinstance(command := settings.spec("a"), CommandSpec):  # said now, not by a worker an hour later
        from dsocr_core.backends.command import template_words

        template_words(command.target)
    job = Job.of(settings, tuple(map(absolute, chosen.images)), chosen.shard_pages)
    goes_on, figures = output.begin(job), Figures()
    ended: DsocrError | None = None
    with (
        ClusterProgress(SafeConsole(stderr=True)) as progress,
        stopped_by_interrupt() as cancel,
        _workers(chosen, settings.device) as (client, page_memory_gib),
    ):
        progress.said(f"cluster {client.scheduler.address}")
        if goes_on:
            progress.said("going on with the run that is there")
        limits = Limits(chosen.page_limit, int(page_memory_gib * 2**30))
        name = f"dsocr-{job.digest[:12]}"
        work = WorkerJob(name, location, job.settings, job.code, batch, limits, READER_MODULE)
        order = Order(work, chosen.fallback_percent, chosen.redo is not None)
        try:
            read_over_cluster(client, job, output, order, progress, figures, cancel)
        except DsocrError as error:
            ended = error
    if chosen.save and figures.pages:
        record = job.record(typed, None if ended is None else str(ended))
        _record(settings, record, figures, location)
        console.print(f"recorded as run {record.id}", markup=False)
    if ended is not None:
        raise ended
    status, _ = read_status(output)
    if chosen.json:
        print_json(status.to_json())
    else:
        console.print(worker_table(figures))
        redo = "; --redo failed reads pages again that failed" if figures.causes else ""
        console.print(f"{status_line(status)}{redo}", markup=False)
        console.print(f"written to {chosen.out}", markup=False)
    return OK if status.complete and not status.failed and not status.quarantined else FAILED


def _record(settings: Settings, record: RunRecord, figures: Figures, output: str) -> None:
    """Write a run of the history with the figures of an output, whose pages stay there."""
    from dsocr_core.runs.run_directory import RunDirectory

    record = replace(record, environment=record.environment | {"cluster": figures.facts(output)})
    with RunDirectory.create(history_location(settings), record) as writer:
        writer.add_rows("timings", figures.mean_times(settings.backend("a")))


@contextlib.contextmanager
def _workers(chosen: ClusterOptions, device: str) -> Iterator[tuple[Client, float]]:
    """The cluster that the options name, and the GiB that a process of a worker may take; 0 is no limit.

    Raises DsocrError.
    """
    import psutil

    from dsocr_core.cluster.local import environments, joined, local_cluster, visible_gpus

    if chosen.cluster == LOCAL:
        each = environments(chosen.workers, visible_gpus(), cores(), device)
        with local_cluster(each) as client:
            # Workers share nine tenths of the machine's memory.
            share = 0.9 * psutil.virtual_memory().total / 2**30 / len(each)
            yield client, chosen.page_memory or share
    else:
        with joined(str(chosen.cluster)) as client:
            yield client, chosen.page_memory or 0.0


def absolute(given: str) -> str:
    """Workers may have been started in another folder."""
    return given if "://" in given else str(Path(given).absolute())


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
    from dsocr_core.cluster.progress import status_line, worker_table
    from dsocr_core.cluster.status import read_status

    state, figures = read_status(Output(directory))
    if json:
        print_json(state.to_json())
        return OK
    console.print(status_line(state), markup=False)
    if figures.workers:
        console.print(worker_table(figures))
    console.print("complete" if state.complete else "not complete", markup=False)
    return OK
