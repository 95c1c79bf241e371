"""`--cluster`: pages through workers of Dask, on this machine or behind a scheduler; outputs compared."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType

from dsocr_core.base.console import FAILED, OK, SafeConsole
from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.answers import Answer, Compared, cancelled_by_interrupt
from dsocr_core.reading.parity_records import VERDICT_WORDS, VERDICTS
from dsocr_core.reading.records import SIDES
from dsocr_core.settings import Settings, SettingsError, settings_of

if TYPE_CHECKING:
    from distributed import Client

    from dsocr_core.cli.compare import CompareOptions
    from dsocr_core.cli.run import RunOptions
    from dsocr_core.cluster.compare import Compared as ComparedOutputs

LOCAL = "local"
READER_MODULE = "dsocr_core.cluster.reader_process"
"""Module that the reader processes run."""
_MOST_PROCESSES = 32


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
        name = f"dsocr-{job.digest[:12]}"
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


# --- two outputs compared -------------------------------------------------------------------------


def compare_outputs(
    settings: Settings, chosen: CompareOptions, record_in: str | None, typed: str
) -> Compared:
    """Compare two outputs; the worst pages are a run of the history at `record_in`.

    Raises DsocrError, Cancelled.
    """
    from dsocr_core.cluster import compare
    from dsocr_core.cluster.output import Output

    output_a, output_b = (Output(absolute(name)) for name in chosen.images)
    differing = compare.settings_that_differ(output_a, output_b)
    spawn = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
    # Ctrl-C is for the command, and a terminal sends it to all.
    ignore = (signal.SIGINT, signal.SIG_IGN)
    pool = ProcessPoolExecutor(min(os.cpu_count() or 1, _MOST_PROCESSES), spawn, signal.signal, ignore)
    status = SafeConsole(stderr=True).status("comparing")
    with cancelled_by_interrupt() as cancel, pool as executor, status:

        def show(so_far: ComparedOutputs) -> None:
            status.update(f"{so_far.pages:,} pages compared, {so_far.failed:,} failed parity")

        compared = compare.compare_outputs(output_a, output_b, settings.tolerance, executor, cancel, show)
    run_id = None
    if record_in is not None:
        a, b = (settings_of(output.run()["settings"]) for output in (output_a, output_b))
        a = replace(a, history=record_in, tolerance=settings.tolerance)
        both = replace(a, a=a.a or a.engine, b=b.a or b.engine)
        run_id = compare.record_worst(both, output_a, output_b, compared.worst, typed)
    found = _listed(compared, differing, chosen.images, run_id if chosen.save else None)
    recorded = [f"recorded as run {run_id}, with the {len(compared.worst):,} worst pages"] if run_id else []
    return replace(found, runs=[run_id] if run_id else [], recorded=recorded)


def _listed(
    compared: ComparedOutputs, differing: list[str], names: tuple[str, ...], run_id: str | None
) -> Compared:
    """Outcome of two outputs, as it is printed."""
    from dsocr_core.read.report import PARITY_WORDS, SHOWN, parity_table

    verdicts = {verdict: compared.verdicts[verdict] for verdict in VERDICTS}
    tokens, rate = compared.tokens_equal, compared.mean_error_rate
    figures = ("pages", "not_compared", "passed", "failed", "worst")
    values = dict(zip(SIDES, names, strict=True)) | {name: getattr(compared, name) for name in figures} | {
        "verdicts": verdicts, "character_error_rate": rate, "tokens_equal": tokens[True] if tokens else None,
        "settings_that_differ": differing, "run_id": run_id,
    }  # fmt: skip
    worst = [
        (
            row["page"],
            dict(row, boxes={side: row[f"boxes_{side}"] for side in SIDES}, margins=None, causes=[]),
        )
        for row in compared.worst[:SHOWN]
    ]
    table: list[RenderableType] = [parity_table(worst), PARITY_WORDS] if worst else []
    counts = (f"{count:,} {VERDICT_WORDS[verdict]}" for verdict, count in verdicts.items())
    shown: list[RenderableType] = [
        *table,
        f"A: {names[0]}   B, the reference: {names[1]}",
        *(f"settings differ: {words}" for words in differing),
        f"{compared.pages:,} pages: {', '.join(counts)}; {compared.not_compared:,} are not read by both",
        *([f"tokens equal: {tokens[True]:,} of {tokens.total():,}"] if tokens else []),
        *([] if rate is None else [f"mean CER: {rate:.3%}"]),
    ]
    return Compared(compared.failed, values, shown)
