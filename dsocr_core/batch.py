"""Many pages down one or both roads, into a run directory.

What a run holds in memory does not grow with its pages: a few pages are prepared ahead, each result is on
disk soon after it is there, and the report keeps figures.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.progress import Progress as RichProgress
from rich.table import Column
from rich.text import Text

from dsocr_core.ahead import PageReader, PreparedPages, ReadyPage, in_order
from dsocr_core.errors import Cancelled, DsocrError
from dsocr_core.history.record import record_run
from dsocr_core.inputs.documents import expand, load_image
from dsocr_core.outputs.artifacts import ArtifactError, RunDirectory
from dsocr_core.outputs.clean import clean_page
from dsocr_core.pipeline import Pipeline
from dsocr_core.records import CancelToken, Observer, OcrResult, Road, SilentObserver
from dsocr_core.report import PageOutcome, Report
from dsocr_core.results import Comparison
from dsocr_core.saved import CANCELLED, SavedRun
from dsocr_core.settings import RUNS_DIRECTORY
from dsocr_core.stages import Stage

log = logging.getLogger(__name__)

MOST_TOGETHER = 256
"""Pages that are read together where no number is given, if the device's memory holds them."""


def run_directory(command: str) -> Path:
    """A new run directory's place, named by the time of day in UTC."""
    return RUNS_DIRECTORY / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{command}"


def process(
    pipeline: Pipeline,
    images: Sequence[Path],
    roads: tuple[Road, ...],
    pages: str | None,
    directory: Path,
    progress: Progress,
    cancel: CancelToken | None = None,
    resume: bool = False,
    spans: int = 0,
    saved: SavedRun | None = None,
    batch: int | None = None,
    command: str | None = None,
) -> Report:
    """Read every page and write the run directory, each page as it finishes.

    The fast engine reads up to `batch` pages together (None: as many as there are, up to MOST_TOGETHER) and
    they finish in any order; everything else reads one after another, in order. `command` is the command line
    that makes the run again, for its record.

    With `resume` the pages that `directory` has from the same file under the same settings are skipped;
    those that failed there are tried again. A page that fails is recorded with its error and the others go
    on. Raises DsocrError for usage that concerns all pages (no such path, no checkpoint), Cancelled when
    `cancel` is set: what was finished by then is written.
    """
    settings = pipeline.settings
    if resume and not directory.is_dir():
        raise DsocrError(f"{directory}: no such run directory; give the one to go on with, or --out")
    found = expand(images, pages, directory / "pages", settings.pdf_dpi, settings.max_pixels)
    # What is wrong for every page is said once, before the first one.
    pipeline.check(roads)
    for road in roads:
        pipeline.backend(road)
    record = saved.record if saved is not None else record_run(settings, (), command)
    run = RunDirectory(directory, record.to_json())
    done = _done(run, roads) if resume else frozenset()
    reader = PageReader(pipeline, found, roads, done)
    report = Report(roads, spans)
    progress.start(len(found))
    sink = _Sink(pipeline, roads, run, report, progress, saved)
    slots = slots_for(len(found), batch) if roads == ("ours",) and pipeline.reads_together else 1
    try:
        if slots > 1:
            _together(sink, reader, len(found), slots, cancel)
        else:
            _one_by_one(sink, reader, len(found), cancel)
    except Cancelled:
        run.note(CANCELLED)
        raise
    if done and not report.skipped:
        log.warning("%s: none of its pages was read from these files under these settings", directory)
    if report.read and not report.boxes:
        log.warning("no page of this run has a box; check with: python -m dsocr_core compare %s", images[0])
    return report


def slots_for(pages: int, batch: int | None) -> int:
    """How many pages to read together: a power of two where it is not said, so that runs are alike."""
    most = batch or MOST_TOGETHER
    return max(1, min(most, 1 << max(0, pages - 1).bit_length()))


def _done(run: RunDirectory, roads: tuple[Road, ...]) -> Collection[tuple[str, str, str]]:
    run.repair(roads)
    return run.done(roads)


