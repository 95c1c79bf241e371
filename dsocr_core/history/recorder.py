"""What `run`, `compare` and the app leave in the history: one run, written when it ends."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from dsocr_core.errors import Cancelled, one_line
from dsocr_core.history.machine import MachineWatch
from dsocr_core.outputs.comparison import Comparison
from dsocr_core.outputs.writing import require_writable
from dsocr_core.outside.visible import encodable
from dsocr_core.records import BackendName, OcrResult
from dsocr_core.settings import Settings, history_location

if TYPE_CHECKING:
    from dsocr_core.history.record import RunRecord
    from dsocr_core.history.writer import RunWriter
    from dsocr_core.outputs.clean import CleanPage

CANCELLED = "Cancelled: it holds what was finished by then."
"""The note of such a run."""


class RunRecorder:
    """Collects pages and makes them a run of the history when the block ends, however it ends.

    A run that was cancelled, or ended by an error, says so. Without a page none is written. Memory grows by
    a page's rows, not by its pixels.
    """

    def __init__(
        self,
        settings: Settings,
        command: str | None = None,
        profiled: bool = False,
        machine: MachineWatch | None = None,
    ) -> None:
        """`machine` has watched since the first page began; left out it watches from now on."""
        self.settings, self._command, self._profiled = settings, command, profiled
        self._machine = machine or MachineWatch()
        self._writer: RunWriter | None = None
        self._facts: list[OcrResult] = []
        self.cancelled = False
        """Whether it ended before its time, which its record says then."""
        self.id: str | None = None
        """The run's id in the history, once it is there."""

    def __enter__(self) -> RunRecorder:
        """Say what cannot be written before the first page is read. Raises DsocrError."""
        location = history_location(self.settings)
        if "://" not in location:
            require_writable(Path(location))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        writer = self._writer
        if writer is None:
            return
        notes = None
        if self.cancelled or (kind is not None and issubclass(kind, Cancelled | KeyboardInterrupt)):
            notes = CANCELLED
        elif error is not None:
            notes = f"Ended by an error, with what was finished by then: {encodable(one_line(error))}"
        # Only now all results are there, what they agree on, and what the machine was doing meanwhile.
        made = self._record()
        writer.record = replace(
            made,
            id=writer.record.id,
            created=writer.record.created,
            notes=notes,
            environment=made.environment | {"machine": dict(self._machine.facts())},
        )
        with writer:
            pass
        self.id = writer.record.id

    def add(
        self,
        page: str,
        comparison: Comparison,
        clean: CleanPage | None = None,
    ) -> None:
        """What the backends gave on a page; of a backend that failed its error."""
        self._machine.look()
        writer = self._open()
        if clean is not None:
            writer.add_clean(clean)
        for result in comparison.results.values():
            writer.add_result(page, result)
            self._facts.append(replace(result, text_raw="", token_ids=None, token_texts=(), top_two=()))
        for side, error in comparison.errors.items():
            writer.add_failure(page, self.settings.backend(side), error)
        if comparison.report is not None:
            writer.add_parity(page, comparison.report)
        elif comparison.compared:
            writer.add_not_compared(page, comparison.reasons)

    def add_failure(self, page: str, backends: tuple[BackendName, ...], error: str) -> None:
        """A page that could not even be opened."""
        writer = self._open()
        for backend in backends:
            writer.add_failure(page, backend, error)
        if len(backends) > 1:
            writer.add_not_compared(page, [error])

    @functools.cached_property
    def record(self) -> RunRecord:
        """What describes the run before its first page: nothing measured. Its id does not change later."""
        return self._record()

    def _open(self) -> RunWriter:
        if self._writer is None:
            # pyarrow comes with it: only where something is recorded.
            from dsocr_core.history.storage.entries import open_storage
            from dsocr_core.history.writer import RunWriter

            self._writer = RunWriter(open_storage(history_location(self.settings)), self.record)
        return self._writer

    def _record(self) -> RunRecord:
        from dsocr_core.history.record import record_run

        made = record_run(self.settings, self._facts, self._command, self._profiled)
        order = {name: place for place, name in enumerate(self.settings.side_names)}
        backends = tuple(sorted(made.backends, key=lambda backend: order.get(backend, len(order))))
        return replace(made, backends=backends)


def save_comparison(
    settings: Settings,
    comparison: Comparison,
    cancelled: bool = False,
    machine: MachineWatch | None = None,
) -> str | None:
    """Record one page of the app as a run; None where none is wanted. Raises DsocrError, OSError."""
    if not settings.history:
        return None
    from dsocr_core.inputs.documents import load_image
    from dsocr_core.outputs.clean import clean_page

    clean = None
    if settings.clean_pages:
        picture = load_image(comparison.request.image, settings.max_pixels)
        clean = clean_page(comparison.request, picture)
    with RunRecorder(settings, machine=machine) as recorder:
        recorder.cancelled = cancelled
        recorder.add(comparison.request.name, comparison, clean)
    return recorder.id
