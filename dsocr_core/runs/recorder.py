"""The run that `run`, `compare` and the app leave: one, in a directory, in the history, or in both."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dsocr_core.base.errors import Cancelled, one_line
from dsocr_core.base.sanitise import encodable, name_text
from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.fingerprints import files_of
from dsocr_core.reading.records import BackendName, OcrResult
from dsocr_core.reading.writing import require_writable
from dsocr_core.runs.machine import MachineWatch
from dsocr_core.settings import Settings, history_location

if TYPE_CHECKING:
    from dsocr_core.reading.clean import CleanPage
    from dsocr_core.runs.record import RunRecord
    from dsocr_core.runs.run_folder import CountRows, Done, RunFolder

CANCELLED = "Cancelled: it holds what was finished by then."
"""The note of such a run."""


class RunRecorder:
    """Puts down pages as they come, and makes them a run when the block ends, however it ends.

    A run that was cancelled, or ended by an error, says so. Without a page none is written. Nothing of a page
    stays in memory.
    """

    def __init__(
        self,
        settings: Settings,
        command: str | None = None,
        profiled: bool = False,
        machine: MachineWatch | None = None,
        out: Path | None = None,
        save: bool = True,
        count: CountRows | None = None,
    ) -> None:
        """`machine` has watched since the first page began; left out it watches from now on. `out` is the
        run directory, which nobody else writes into; `save` writes the run into the history; `count` gives
        rows of stage_flops by the run's config, number type and shapes of page."""
        self.settings, self._command, self._profiled = settings, command, profiled
        self._machine = machine or MachineWatch()
        self._out, self._save, self._count = out, save, count
        self._folder: RunFolder | None = None
        self._exit = contextlib.ExitStack()
        self.cancelled = False
        """True where it ended before its time, which its record says then."""
        self.id: str | None = None
        """The run's id in the history, once it is there."""

    def __enter__(self) -> RunRecorder:
        """Say what cannot be written before the first page is read; take up what a writer that was killed
        left. Raises DsocrError."""
        location = history_location(self.settings)
        if self._save and "://" not in location:
            require_writable(Path(location))
        if self._out is not None:
            self._opened()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        folder = self._folder
        with self._exit:
            if folder is None or not folder.has_parts:
                if folder is not None:
                    folder.leave()
                return
            notes = None
            if self.cancelled or (kind is not None and issubclass(kind, Cancelled | KeyboardInterrupt)):
                notes = CANCELLED
            elif error is not None:
                notes = f"Ended by an error, with what was finished by then: {encodable(one_line(error))}"
            self._finish(folder, notes)

    def _finish(self, folder: RunFolder, notes: str | None) -> None:
        """Only now all results are there, what they agree on, and what the machine was doing meanwhile."""
        from dsocr_core.runs.record import new_run_id
        from dsocr_core.runs.storage.entries import open_storage

        made = self._described(folder.facts(continued=False), notes)
        whole = self._described(folder.facts(continued=True), notes) if folder.continues else made
        if self._out is None:
            folder.finish(made, self._count)
            self._publish(folder.directory, made)
        elif not self._save:
            folder.finish(whole)
        else:
            with open_storage(history_location(self.settings)).scratch(made.id) as copy:
                if folder.continues:  # the history has what was read now: another run than the whole
                    folder.write(made, copy, continued=False, count=self._count)
                    whole = replace(whole, id=new_run_id())
                folder.finish(whole, self._count)
                folder.copy_to(copy)
                self._publish(copy, made)

    def _publish(self, directory: Path, record: RunRecord) -> None:
        from dsocr_core.runs.storage.entries import open_storage

        open_storage(history_location(self.settings)).publish(directory, record.id)
        self.id = record.id

    def add(
        self,
        page: str,
        comparison: Comparison,
        clean: Sequence[CleanPage] = (),
        keys: Mapping[BackendName, str] = {},
        more: Sequence[tuple[Settings, Comparison]] = (),
    ) -> None:
        """Put down what the backends gave on a page; of a backend that failed its error.

        `keys` are names for all that decided each result; `more` is what further backends gave under other
        settings, compared with the same A.
        """
        import pyarrow as pa

        from dsocr_core.runs.readings import reading_table, rows_table
        from dsocr_core.runs.rows import parity_of

        self._machine.look()
        folder, request = self._opened(), comparison.request
        source, page = page, folder.name_of(page, request.image)
        for picture in clean:
            folder.add_picture(picture)
        rows = []
        for settings, part in [(self.settings, comparison), *more]:
            for result in part.results.values():
                # Whoever goes on with a run directory may do so from another one.
                path = None if self._out is None else result.request.image.absolute()
                files = files_of(result.request)
                rows.append(reading_table(page, result, files, keys.get(result.backend), path))
            for side, error in part.errors.items():
                rows.append(
                    rows_table([_failure(page, source, settings.backend(side), error, request.image)])
                )
        if rows:
            folder.add(pa.concat_tables(rows), parity_of(page, comparison))

    def add_failure(
        self, page: str, backends: Sequence[BackendName], error: str, image: Path | None = None
    ) -> None:
        """A page that could not even be opened."""
        from dsocr_core.reading.parity_records import Difference
        from dsocr_core.runs.readings import rows_table
        from dsocr_core.runs.rows import not_compared_row

        folder = self._opened()
        source, page = page, folder.name_of(page, image)
        rows = rows_table([_failure(page, source, backend, error, image) for backend in backends])
        folder.add(rows, not_compared_row(page, [Difference("failed", error)]) if len(backends) > 1 else None)

    def begin(self) -> None:
        """Mark the run directory as one that is written. Raises StorageError."""
        self._opened().begin()

    def done(self) -> list[Done]:
        """Every page that the run directory has."""
        return self._opened().done()

    @functools.cached_property
    def record(self) -> RunRecord:
        """Describe the run before its first page: nothing measured. Its id does not change later."""
        return self._record(())

    def _opened(self) -> RunFolder:
        if self._folder is None:
            # pyarrow comes with it: only where something is recorded.
            from dsocr_core.runs.run_folder import RunFolder
            from dsocr_core.runs.storage.entries import open_storage

            directory = self._out
            if directory is None:
                storage = open_storage(history_location(self.settings))
                directory = self._exit.enter_context(storage.scratch(self.record.id))
            self._folder = RunFolder(directory)
        return self._folder

    def _described(self, results: Iterable[OcrResult], notes: str | None) -> RunRecord:
        made, first = self._record(results), self.record
        environment = made.environment | {"machine": dict(self._machine.facts())}
        return replace(made, id=first.id, created=first.created, notes=notes, environment=environment)

    def _record(self, results: Iterable[OcrResult]) -> RunRecord:
        from dsocr_core.runs.record import record_run

        made = record_run(self.settings, results, self._command, self._profiled)
        order = {name: place for place, name in enumerate(self.settings.side_names)}
        backends = tuple(sorted(made.backends, key=lambda backend: order.get(backend, len(order))))
        return replace(made, backends=backends)


def _failure(page: str, source: str, backend: BackendName, error: str, image: Path | None) -> dict[str, Any]:
    """The row of a page that a backend could not read."""
    path = None if image is None else name_text(image.absolute())
    texts = {"page": page, "source": source, "path": path, "error": error}
    return {name: text and encodable(text) for name, text in texts.items()} | {"backend": backend}


def save_comparison(
    settings: Settings, comparison: Comparison, cancelled: bool = False, machine: MachineWatch | None = None
) -> str | None:
    """Record one page of the app as a run; None where none is wanted. Raises DsocrError, OSError."""
    if not settings.history:
        return None
    from dsocr_core.page.documents import load_image
    from dsocr_core.reading.clean import clean_pages

    clean: Sequence[CleanPage] = ()
    if settings.clean_pages:
        pictures = [load_image(image, settings.max_pixels) for image in comparison.request.images]
        clean = clean_pages(comparison.request, pictures)
    with RunRecorder(settings, machine=machine) as recorder:
        recorder.cancelled = cancelled
        recorder.add(comparison.request.name, comparison, clean)
    return recorder.id