# --- its turn -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Sink:
    """Where what became of a page goes: the run directory, the history, the report."""

    pipeline: Pipeline
    roads: tuple[Road, ...]
    run: RunDirectory
    report: Report
    progress: Progress
    saved: SavedRun | None

    def skip(self) -> None:
        self.report.skipped += 1
        self.progress.skip()

    def settle(self, page: ReadyPage, comparison: Comparison | None, error: str | None) -> None:
        """Write a page that was read, or why it was not."""
        if comparison is not None:
            try:
                self._write(page, comparison)
            except DsocrError as failure:
                comparison, error = None, str(failure)
        errors = comparison.errors if comparison else dict.fromkeys(self.roads, error or "")
        if self.saved is not None and comparison is None:
            self.saved.add_failure(page.source, self.roads, error or "")
        for road, message in errors.items():
            _record_failure(self.run, road, page, message)
        if comparison and errors:
            error = "; ".join(f"{road}: {message}" for road, message in errors.items())
        self.report.add(PageOutcome(page.source, comparison, error))
        self.progress.advance()

    def _write(self, page: ReadyPage, comparison: Comparison) -> None:
        """Raises DsocrError."""
        assert page.request is not None and page.keys is not None
        settings = self.pipeline.settings
        picture = page.prepared.picture if page.prepared is not None else page.picture
        results = [result for result in (comparison.ours, comparison.vendor) if result is not None]
        clean = None
        if results:
            picture = picture or load_image(page.request.image, settings.max_pixels)
            clean = clean_page(page.request.image, picture) if settings.clean_pages else None
        for result in results:
            assert picture is not None
            self.run.add(result, picture, page.keys[result.road], clean)
        if self.saved is not None:
            self.saved.add(page.source, comparison, picture, clean)


def _one_by_one(sink: _Sink, reader: PageReader, count: int, cancel: CancelToken | None) -> None:
    for page in in_order(reader.read, count):
        if cancel is not None and cancel.is_set():
            raise Cancelled
        if page.done:
            sink.skip()
            continue
        comparison: Comparison | None = None
        error = page.error
        if page.request is not None and error is None:
            observers = {road: sink.progress.observer(f"{page.source} {road}") for road in sink.roads}
            try:
                for road in sink.roads:
                    read = sink.pipeline.compare(
                        page.request, (road,), observers, cancel, prepared=page.prepared
                    )
                    comparison = comparison.joined(read) if comparison else read
            except Cancelled:
                if comparison is not None:  # a road was through
                    sink.settle(page, comparison, None)
                raise
            except DsocrError as failure:
                error = str(failure)
        sink.settle(page, comparison, error)


def _together(sink: _Sink, reader: PageReader, count: int, slots: int, cancel: CancelToken | None) -> None:
    """All pages through the fast engine's slots, written in the order they end."""
    one_at_a_time = threading.Lock()  # pages at fault are heard of on another thread than those that ended

    def on_other(page: ReadyPage) -> None:
        with one_at_a_time:
            sink.skip() if page.done else sink.settle(page, None, page.error)

    def on_result(page: object, outcome: OcrResult | DsocrError) -> None:
        assert isinstance(page, ReadyPage) and page.request is not None
        with one_at_a_time:
            if isinstance(outcome, DsocrError):
                sink.settle(page, None, str(outcome))
            else:
                sink.settle(page, Comparison(page.request, outcome), None)

    with PreparedPages(reader.read, count, on_other) as source:
        sink.pipeline.read_together(source, on_result, slots, cancel)


def _record_failure(run: RunDirectory, road: Road, page: ReadyPage, error: str) -> None:
    try:
        run.add_failure(road, page.source, page.request.image if page.request else None, error)
    except ArtifactError as failure:  # a full disk, say: the report still has the page's own error
        log.warning("%s", failure)


# --- progress -------------------------------------------------------------------------------------


class Progress:
    """A bar on a terminal, one for all pages; silent where nobody looks."""

    def __init__(self, console: Console) -> None:
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            _PagesPerSecond(Column(no_wrap=True)),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("pages", total=None)
        self._left = 0

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def start(self, count: int) -> None:
        self._left = count
        self._bar.update(self._task, total=count)

    def advance(self) -> None:
        """A page is done."""
        self._bar.advance(self._task)

    def skip(self) -> None:
        """A page needs no work: one less to do, so that the speed is that of the work."""
        self._left -= 1
        self._bar.update(self._task, total=self._left)

    def observer(self, work: str) -> Observer:
        return _StageName(lambda stage: self._bar.update(self._task, description=f"{work} {stage}"))


class _PagesPerSecond(ProgressColumn):
    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else f"{speed:.3g} pages/s", style="progress.data.speed")


class _StageName(SilentObserver):
    """Shows which stage of which page runs."""

    def __init__(self, show: Callable[[Stage], None]) -> None:
        self._show = show

    def stage_started(self, stage: Stage) -> None:
        self._show(stage)
