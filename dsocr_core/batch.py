"""Many pages down one or both roads, into a run directory."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from dsocr_core.errors import DsocrError
from dsocr_core.inputs.documents import Pages, expand, load_image
from dsocr_core.outputs.artifacts import RunDirectory
from dsocr_core.outputs.markup import parse
from dsocr_core.pipeline import Pipeline
from dsocr_core.records import CancelToken, Observer, Road, SilentObserver
from dsocr_core.report import PageOutcome, Report
from dsocr_core.results import RUNS_DIRECTORY
from dsocr_core.settings import Settings
from dsocr_core.stages import Stage

log = logging.getLogger(__name__)


def run_directory(command: str) -> Path:
    """A new run directory's place, named by the time of day in UTC."""
    return RUNS_DIRECTORY / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{command}"


def process(
    settings: Settings,
    images: Sequence[Path],
    roads: tuple[Road, ...],
    pages: str | None,
    directory: Path,
    progress: Progress,
    cancel: CancelToken | None = None,
) -> Report:
    """Read every page and write the run directory.

    A page that fails is reported with its error and the others go on. Raises DsocrError for usage that
    concerns all pages (no such path, no checkpoint), Cancelled when `cancel` is set.
    """
    found = expand(images, pages, directory / "pages", settings.pdf_dpi, settings.max_pixels)
    report = Report(roads)
    pipeline = Pipeline(settings)
    # What is wrong for every page is said once, before the first one.
    for road in roads:
        pipeline.backend(road)
    try:
        run = RunDirectory(directory)
        for number in progress.track(len(found)):
            report.outcomes.append(_one_page(pipeline, found, number, roads, run, progress, cancel))
    finally:
        pipeline.close()
    results = [outcome.comparison.ours for outcome in report.outcomes if outcome.comparison]
    read = [result for result in results if result is not None]
    if read and not any(parse(result.text_raw) for result in read):
        log.warning("no page of this run has a box; check with: python -m dsocr_core compare %s", images[0])
    return report


def _one_page(
    pipeline: Pipeline,
    pages: Pages,
    number: int,
    roads: tuple[Road, ...],
    run: RunDirectory,
    progress: Progress,
    cancel: CancelToken | None,
) -> PageOutcome:
    source = pages.name(number)
    try:
        page = pages[number]  # renders it when it is one of a PDF's
        request = pipeline.settings.request(page.path, page.source)
        observers = {road: progress.observer(f"{source} {road}") for road in roads}
        comparison = pipeline.compare(request, roads, observers, cancel)
        picture = load_image(request.image, pipeline.settings.max_pixels)
        for result in (comparison.ours, comparison.vendor):
            if result is not None:
                run.add(result, picture)
    except DsocrError as error:
        if cancel is not None and cancel.is_set():
            raise
        return PageOutcome(source, None, str(error))
    errors = "; ".join(f"{road}: {message}" for road, message in comparison.errors.items())
    return PageOutcome(source, comparison, errors or None)


# --- progress -----------------------------------------------------------------------------------


class Progress:
    """A bar on a terminal, one for all pages; silent where nobody looks."""

    def __init__(self, console: Console) -> None:
        self._bar = RichProgress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("pages", total=None)

    def __enter__(self) -> Progress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def track(self, count: int) -> Iterator[int]:
        """The numbers of so many pages, the bar moving on as each is done."""
        self._bar.update(self._task, total=count)
        for number in range(count):
            yield number
            self._bar.advance(self._task)

    def observer(self, work: str) -> Observer:
        return _StageName(lambda stage: self._bar.update(self._task, description=f"{work} {stage}"))


class _StageName(SilentObserver):
    """Shows which stage of which page runs."""

    def __init__(self, show: Callable[[Stage], None]) -> None:
        self._show = show

    def stage_started(self, stage: Stage) -> None:
        self._show(stage)
