"""The run that a command or the app leaves: in a directory of its own, in the history, or in both."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from dsocr_core.base.errors import Cancelled, one_line
from dsocr_core.base.sanitise import encodable
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import SIDES, OcrResult
from dsocr_core.reading.writing import require_writable
from dsocr_core.runs.machine import MachineWatch
from dsocr_core.settings import Settings, history_location

if TYPE_CHECKING:
    from dsocr_core.reading.clean import CleanPage
    from dsocr_core.runs.record import RunRecord
    from dsocr_core.runs.rows import PageResults
    from dsocr_core.runs.run_directory import CountRows, Done, RunDirectory

CANCELLED = "Cancelled: it holds what was finished by then."
"""The note of such a run."""


class Recording:
    """Makes a run of its pages when the block ends, however it ends; without a page none is written.

    A run that was cancelled, or ended by an error, says so. Nothing of a page stays in memory.
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
        """`machine` has watched since the first page began; left out it watches from now on. `out` is a
        directory of its own; `save` writes the run into the history; `count` gives rows of stage_flops."""
        self.settings, self._command, self._profiled = settings, command, profiled
        self._machine = machine or MachineWatch()
        self._out, self._save, self._count = out, save, count
        self._exit = ExitStack()
        self.cancelled = False
        """True where it ended before its time, which its record says then."""
        self.id: str | None = None
        """The run's id in the history, once it is there."""

    def __enter__(self) -> Recording:
        """Say what cannot be written before the first page is read; take up what a writer that was killed
        left. Raises DsocrError."""
        location = history_location(self.settings)
        if self._save and "://" not in location:
            require_writable(Path(location))
        if self._out is not None:
            self._exit.callback(self.run.close)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._exit:
            if "run" not in vars(self):
                return
            if not self.run.has_parts:
                self.run.discard()
                return
            notes = None
            if self.cancelled or (kind is not None and issubclass(kind, Cancelled | KeyboardInterrupt)):
                notes = CANCELLED
            elif error is not None:
                notes = f"Ended by an error, with what was finished by then: {encodable(one_line(error))}"
            self._finish(notes)

    @functools.cached_property
    def record(self) -> RunRecord:
        """Describe the run before its first page: nothing measured. Its id does not change later."""
        return self._described(())

    @functools.cached_property
    def run(self) -> RunDirectory:
        """Run that is written; one of the history is made when this is first asked for."""
        # pyarrow comes with it: only where something is recorded.
        from dsocr_core.runs.run_directory import RunDirectory

        if self._out is not None:
            return RunDirectory.open(self._out)
        run = RunDirectory.create(history_location(self.settings), self.record)
        self._exit.callback(run.close)
        return run

    def add(self, source: str, comparison: Comparison, **more: Any) -> None:
        """Put down what A and B gave on a page; `more` is as `PageResults` has it. Raises StorageError."""
        from dsocr_core.runs.rows import PageResults

        names = dict(zip(SIDES, self.settings.side_names, strict=True))
        self.add_page(PageResults.of(source, comparison, names, **more))

    def add_page(self, page: PageResults) -> None:
        """Put down what any backends gave on a page. Raises StorageError."""
        self._machine.look()
        self.run.add(page)

    def done(self) -> list[Done]:
        """Every page that the directory has."""
        return self.run.done()

    def _finish(self, notes: str | None) -> None:
        """Only now all results are there, what they agree on, and what the machine was doing meanwhile."""
        from dsocr_core.runs.record import new_run_id
        from dsocr_core.runs.storage import Storage

        run = self.run
        made = self._measured(run.facts(continued=False), notes)
        whole = self._measured(run.facts(continued=True), notes) if run.continues else made
        if self._out is None:
            run.finish(made, self._count)
        elif not self._save:
            run.finish(whole)
            return
        else:
            storage = Storage(history_location(self.settings))
            with storage.scratch(made.id) as copy:
                if run.continues:  # the history has what was read now: another run than the whole
                    run.write(made, copy, continued=False, count=self._count)
                    whole = replace(whole, id=new_run_id())
                run.finish(whole, self._count)
                run.copy_to(copy)
                storage.publish(copy, made.id)
        self.id = made.id

    def _measured(self, results: Iterable[OcrResult], notes: str | None) -> RunRecord:
        made, first = self._described(results), self.record
        environment = made.environment | {"machine": dict(self._machine.facts())}
        return replace(made, id=first.id, created=first.created, notes=notes, environment=environment)

    def _described(self, results: Iterable[OcrResult]) -> RunRecord:
        from dsocr_core.runs.record import record_run

        made = record_run(self.settings, results, self._command, self._profiled)
        order = {name: place for place, name in enumerate(self.settings.side_names)}
        backends = tuple(sorted(made.backends, key=lambda backend: order.get(backend, len(order))))
        return replace(made, backends=backends)


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
    with Recording(settings, machine=machine) as recording:
        recording.cancelled = cancelled
        recording.add(comparison.request.name, comparison, clean=clean)
    return recording.id
