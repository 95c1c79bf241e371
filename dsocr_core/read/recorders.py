"""Recorders, which hear what became of each page: the run directory, the history, the report, the progress
bar.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from PIL import Image

from dsocr_core.base.error_log import unforeseen
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.sanitise import text_name
from dsocr_core.read.prefetch import PageDone, PageFailed, PageToRead, ReadyPage
from dsocr_core.read.session import Session
from dsocr_core.reading.artifacts import PREDICTIONS, Export, failure, prediction
from dsocr_core.reading.clean import CleanPage, clean_pages
from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.records import BackendName
from dsocr_core.runs import run_directory
from dsocr_core.runs.recording import Recording
from dsocr_core.runs.rows import PageResults, parity_of
from dsocr_core.settings import Settings

log = logging.getLogger(__name__)

LINE_COLUMNS = (
    "run_id", "page", "backend", "source", "path", "width", "height", "bytes", "sha256", "preset", "error",
    "text_raw", "finish_reason", "text_tokens", "request", "token_ids", "environment", "times", "key",
    "exact",
)  # fmt: skip
"""Columns that a line of predictions is made of."""


@dataclass(frozen=True)
class PageRead:
    """A page with what the backends gave on it, errors of one of them included."""

    page: PageToRead
    comparison: Comparison
    pictures: Sequence[Image.Image] = ()
    """Its pages in RGB; none where no backend gave a result."""
    clean: Sequence[CleanPage] = ()
    """The pictures that a run stores of them."""
    more: Sequence[tuple[Settings, Comparison]] = ()
    """Results of further backends, under their settings."""


class Recorder:
    """Receiver of a run's pages, one at a time; subclasses override the events that they need."""

    def skip(self, page: PageDone) -> None:
        """An earlier run has read the page."""

    def add(self, read: PageRead) -> None:
        """Take a page that was read. Raises DsocrError."""

    def add_failure(self, page: PageFailed) -> None:
        """No backend could read the page."""


class Recorders:
    """All recorders of a run, in order. A page that one of them cannot write has failed, for all of them.

    Those that cannot fail come last, so that they hear of a page once.
    """

    def __init__(self, settings: Settings, recorders: Sequence[Recorder]) -> None:
        self._settings, self._recorders = settings, recorders

    def take(self, page: ReadyPage, comparison: Comparison | None) -> None:
        """Take what became of a page."""
        if isinstance(page, PageDone):
            self.skip(page)
        elif isinstance(page, PageFailed):
            self.add_failure(page)
        else:
            assert comparison is not None
            self.add(page, comparison)

    def skip(self, page: PageDone) -> None:
        for recorder in self._recorders:
            recorder.skip(page)

    def add(
        self, page: PageToRead, comparison: Comparison, more: Sequence[tuple[Settings, Comparison]] = ()
    ) -> None:
        """Tell all of a page's results; `more` is what further ones did under their settings."""
        parts = [comparison, *(part for _, part in more)]
        try:
            read = any(part.results for part in parts)
            pictures = page.load_pictures(self._settings.max_pixels) if read else []
            clean = clean_pages(page.request, pictures) if self._settings.clean_pages else []
            for recorder in self._recorders:
                recorder.add(PageRead(page, comparison, pictures, clean, more))
        except DsocrError as error:
            self.add_failure(page.failed(str(error)))
        except Exception as error:  # noqa: BLE001 - whatever a page does to us, the others are read
            self.add_failure(page.failed(unforeseen(error, page.source)))

    def add_failure(self, page: PageFailed) -> None:
        for recorder in self._recorders:
            recorder.add_failure(page)


class RunDirectory(Recorder):
    """Writes each page into a run directory as it comes: what users of llm-perf-opt know, then its rows.

    Holds the directory while it is open. At the end the run is whole, its lines are written anew, and its
    results are found in the result cache.
    """

    def __init__(self, directory: Path, run: Recording, session: Session, backends: Sequence[BackendName]):
        """`run` writes into that directory; `backends` read each page, A's first."""
        self._directory, self.run, self._session, self._backends = directory, run, session, backends
        self._export = Export(directory, run.record.id, backends[0])
        self._keys: list[str] = []
        self._exit = ExitStack()

    def __enter__(self) -> RunDirectory:
        with ExitStack() as stack:
            if _is_of_another_version(self._directory):
                raise DsocrError(
                    f"{self._directory}: has predictions of another version or program; give another --out"
                )
            stack.callback(self._end)
            stack.enter_context(self.run)
            self._export.clear(self._backends)
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.__exit__(kind, error, trace)

    def done(self) -> set[tuple[BackendName, str, str]]:
        """(backend, source, key) of every page that was read, and whose folders are there."""
        return {
            (known.backend, known.source, known.key)
            for known in self.run.done()
            if self._export.folder(known.backend, known.image).is_dir()
        }

    def add(self, read: PageRead) -> None:
        page, local = read.page, self._session.cached
        self.run.run.begin()
        for settings, part in [(self._session.settings, read.comparison), *read.more]:
            for result in part.results.values():
                key = page.keys.get(result.backend)
                self._export.add(result, read.pictures, key)
                self._keys += [key] if key and result.backend in local else []
            for side, error in part.errors.items():
                self._export.add_failure(settings.backend(side), page.source, page.request.image, error)
        parts = [(self._session.settings, read.comparison), *read.more]
        self.run.add_page(
            PageResults(
                page.source,
                page.request.image,
                [result for _, part in parts for result in part.results.values()],
                {each.backend(side): why for each, part in parts for side, why in part.errors.items()},
                parity_of(page.source, read.comparison),
                page.keys,
                read.clean,
            )
        )

    def add_failure(self, page: PageFailed) -> None:
        try:
            self.run.run.begin()
            for backend in self._backends:
                self._export.add_failure(backend, page.source, page.image, page.error)
            self.run.add_page(PageResults.failed(page.source, self._backends, page.error, page.image))
        except DsocrError as failure:  # a full disk, say: the report still has the page's own error
            log.warning("%s", failure)

    def _end(self) -> None:
        self._export.write_lines(run_lines(self._directory))
        if self._keys:
            self._session.link(self._keys, self._directory)


def _is_of_another_version(directory: Path) -> bool:
    """Look whether lines lie there that no run of this version made."""
    has_run = run_directory.is_begun(directory) or (directory / "run.json").exists()
    file = directory / PREDICTIONS
    return not has_run and file.is_file() and file.stat().st_size > 0


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


class HistoryRecorder(Recorder):
    """Puts pages into a run of the history, which its owner ends."""

    def __init__(self, history: Recording, backends: Sequence[BackendName]) -> None:
        self._history, self._backends = history, backends

    def add(self, read: PageRead) -> None:
        page = read.page
        self._history.add(page.source, read.comparison, clean=read.clean, keys=page.keys)

    def add_failure(self, page: PageFailed) -> None:
        self._history.add_page(PageResults.failed(page.source, self._backends, page.error, page.image))
