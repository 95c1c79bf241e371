"""Many pages through one or both backends, into a run directory.

What a run holds in memory does not grow with its pages: a few pages are prefetched, each result is on disk
soon after it is there, and the report keeps figures.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection

from dsocr_core.error_log import unforeseen
from dsocr_core.errors import Cancelled, DsocrError
from dsocr_core.history.recorder import RunRecorder
from dsocr_core.inputs.documents import expand
from dsocr_core.outputs.artifacts import RunDirectory
from dsocr_core.outputs.comparison import Comparison
from dsocr_core.records import BackendName, CancelToken, OcrResult
from dsocr_core.run.in_flight import Record, read_in_flight
from dsocr_core.run.lock import writing_into
from dsocr_core.run.pipeline import PageCancelled, Pipeline
from dsocr_core.run.plan import RunPlan
from dsocr_core.run.prefetch import (
    PageDone,
    PageFailed,
    PageReader,
    PageToRead,
    PreparedPages,
    in_order,
    unreadable,
)
from dsocr_core.run.progress import Progress
from dsocr_core.run.recorders import DirectoryRecorder, HistoryRecorder, Recorders
from dsocr_core.run.report import Report

log = logging.getLogger(__name__)

MOST_TOGETHER = 256
"""Pages that are read together where no number is given, if the device's memory holds them."""


def read_pages(
    pipeline: Pipeline,
    plan: RunPlan,
    progress: Progress,
    history: RunRecorder | None = None,
    cancel: CancelToken | None = None,
) -> Report:
    """Read every page and write the run directory, each page as it finishes; into `history` too if given.

    The fast engine reads up to `plan.batch` pages together, and they finish in any order; everything else
    reads one after another, in order. A page that fails is recorded with its error and the others go on.
    Raises DsocrError for what concerns all pages (no such path, no checkpoint, a directory that another run
    writes into), Cancelled when `cancel` is
    set: what was finished by then is written.
    """
    if plan.resume and not plan.directory.is_dir():
        raise DsocrError(f"{plan.directory}: no such run directory; give the one to go on with, or --out")
    with writing_into(plan.directory):
        return _read_pages(pipeline, plan, progress, history, cancel)


def _read_pages(
    pipeline: Pipeline,
    plan: RunPlan,
    progress: Progress,
    history: RunRecorder | None,
    cancel: CancelToken | None,
) -> Report:
    settings = pipeline.settings
    backends = tuple(settings.backend(side) for side in plan.sides)
    found = expand(plan.images, plan.pages, plan.directory / "pages", settings.pdf_dpi, settings.max_pixels)
    # What is wrong for every page is raised once, before the first one.
    pipeline.check(plan.sides)
    failed = unreadable(found, settings.max_pixels)
    if not failed:  # for nothing no model is loaded
        pipeline.load(plan.sides)
    record = (history or RunRecorder(settings, plan.command)).record
    directory = RunDirectory(plan.directory, record.to_json(), backends[0])
    directory.repair(backends)
    done = _done(directory, backends) if plan.resume else frozenset()
    reader = PageReader(pipeline, found, backends, done)
    report = Report(backends, plan.spans)
    progress.start(len(found))
    in_history = [HistoryRecorder(history, backends)] if history else []
    recorders = Recorders(
        settings, [DirectoryRecorder(directory, settings, backends), *in_history, report, progress]
    )
    together = len(backends) == 1 and pipeline.reads_together
    slots = slots_for(len(found), plan.batch) if together else 1
    try:
        if failed:
            for page in failed:
                recorders.add_failure(page)
        elif slots > 1:
            _read_together(pipeline, reader, len(found), slots, recorders, cancel)
        elif (in_flight := pipeline.concurrency(plan.sides)) > 1:
            _read_in_flight(pipeline, plan, reader, len(found), in_flight, recorders, cancel)
        else:
            _read_in_order(pipeline, plan, reader, len(found), recorders, progress, cancel)
    except Cancelled:
        recorders.cancel()
        raise
    report.left_over = pipeline.left_over(plan.sides)
    if done and not report.skipped:
        log.warning("%s: none of its pages was read from these files under these settings", plan.directory)
    if report.read and not report.boxes:
        log.warning(
            "no page of this run has a box; check with: python -m dsocr_core compare %s", plan.images[0]
        )
    return report


def slots_for(pages: int, batch: int | None) -> int:
    """How many pages to read together: a power of two where no number is given, so that runs are alike."""
    most = batch or MOST_TOGETHER
    return max(1, min(most, 1 << max(0, pages - 1).bit_length()))


def _done(directory: RunDirectory, backends: tuple[BackendName, ...]) -> Collection[tuple[str, str, str]]:
    return directory.done(backends)


def _read_in_order(
    pipeline: Pipeline,
    plan: RunPlan,
    reader: PageReader,
    count: int,
    recorders: Recorders,
    progress: Progress,
    cancel: CancelToken | None,
) -> None:
    """Page after page, on every side."""
    for page in in_order(reader.read, count):
        if cancel is not None and cancel.is_set():
            raise Cancelled
        if not isinstance(page, PageToRead):
            _record_unread(recorders, page)
            continue
        observers = {
            side: progress.observer(f"{page.source} {pipeline.settings.backend(side)}") for side in plan.sides
        }
        try:
            comparison = pipeline.compare(page.request, plan.sides, observers, cancel, prepared=page.prepared)
        except PageCancelled as stop:
            recorders.add(page, stop.finished)
            raise
        except DsocrError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a page does to us, the others are read
            recorders.add_failure(page.failed(unforeseen(error, page.source)))
            continue
        recorders.add(page, comparison)


def _read_in_flight(
    pipeline: Pipeline,
    plan: RunPlan,
    reader: PageReader,
    count: int,
    in_flight: int,
    recorders: Recorders,
    cancel: CancelToken | None,
) -> None:
    """Several pages at once, on every side."""

    def read(number: int, stop: CancelToken) -> Record:
        page = reader.read(number)
        if not isinstance(page, PageToRead):
            return lambda: _record_unread(recorders, page)
        try:
            comparison = pipeline.compare(page.request, plan.sides, None, stop, prepared=page.prepared)
        except PageCancelled as end:
            finished = end.finished
            return lambda: recorders.add(page, finished)
        except DsocrError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a page does to us, the others are read
            failed = page.failed(unforeseen(error, page.source))
            return lambda: recorders.add_failure(failed)
        return lambda: recorders.add(page, comparison)

    read_in_flight(read, count, in_flight, cancel)


def _read_together(
    pipeline: Pipeline,
    reader: PageReader,
    count: int,
    slots: int,
    recorders: Recorders,
    cancel: CancelToken | None,
) -> None:
    """All pages through the fast engine's slots, recorded in the order they end."""
    one_at_a_time = threading.Lock()  # pages that are not read are heard of on another thread

    def on_other(page: PageDone | PageFailed) -> None:
        with one_at_a_time:
            _record_unread(recorders, page)

    def on_result(page: object, outcome: OcrResult | DsocrError) -> None:
        assert isinstance(page, PageToRead)
        with one_at_a_time:
            if isinstance(outcome, DsocrError):
                recorders.add_failure(page.failed(str(outcome)))
            else:
                recorders.add(page, Comparison(page.request, outcome))

    with PreparedPages(reader.read, count, on_other) as source:
        pipeline.read_together(source, on_result, slots, cancel)


def _record_unread(recorders: Recorders, page: PageDone | PageFailed) -> None:
    if isinstance(page, PageDone):
        recorders.skip(page)
    else:
        recorders.add_failure(page)
