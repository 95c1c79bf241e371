"""One page through both backends: request -> results -> comparison, each result in the result cache."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import torch

from dsocr_core.backends.folder import FolderBackend
from dsocr_core.backends.in_process import InProcess
from dsocr_core.backends.local import LocalBackends, shared_checkpoint
from dsocr_core.backends.protocol import OnWait, OpenedBackend
from dsocr_core.backends.registry import Opening, open_backend
from dsocr_core.engine.page import PreparedPage
from dsocr_core.engine.source import OnResult, Source
from dsocr_core.engine.stage_timer import Marks
from dsocr_core.errors import Cancelled, DsocrError
from dsocr_core.outputs.comparison import Comparison
from dsocr_core.predictions.by_name import LeftOver
from dsocr_core.records import (
    SIDES,
    VENDOR,
    BackendName,
    CancelToken,
    Observer,
    OcrRequest,
    OcrResult,
    Side,
)
from dsocr_core.settings import Settings

__all__ = ["PageCancelled", "Pipeline", "shared_checkpoint"]

log = logging.getLogger(__name__)


class PageCancelled(Cancelled):
    """A comparison was cancelled after one of its backends was through: `finished` is what that one gave."""

    def __init__(self, finished: Comparison) -> None:
        super().__init__()
        self.finished = finished


class Pipeline(LocalBackends):
    """Both sides of a comparison: the settings' engine and the vendor, or the backends that they name."""

    def __init__(
        self,
        settings: Settings,
        results: Path | None = None,
        marks: Marks = Marks.TIMED,
        ignore_eos: bool = False,
        caches: bool = True,
    ) -> None:
        super().__init__(settings, results, marks, ignore_eos, caches)
        options = (("marks", marks), ("ignore_eos", ignore_eos), ("caches", caches))
        self._opening = Opening(settings, results, options)
        self._opened: dict[Side, OpenedBackend] = {}
        self._opening_one = threading.Lock()

    def side(self, side: Side) -> OpenedBackend:
        """What reads a page as that side; nothing is loaded by this. Raises DsocrError."""
        with self._opening_one:
            if side not in self._opened:
                spec = self.settings.spec(side)
                self._opened[side] = (
                    open_backend(spec, self.settings, self._opening)
                    if self.settings.names_backend(side)
                    else InProcess(self, spec.kind)
                )
            return self._opened[side]

    def check(self, sides: Iterable[Side]) -> None:
        """Say what is wrong for every page before a model is loaded. Raises DsocrError."""
        for side in sides:
            self.side(side).check()

    def load(self, sides: Iterable[Side]) -> None:
        """Have the sides ready for their first page. Raises DsocrError."""
        for side in sides:
            self.side(side).load()

    def key(self, side: Side, request: OcrRequest) -> str:
        """A name for all that decides a side's result on a page. Raises DsocrError."""
        return self.side(side).key(self.request_of(side, request))

    def request_of(self, side: Side, request: OcrRequest) -> OcrRequest:
        """The request of a side that was named: its own settings decide it."""
        if not self.settings.names_backend(side):
            return request
        return self.side(side).settings.request(request.image, request.source)

    def left_over(self, sides: Iterable[Side]) -> dict[BackendName, LeftOver]:
        """By backend, what lies in folders and belongs to no page that was read. Raises DsocrError."""
        found = {}
        for side in sides:
            backend = self.side(side)
            if isinstance(backend, FolderBackend) and (left := backend.left_over()):
                found[backend.name] = left
        return found

    def concurrency(self, sides: Iterable[Side]) -> int:
        """Pages that may be on their way at once: those of the side that takes the most."""
        return max(self.side(side).concurrency for side in sides)

    def prepared(self, request: OcrRequest) -> PreparedPage | None:
        """A's preprocessing of a page before its turn, on any thread; None unless A is one of our engines."""
        backend = self.side("a")
        if not isinstance(backend, InProcess) or backend.reads == VENDOR:
            return None
        return backend.local.prepare(self.request_of("a", request))

    @property
    def reads_together(self) -> bool:
        """Whether A can read many pages at once."""
        backend = self.side("a")
        return isinstance(backend, InProcess) and backend.reads == "fast"

    def read_together(
        self,
        source: Source,
        on_result: OnResult,
        slots: int,
        cancel: CancelToken | None = None,
        on_wait: OnWait | None = None,
    ) -> None:
        backend = self.side("a")
        if not isinstance(backend, InProcess) or backend.local is self:
            super().read_together(source, on_result, slots, cancel, on_wait)
            return

        def named(key: object, outcome: OcrResult | DsocrError) -> None:
            if isinstance(outcome, OcrResult):
                outcome = replace(outcome, backend=backend.name)
            on_result(key, outcome)

        backend.local.read_together(source, named, slots, cancel, on_wait)

    def close(self) -> None:
        """Stop workers and connections; give the memory of pages read together back."""
        with self._opening_one:
            opened, self._opened = self._opened, {}
        for backend in opened.values():
            if not (isinstance(backend, InProcess) and backend.local is self):
                backend.close()
        super().close()

    def _read(
        self,
        side: Side,
        request: OcrRequest,
        observer: Observer | None,
        cancel: CancelToken | None,
        on_wait: OnWait | None,
        prepared: PreparedPage | None,
    ) -> OcrResult:
        backend = self.side(side)
        own = self.request_of(side, request)
        if isinstance(backend, InProcess):
            return backend.recognize(own, observer, cancel, on_wait, prepared)
        return backend.recognize(own, observer, cancel, on_wait)

    def compare(
        self,
        request: OcrRequest,
        sides: Iterable[Side] = SIDES,
        observers: dict[Side, Observer] | None = None,
        cancel: CancelToken | None = None,
        on_wait: OnWait | None = None,
        prepared: PreparedPage | None = None,
    ) -> Comparison:
        """Run the sides one after the other. A side's error is in the comparison, not raised.

        `prepared` is what `prepare` gave for the same request.

        Raises Cancelled when `cancel` is set: PageCancelled where a side was through by then.
        """
        results: dict[Side, OcrResult] = {}
        errors: dict[Side, str] = {}

        def comparison() -> Comparison:
            a, b = results.get("a"), results.get("b")
            return Comparison(request, a, b, errors, tolerance=self.settings.tolerance)

        for side in sides:
            try:
                observer = (observers or {}).get(side)
                results[side] = self._read(side, request, observer, cancel, on_wait, prepared)
            except Cancelled as stop:
                if results or errors:
                    raise PageCancelled(comparison()) from stop
                raise
            except DsocrError as error:
                errors[side] = str(error)
                if tail := getattr(error, "stderr_tail", ""):
                    log.warning("the vendor worker's last words:\n%s", tail)
            except torch.cuda.OutOfMemoryError:
                errors[side] = f"{request.name}: the GPU is out of memory; choose a smaller preset"
        return comparison()
