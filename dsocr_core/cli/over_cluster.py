"""`--cluster`: pages through workers of Dask, on this machine or behind a scheduler."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr_core.base.console import FAILED, OK, SafeConsole
from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.answers import Answer, cancelled_by_interrupt
from dsocr_core.settings import Settings, SettingsError

if TYPE_CHECKING:
    from distributed import Client

    from dsocr_core.cli.run import RunOptions

LOCAL = "local"
READER_MODULE = "dsocr_core.cluster.reader_process"
"""Module that the reader processes run."""


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Options of a run over a cluster.

    Args:
        workers: of a local cluster: worker processes (default: one a GPU, or one a CPU core)
        shard_pages: pages that are read and committed together by a cluster
        redo: `failed`: read shards again in which pages failed or were quarantined
        page_limit: seconds of a cluster's worker in which no page ends before its process is ended
        page_memory: GiB that the process of a cluster's worker may take (default: its share of the machine's)
    """

    workers: int | None = None
    shard_pages: int = 256
    redo: str | None = None
    page_limit: float = 300.0
    page_memory: float | None = None

    def check(self, chosen: RunOptions) -> None:
        """Raises SettingsError for options that do not go together, DsocrError without Dask's packages."""
        if missing := [name for name in ("distributed", "psutil") if find_spec(name) is None]:
            needs = " and ".join(missing)
            raise DsocrError(f"a cluster needs {needs}: pip install -r requirements-cluster.txt")
        cluster, local = str(chosen.cluster), chosen.cluster == LOCAL
        for problem, words in (
            (chosen.resume, "--resume is for one process: the same --out goes on by itself"),
            (not local and "://" not in cluster, f"--cluster is '{cluster}': give local, or tcp://HOST:8786"),
            (self.workers and not local, "--workers is for --cluster local: a scheduler knows its own"),
            (not chosen.out, "--cluster needs --out: a directory that all workers see, or a URL"),
            (chosen.pages, "--pages is for one process: give --cluster a manifest of the files to read"),
            (chosen.pages_together, "--pages-together is for one process: leave --cluster out"),
            (self.redo not in (None, "failed"), f"--redo is '{self.redo}': give failed"),
            (chosen.save, "--save is for one process: history import takes a complete --out as a run"),
        ):
            if problem:
                raise SettingsError(words)


def run(settings: Settings, chosen: RunOptions, of: ClusterOptions) -> Answer:
    """Read the pages; Raises DsocrError, Cancelled."""
    of.check(chosen)
    from dsocr_core.cluster.job import Job
    from dsocr_core.cluster.output import Output
    from dsocr_core.cluster.run import Driver
    from dsocr_core.cluster.status import ClusterProgress, read_status, status_line
    from dsocr_core.cluster.worker import WorkerJob

    location = absolute(str(chosen.out))
    output = Output(location)
    if of.redo and output.document("run.json") is None:
        raise DsocrError(f"{location}: no run is there whose failed pages could be read again")
    if (command := settings.spec("a")).kind == "command":  # said now, not by a worker an hour later
        from dsocr_core.backends.command import template_words

        template_words(command.target)
    job = Job.of(settings, tuple(map(absolute, chosen.images)), of.shard_pages)
    output.begin(job)
    with (
        ClusterProgress(SafeConsole(stderr=True)) as progress,
        cancelled_by_interrupt() as cancel,
        _workers(str(chosen.cluster), of, settings.device) as (client, memory_gib),
    ):
        limits = of.page_limit, int(memory_gib * 2**30)
        name = job.name_at(location)
        work = WorkerJob(name, location, job.settings, job.code, chosen.batch, *limits, READER_MODULE)
        driver = Driver(client, job, output, work, progress, cancel, of.redo is not None)
        driver.run()
    figures = read_status(output)
    redo = "; --redo failed reads pages again that failed" if figures.causes else ""
    lines = f"{status_line(figures)}{redo}", f"written to {chosen.out}"
    whole = figures.complete and not figures.failed and not figures.quarantined
    return Answer(figures.document(), lines, OK if whole else FAILED)


@contextlib.contextmanager
def _workers(cluster: str, of: ClusterOptions, device: str) -> Iterator[tuple[Client, float]]:
    """A cluster, and the GiB that a process of a worker may take; 0 is no limit. Raises DsocrError."""
    import psutil
    from dask.system import CPU_COUNT

    from dsocr_core.cluster.local import environments, joined, local_cluster, visible_gpus

    if cluster != LOCAL:
        with joined(cluster) as client:
            yield client, of.page_memory or 0.0
        return
    each = environments(of.workers, visible_gpus(), CPU_COUNT, device)
    with local_cluster(each) as client:  # workers share nine tenths of the machine's memory
        yield client, of.page_memory or 0.9 * psutil.virtual_memory().total / 2**30 / len(each)


def absolute(name: str) -> str:
    """Absolute path of a name, or its URL: workers may have been started in another folder."""
    return name if "://" in name else str(Path(name).absolute())


def status(directory: str) -> Answer:
    """Tell how far a run over a cluster is, from its output."""
    from dsocr_core.cluster.output import Output
    from dsocr_core.cluster.status import read_status, status_line

    figures = read_status(Output(directory))
    return Answer(figures.document(), (status_line(figures), "not " * (not figures.complete) + "complete"))
