"""Runs over a local cluster of real processes, with a stand-in for the engine."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from pathlib import Path

from distributed import Client
from rich.console import Console

from dsocr_core.cluster.job import Job
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.run import Driver
from dsocr_core.cluster.status import ClusterProgress, Figures, read_status
from dsocr_core.cluster.worker import WorkerJob
from dsocr_core.settings import Settings
from tests.cluster.made_up_output import Special

STAND_IN = "tests.cluster.stand_in_reader"
WORKER = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def make_pages(folder: Path, count: int, special: Special | None = None) -> None:
    """Pages that a stand-in reads."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number:05d}.png").write_text((special or {}).get(number, f"page {number}"))


class Heard(ClusterProgress):
    """What the driver says to people; `on_commit` is called after each commit, on the driver's thread."""

    def __init__(self, on_commit: Callable[[Figures], None] = lambda figures: None) -> None:
        super().__init__(Console(file=io.StringIO()))
        self.on_commit, self.words = on_commit, list[str]()

    def committed(self, figures: Figures) -> None:
        self.on_commit(figures)

    def say(self, words: str) -> None:
        self.words.append(words)


def job_for(folder: Path) -> Job:
    return Job.of(Settings(preset="tiny"), (str(folder),), 4)


def drive(
    client: Client, job: Job, location: str, heard: Heard | None = None,
    limits: tuple[float, int] = (60.0, 0), redo: bool = False,
) -> Figures:  # fmt: skip
    """One run of the driver."""
    output = Output(location)
    output.begin(job)
    work = WorkerJob(f"test-{job.digest[:8]}", location, job.settings, job.code, None, *limits, STAND_IN)
    Driver(client, job, output, work, heard or Heard(), threading.Event(), redo).run()
    return read_status(output)
