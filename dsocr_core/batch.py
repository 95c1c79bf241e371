"""Many pages down one or both roads, into a run directory.

What a run holds in memory does not grow with its pages: a few pages are prepared ahead, a result is on
disk before the next page starts, and the report keeps figures.
"""

from __future__ import annotations

import logging
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
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

from dsocr_core.engine.backend import PreparedPage
from dsocr_core.errors import Cancelled, DsocrError
from dsocr_core.inputs.documents import Pages, expand, load_image
from dsocr_core.outputs.artifacts import ArtifactError, RunDirectory
from dsocr_core.pipeline import Pipeline
from dsocr_core.records import CancelToken, Observer, OcrRequest, Road, SilentObserver
from dsocr_core.report import PageOutcome, Report
from dsocr_core.results import RUNS_DIRECTORY, Comparison
from dsocr_core.saved import SavedRun
from dsocr_core.stages import Stage

log = logging.getLogger(__name__)

AHEAD = 2
"""Pages that are prepared while one is read."""


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
) -> Report:
    """Read every page and write the run directory, each page as it finishes.

    With `resume` the pages that `directory` has from the same file under the same settings are skipped;
    those that failed there are tried again. A page that fails is recorded with its error and the others go
    on. Raises DsocrError for usage that concerns all pages (no such path, no checkpoint), Cancelled when
    `cancel` is set.
    """
    settings = pipeline.settings
    if resume and not directory.is_dir():
        raise DsocrError(f"{directory}: no such run directory; give the one to go on with, or --out")
    found = expand(images, pages, directory / "pages", settings.pdf_dpi, settings.max_pixels)
    # What is wrong for every page is said once, before the first one.
    for road in roads:
        pipeline.backend(road)
    run = RunDirectory(directory)
    done = _done(run, roads) if resume else frozenset()
    reader = _Reader(pipeline, found, roads, done)
    report = Report(roads, spans)
    progress.start(len(found))
    for page in _in_order(reader.read, len(found)):
        if cancel is not None and cancel.is_set():
            raise Cancelled
        if page.done:
            report.skipped += 1
            progress.skip()
            continue
        report.add(_one_page(pipeline, page, roads, run, progress, cancel, saved))
        progress.advance()
    if done and not report.skipped:
        log.warning("%s: none of its pages was read from these files under these settings", directory)
    if report.read and not report.boxes:
        log.warning("no page of this run has a box; check with: python -m dsocr_core compare %s", images[0])
    return report


def _done(run: RunDirectory, roads: tuple[Road, ...]) -> Collection[tuple[str, str, str]]:
    run.repair(roads)
    return run.done(roads)


# --- ahead of a page's turn -----------------------------------------------------------------------


@dataclass(frozen=True)
class _Page:
    """A page that may be read now, or why not."""

    source: str
    request: OcrRequest | None = None
    keys: dict[Road, str] | None = None
    prepared: PreparedPage | None = None
    done: bool = False
    error: str | None = None


class _Reader:
    """Finds, renders, hashes and prepares pages; safe to call from another thread."""

    def __init__(
        self,
        pipeline: Pipeline,
        pages: Pages,
        roads: tuple[Road, ...],
        done: Collection[tuple[str, str, str]],
    ) -> None:
        self._pipeline, self._pages, self._roads, self._done = pipeline, pages, roads, done

    def read(self, number: int) -> _Page:
        """One page. Its errors are in it, not raised."""
        source, request = self._pages.name(number), None
        try:
            page = self._pages[number]  # renders it when it is one of a PDF's
            request = self._pipeline.settings.request(page.path, page.source)
            keys = {road: self._pipeline.results.key(road, request) for road in self._roads}
            if all((road, source, key) in self._done for road, key in keys.items()):
                return _Page(source, done=True)
            # Beside the vendor's road ours keeps its preprocessing, so that both times mean the same.
            prepared = self._pipeline.prepare(request) if self._roads == ("ours",) else None
        except DsocrError as error:
            return _Page(source, request, error=str(error))
        return _Page(source, request, keys, prepared)


def _in_order(read: Callable[[int], _Page], count: int, ahead: int = AHEAD) -> Iterator[_Page]:
    """Pages in order, at most `ahead` of them read before they are asked for, on a thread of their own.

    Decoding and resizing an image leave Python to other threads.
    """
    waiting: deque[Future[_Page]] = deque()
    with ThreadPoolExecutor(1, "prepare") as pool:
        try:
            for number in range(count):
                waiting.append(pool.submit(read, number))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)


# --- its turn -------------------------------------------------------------------------------------


def _one_page(
    pipeline: Pipeline,
    page: _Page,
    roads: tuple[Road, ...],
    run: RunDirectory,
    progress: Progress,
    cancel: CancelToken | None,
    saved: SavedRun | None,
) -> PageOutcome:
    comparison, error = None, page.error
    if error is None:
        try:
            comparison = _read(pipeline, page, roads, run, progress, cancel, saved)
        except Cancelled:
            raise
        except DsocrError as failure:
            error = str(failure)
    errors = comparison.errors if comparison else dict.fromkeys(roads, error or "")
    if saved is not None and comparison is None:
        saved.add_failure(page.source, roads, error or "")
    for road, message in errors.items():
        _record_failure(run, road, page, message)
    if comparison and errors:
        error = "; ".join(f"{road}: {message}" for road, message in errors.items())
    return PageOutcome(page.source, comparison, error)


def _read(
    pipeline: Pipeline,
    page: _Page,
    roads: tuple[Road, ...],
    run: RunDirectory,
    progress: Progress,
    cancel: CancelToken | None,
    saved: SavedRun | None,
) -> Comparison:
    """One page down the roads and onto the disk. Raises DsocrError or Cancelled."""
    assert page.request is not None and page.keys is not None
    observers = {road: progress.observer(f"{page.source} {road}") for road in roads}
    comparison = pipeline.compare(page.request, roads, observers, cancel, prepared=page.prepared)
    picture = None
    for result in (comparison.ours, comparison.vendor):
        if result is not None:
            if page.prepared is not None:
                picture = page.prepared.picture
            else:
                picture = load_image(page.request.image, pipeline.settings.max_pixels)
            run.add(result, picture, page.keys[result.road])
    if saved is not None:
        saved.add(page.source, comparison, picture)
    return comparison


def _record_failure(run: RunDirectory, road: Road, page: _Page, error: str) -> None:
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
