"""Runs over a local cluster of real processes, with a stand-in for the engine."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from distributed import Client
from rich.console import Console

from dsocr_core.cluster.job import Job
from dsocr_core.cluster.local import local_cluster
from dsocr_core.cluster.output import Output
from dsocr_core.cluster.reader import WorkerJob
from dsocr_core.cluster.run import Driver
from dsocr_core.cluster.status import ClusterProgress, Figures, read_status
from dsocr_core.runs.sharded import Marker, PageReading
from dsocr_core.settings import Settings

STAND_IN = "tests.support.stand_in_reader"
WORKER = {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}


def make_pages(folder: Path, count: int, special: Mapping[int, str] | None = None) -> None:
    """Pages that a stand-in reads; `special` says what some of them do instead."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        text = (special or {}).get(number, f"page {number}")
        (folder / f"{number:05d}.png").write_text(text)


class Heard(ClusterProgress):
    """What the driver says to people; `on_commit` is called after each commit, on the driver's thread."""

    def __init__(self, on_commit: Callable[[Figures], None] = lambda figures: None) -> None:
        super().__init__(Console(file=io.StringIO()))
        self.on_commit = on_commit
        self.words: list[str] = []

    def committed(self, figures: Figures) -> None:
        super().committed(figures)
        self.on_commit(figures)

    def say(self, words: str) -> None:
        self.words.append(words)


def job_for(folder: Path | Sequence[str], shard_pages: int = 4) -> Job:
    inputs = (str(folder),) if isinstance(folder, Path) else tuple(folder)
    return Job.of(Settings(preset="tiny"), inputs, shard_pages)


def drive(
    client: Client,
    job: Job,
    location: str,
    heard: Heard | None = None,
    limits: tuple[float, int] = (60.0, 0),
    **more: Any,
) -> Figures:
    """One run of the driver."""
    output = Output(location)
    output.begin(job)
    work = WorkerJob(f"test-{job.digest[:8]}", location, job.settings, job.code, None, *limits, STAND_IN)
    Driver(client, job, output, work, heard or Heard(), threading.Event(), **more).run()
    return read_status(output)


def cluster(workers: int) -> Any:
    return local_cluster([WORKER] * workers)


def readings(location: str) -> list[PageReading]:
    """Every visible page in order."""
    output = Output(location)
    return [page for marker in sorted_markers(output) for page in output.pages(marker)]


def sorted_markers(output: Output) -> list[Marker]:
    return sorted(output.markers(output.marker_names().values()), key=lambda marker: marker.index)


def check_exactly_once(location: str, count: int, special: Mapping[int, str] | None = None) -> None:
    """Every page once, with its own text; those that are special as they are, and nothing half-written."""
    found = readings(location)
    assert [page.number for page in found] == list(range(count))
    for page in found:
        assert Path(page.name).stem == f"{page.number:05d}"
        if page.number not in (special or {}):
            assert page.result is not None and page.result.text_raw == f"page {page.number}", page
    output = Output(location)
    assert output.clear_attempts() == 0, "files that no marker names are left"
    assert json.loads(output.store.read("plan/complete.json") or b"")["pages"] == count
