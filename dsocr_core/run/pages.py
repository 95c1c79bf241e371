"""Many pages through one or both backends, into a run directory.

What a run holds in memory does not grow with its pages: a few pages are prepared ahead, each result is on
disk soon after it is there, and the report keeps figures.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path

from dsocr_core.errors import Cancelled, DsocrError
from dsocr_core.history.record import record_run
from dsocr_core.history.recorder import CANCELLED, RunRecorder
from dsocr_core.inputs.documents import expand
from dsocr_core.outputs.artifacts import RunDirectory
from dsocr_core.outputs.comparison import Comparison
from dsocr_core.records import SIDES, BackendName, CancelToken, OcrResult
from dsocr_core.run.page_writer import _Sink
from dsocr_core.run.pipeline import Pipeline
from dsocr_core.run.prefetch import PageReader, PreparedPages, ReadyPage, in_order
from dsocr_core.run.progress import Progress
from dsocr_core.run.report import Report
from dsocr_core.settings import RUNS_DIRECTORY

log = logging.getLogger(__name__)

MOST_TOGETHER = 256
"""Pages that are read together where no number is given, if the device's memory holds them."""


def run_directory(command: str) -> Path:
    """A new run directory's place, named by the time of day in UTC."""
    return RUNS_DIRECTORY / f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{command}"


def process(
    pipeline: Pipeline,
    images: Sequence[Path],
    backends: tuple[BackendName, ...],
    pages: str | None,
    directory: Path,
    progress: Progress,
    cancel: CancelToken | None = None,
    resume: bool = False,
    spans: int = 0,
    saved: RunRecorder | None = None,
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
    for backend in backends:
        pipeline.backend(backend)
    record = saved.record if saved is not None else record_run(settings, (), command)
    run = RunDirectory(directory, record.to_json())
    done = _done(run, backends) if resume else frozenset()
    reader = PageReader(pipeline, found, backends, done)
    report = Report(backends, spans)
    progress.start(len(found))
    sink = _Sink(pipeline, backends, run, report, progress, saved)
    slots = (
        slots_for(len(found), batch) if backends == settings.backends[:1] and pipeline.reads_together else 1
    )
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


def _done(run: RunDirectory, backends: tuple[BackendName, ...]) -> Collection[tuple[str, str, str]]:
    run.repair(backends)
    return run.done(backends)


# --- its turn -------------------------------------------------------------------------------------


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
            sides = SIDES[: len(sink.backends)]
            observers = {
                side: sink.progress.observer(f"{page.source} {backend}")
                for side, backend in zip(sides, sink.backends, strict=True)
            }
            try:
                for side in sides:
                    read = sink.pipeline.compare(
                        page.request, (side,), observers, cancel, prepared=page.prepared
                    )
                    comparison = comparison.joined(read) if comparison else read
            except Cancelled:
                if comparison is not None:  # a backend was through
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


# --- progress -------------------------------------------------------------------------------------
