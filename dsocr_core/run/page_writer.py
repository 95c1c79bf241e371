"""Where what became of a page goes: the run directory, the history, the report."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from dsocr_core.errors import DsocrError
from dsocr_core.history.recorder import RunRecorder
from dsocr_core.inputs.documents import load_image
from dsocr_core.outputs.artifacts import ArtifactError, RunDirectory
from dsocr_core.outputs.clean import clean_page
from dsocr_core.outputs.comparison import Comparison
from dsocr_core.records import BackendName
from dsocr_core.run.pipeline import Pipeline
from dsocr_core.run.prefetch import ReadyPage
from dsocr_core.run.progress import Progress
from dsocr_core.run.report import PageOutcome, Report

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Sink:
    """Where what became of a page goes: the run directory, the history, the report."""

    pipeline: Pipeline
    backends: tuple[BackendName, ...]
    run: RunDirectory
    report: Report
    progress: Progress
    saved: RunRecorder | None

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
        backend = self.pipeline.settings.backend
        errors = (
            {backend(side): words for side, words in comparison.errors.items()}
            if comparison
            else dict.fromkeys(self.backends, error or "")
        )
        if self.saved is not None and comparison is None:
            self.saved.add_failure(page.source, self.backends, error or "")
        for name, message in errors.items():
            _record_failure(self.run, name, page, message)
        if comparison and errors:
            error = "; ".join(f"{name}: {message}" for name, message in errors.items())
        self.report.add(PageOutcome(page.source, comparison, error))
        self.progress.advance()

    def _write(self, page: ReadyPage, comparison: Comparison) -> None:
        """Raises DsocrError."""
        assert page.request is not None and page.keys is not None
        settings = self.pipeline.settings
        picture = page.prepared.picture if page.prepared is not None else page.picture
        results = comparison.results.values()
        clean = None
        if results:
            picture = picture or load_image(page.request.image, settings.max_pixels)
            clean = clean_page(page.request.image, picture) if settings.clean_pages else None
        for result in results:
            assert picture is not None
            self.run.add(result, picture, page.keys[result.backend], clean)
        if self.saved is not None:
            self.saved.add(page.source, comparison, picture, clean)


def _record_failure(run: RunDirectory, backend: BackendName, page: ReadyPage, error: str) -> None:
    try:
        run.add_failure(backend, page.source, page.request.image if page.request else None, error)
    except ArtifactError as failure:  # a full disk, say: the report still has the page's own error
        log.warning("%s", failure)
