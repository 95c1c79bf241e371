"""A run: many pages through its backends, into a run directory and runs of the history.

What a run holds in memory does not grow with its pages: a few pages are prefetched, each result is on disk
soon after it is there, and the report keeps figures.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from dsocr_core.base.errors import DsocrError, page_error
from dsocr_core.base.sanitise import name_text, text_name
from dsocr_core.engine.source import MOST_TOGETHER
from dsocr_core.engine.threads import quick_switches
from dsocr_core.page.documents import load_image
from dsocr_core.read.loop import PageOutcome, read_pages
from dsocr_core.read.plan import RunPlan
from dsocr_core.read.prefetch import PageFailed, PageReader, PageToRead
from dsocr_core.read.progress import Progress
from dsocr_core.read.report import Report, report_of
from dsocr_core.read.session import Session, Sides
from dsocr_core.reading.artifacts import PREDICTIONS, Export, failure, prediction
from dsocr_core.reading.clean import clean_pages
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import BackendName, CancelToken, OcrResult
from dsocr_core.runs import run_directory
from dsocr_core.runs.commands import command_line
from dsocr_core.runs.machine import MachineWatch
from dsocr_core.runs.record import CANCELLED, Recording
from dsocr_core.runs.results import PageResults, parity_of
from dsocr_core.settings import Settings

log = logging.getLogger(__name__)

RECORDERS = 8
"""Threads that record pages of a batch, which end together: pictures take longer than rows."""

LINE_COLUMNS = (
    "run_id", "page", "backend", "source", "path", "width", "height", "bytes", "sha256", "preset", "error",
    "text_raw", "finish_reason", "text_tokens", "request", "token_ids", "environment", "times", "key",
    "exact",
)  # fmt: skip
"""Columns that a line of predictions is made of."""


def read_run(
    sessions: Sequence[Session],
    plan: RunPlan,
    progress: Progress | None = None,
    runs: Sequence[Recording] = (),
    cancel: CancelToken | None = None,
) -> Report:
    """Read every page and write the run directory, each page as it finishes.

    Several sessions are one A with several B, under `settings_against`. `runs` are one for each of them,
    which end with this: that of one session writes the run directory too. The fast engine reads up to
    `plan.batch` pages together, which finish in any order. A page that fails is recorded with its error and
    the others go on. Raises DsocrError for what concerns all pages (no such path, a directory that another
    run writes into), Cancelled when `cancel` is set: what was finished by then is written.
    """
    if plan.resume and not plan.directory.is_dir():
        raise DsocrError(f"{plan.directory}: no such run directory; give the one to go on with, or --out")
    progress = progress or Progress()
    sides = Sides(sessions, len(plan.sides) > 1, progress.observer)
    settings = sides.first.settings
    # A model loads, and the device is kept busy, while other threads open and record pages.
    with quick_switches(), RunWriter(sides, plan, runs).opened() as writer:
        found = plan.look_up(settings)
        # What is wrong for every page is raised once, before the first one.
        sides.check(plan.together is not None, [found.name(number) for number in range(len(found))])
        done = writer.done() if plan.resume else frozenset()
        report = report_of(sides.names, plan.spans)
        progress.start(len(found))
        slots = plan.slots or slots_for(len(found), plan.batch)
        in_flight = slots if sides.reads_many else sides.concurrency
        # In order where they are read in order.
        recorders = RECORDERS if sides.reads_many and in_flight > 1 else 1
        recorded: deque[Future[PageOutcome]] = deque()

        def report_recorded(most: int) -> None:
            while len(recorded) > most:
                report.add(recorded.popleft().result())
                progress.advance()

        with ThreadPoolExecutor(recorders, "record") as threads:

            def on_page(outcome: PageOutcome) -> None:
                recorded.append(threads.submit(writer.add, outcome))
                report_recorded(recorders - 1)

            try:
                read_pages(sides, PageReader(sides, found, done), on_page, in_flight, cancel)
            finally:
                report_recorded(0)
    report.left_over = sides.left_over()
    report.run_ids = [run.id for run in runs]
    if done and not report.skipped:
        log.warning("%s: none of its pages was read from these files under these settings", plan.directory)
    if report.read and not report.boxes and not sides.compared:
        path, _, number = next(image for prompt in found.prompts for image in prompt.images)
        words = [] if number is None else ["--pages", str(number)]
        again = command_line("compare", asdict(settings) | {"history": None, "b": None}, [str(path)], *words)
        log.warning("no page of this run has a box; check with: %s", again)
    return report


def slots_for(pages: int, batch: int | None) -> int:
    """Choose how many pages to read together; without a number one of a few, so that runs are alike."""
    slots = 1 << max(0, pages - 1).bit_length() if pages <= 256 else -(-pages // 128) * 128
    return min(batch or MOST_TOGETHER, slots)


class RunWriter:
    """Writer of a run directory: a page's files as llm-perf-opt has them, then its rows.

    At the end it writes `predictions.jsonl` and adds the results to the result cache. With several B it also
    writes each as a run of its own with A, where a history is given.
    """

    def __init__(self, sides: Sides, plan: RunPlan, runs: Sequence[Recording]) -> None:
        """`runs` are as `read_run` takes them."""
        settings, self._directory, self._sides = sides.first.settings, plan.directory, sides
        own = runs[0] if runs and len(sides.sessions) == 1 else None
        self.run = own or Recording(settings, plan.command, out=plan.directory, save=False)
        self._histories = [] if own else runs
        self._export = Export(plan.directory, sides.names[0])
        self._keys: list[str] = []

    @contextmanager
    def opened(self) -> Iterator[RunWriter]:
        """Own the directory while the block lasts; afterwards the run is whole."""
        file = self._directory / PREDICTIONS
        has_run = run_directory.is_begun(self._directory) or (self._directory / "run.json").exists()
        if not has_run and file.is_file() and file.stat().st_size > 0:
            raise DsocrError(
                f"{self._directory}: has predictions of another version or program; give another --out"
            )
        opened = list[Recording]()
        with ExitStack() as stack:
            stack.callback(self._end, opened)
            opened += [stack.enter_context(run) for run in (self.run, *self._histories)]
            yield self

    def done(self) -> set[tuple[BackendName, str, str]]:
        """(backend, source, key) of every page that was read, and whose folders are there."""
        return {
            (backend, source, key)
            for backend, source, key, image in self.run.run.done()
            if self._export.folder(backend, image).is_dir()
        }

    def add(self, outcome: PageOutcome) -> PageOutcome:
        """Write what became of a page. Returns it, as failed where the directory could not take it.

        Several threads may add pages.
        """
        page = outcome.page
        if isinstance(page, PageToRead):
            try:
                clean = self._add(page, outcome.comparisons)
            except Exception as error:  # noqa: BLE001 - whatever a page does to us, the others are read
                page = page.failed(str(page_error(error, page.source)))
                outcome = PageOutcome(page)
            else:
                for run, part in zip(self._histories, outcome.comparisons, strict=False):
                    run.add(page.source, part, clean=clean, keys=page.keys)
        if isinstance(page, PageFailed):
            self._add_failure(page)
        return outcome

    def _add(self, page: PageToRead, comparisons: Sequence[Comparison]) -> dict[str, bytes]:
        """Put the results into the directory. Returns the pictures that a run stores of the page."""
        first, results, errors = self._sides.first.settings, dict[str, OcrResult](), dict[str, str]()
        for session, part in zip(self._sides.sessions, comparisons, strict=False):
            results |= {result.backend: result for result in part.results.values()}
            errors |= {session.settings.backend(side): why for side, why in part.errors.items()}
        pictures = page.load_pictures(first.max_pixels) if results else []
        clean = clean_pages(page.request, pictures) if first.clean_pages else {}
        self.run.run.begin()
        for name, result in results.items():
            self._export.add(result, pictures)
            if name in page.keys and any(name in session.cached for session in self._sides.sessions):
                self._keys.append(page.keys[name])
        parity, found = parity_of(page.source, comparisons[0]), [*results.values()]
        self.run.run.add(
            PageResults(page.source, page.request.image, found, errors, parity, page.keys, clean)
        )
        return clean

    def _add_failure(self, page: PageFailed) -> None:
        try:
            self.run.run.begin()
            self.run.run.add(PageResults.failed(page.source, self._sides.names, page.error, page.image))
        except DsocrError as failure:  # a full disk, say: the report still has the page's own error
            log.warning("%s", failure)
        for run in self._histories:
            names = run.settings.side_names
            run.run.add(PageResults.failed(page.source, names, page.error, page.image))

    def _end(self, opened: Sequence[Recording]) -> None:
        if opened:  # a directory that another run has stays as it is
            self._export.write_lines(run_lines(self._directory))
        if self._keys:
            self._sides.first.link(self._keys, self._directory)


def run_lines(directory: Path) -> Iterator[dict[str, Any]]:
    """The lines of predictions that the rows of a run directory make; none where there is no run."""
    for row, result in run_directory.RunDirectory(directory).results(LINE_COLUMNS):
        run = {"run": row["run_id"]}
        image = None if row["path"] is None else Path(text_name(row["path"]))
        if result is not None and image is not None:
            result = replace(result, request=replace(result.request, image=image))
            yield prediction(result, row["key"]) | run
        elif row["error"] is not None:
            yield failure(row["backend"], row["source"], image, row["error"]) | run


def save_comparison(
    settings: Settings, comparison: Comparison, cancelled: bool = False, machine: MachineWatch | None = None
) -> str | None:
    """Record one page of the app as a run; None where none is wanted. Raises DsocrError, OSError."""
    if not settings.history:
        return None
    request, clean = comparison.request, dict[str, bytes]()
    images = [name_text(image) for image in request.images]
    command = command_line("compare", asdict(settings) | {"history": None}, images)
    if settings.clean_pages:
        clean = clean_pages(request, [load_image(image, settings.max_pixels) for image in request.images])
    notes = CANCELLED if cancelled else None
    with Recording(settings, command, machine=machine or MachineWatch(), notes=notes) as recording:
        recording.add(request.name, comparison, clean=clean)
    return recording.id
