"""Recorders, which hear what became of each page: the run directory, the history, the report, the progress
bar.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from PIL import Image

from dsocr_core.error_log import unforeseen
from dsocr_core.errors import DsocrError
from dsocr_core.history.recorder import CANCELLED, RunRecorder
from dsocr_core.outputs.artifacts import ArtifactError, RunDirectory
from dsocr_core.outputs.clean import CleanPage, clean_page
from dsocr_core.outputs.comparison import Comparison
from dsocr_core.records import BackendName
from dsocr_core.run.prefetch import PageDone, PageFailed, PageToRead, ReadyPage
from dsocr_core.settings import Settings

log = logging.getLogger(__name__)


class Recorder:
    """Receiver of a run's pages, one at a time; subclasses override the events that they need."""

    def skip(self, page: PageDone) -> None:
        """An earlier run has read the page."""

    def add(
        self, page: PageToRead, comparison: Comparison, picture: Image.Image | None, clean: CleanPage | None
    ) -> None:
        """Take what the backends gave, errors of one of them included. Raises DsocrError.

        `picture` is the page in RGB, None where no backend gave a result; `clean` is what a run
        stores of it.
        """

    def add_failure(self, page: PageFailed) -> None:
        """No backend could read the page."""

    def cancel(self) -> None:
        """The run was cancelled: no page comes any more. Raises DsocrError."""


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

    def add(self, page: PageToRead, comparison: Comparison) -> None:
        try:
            picture = page.load_picture(self._settings.max_pixels) if comparison.results else None
            clean = clean_page(page.request, picture) if picture and self._settings.clean_pages else None
            for recorder in self._recorders:
                recorder.add(page, comparison, picture, clean)
        except DsocrError as error:
            self.add_failure(page.failed(str(error)))
        except Exception as error:  # noqa: BLE001 - whatever a page does to us, the others are read
            self.add_failure(page.failed(unforeseen(error, page.source)))

    def add_failure(self, page: PageFailed) -> None:
        for recorder in self._recorders:
            recorder.add_failure(page)

    def cancel(self) -> None:
        for recorder in self._recorders:
            recorder.cancel()


class DirectoryRecorder(Recorder):
    """Writes each page into a run directory as it comes."""

    def __init__(self, directory: RunDirectory, settings: Settings, backends: Sequence[BackendName]) -> None:
        self._directory, self._settings, self._backends = directory, settings, backends

    def add(
        self, page: PageToRead, comparison: Comparison, picture: Image.Image | None, clean: CleanPage | None
    ) -> None:
        for result in comparison.results.values():
            assert picture is not None
            self._directory.add(result, picture, page.keys[result.backend], clean)
        for side, error in comparison.errors.items():
            self._write_failure(self._settings.backend(side), page.failed(error))

    def add_failure(self, page: PageFailed) -> None:
        for backend in self._backends:
            self._write_failure(backend, page)

    def cancel(self) -> None:
        self._directory.note(CANCELLED)

    def _write_failure(self, backend: BackendName, page: PageFailed) -> None:
        try:
            self._directory.add_failure(backend, page.source, page.image, page.error)
        except ArtifactError as failure:  # a full disk, say: the report still has the page's own error
            log.warning("%s", failure)


class HistoryRecorder(Recorder):
    """Collects pages for a run of the history, which its owner writes when all is over."""

    def __init__(self, history: RunRecorder, backends: tuple[BackendName, ...]) -> None:
        self._history, self._backends = history, backends

    def add(
        self, page: PageToRead, comparison: Comparison, picture: Image.Image | None, clean: CleanPage | None
    ) -> None:
        self._history.add(page.source, comparison, clean)

    def add_failure(self, page: PageFailed) -> None:
        self._history.add_failure(page.source, self._backends, page.error)
