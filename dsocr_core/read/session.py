"""The backends of some settings, opened: A and B, one page through both. Torch comes with the first page."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr_core.backends.backend import Backend, OnWait, Opening
from dsocr_core.backends.registry import open_backend
from dsocr_core.base.error_log import page_error
from dsocr_core.base.errors import Cancelled
from dsocr_core.base.uses import Closed, Uses
from dsocr_core.engine.source import OnResult, Source
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import SIDES, BackendName, CancelToken, Observer, OcrRequest, OcrResult, Side
from dsocr_core.runs.result_cache import LOCAL_KINDS, ResultCache
from dsocr_core.settings import DRAFT_OF_A, Settings, SettingsError

if TYPE_CHECKING:
    from dsocr_core.engine.page import PreparedPage
    from dsocr_core.engine.stage_timer import Marks

log = logging.getLogger(__name__)


class PageCancelled(Cancelled):
    """A comparison was cancelled after one of its backends was through: `finished` is what that one gave."""

    def __init__(self, finished: Comparison) -> None:
        super().__init__()
        self.finished = finished


class Session:
    """Both sides of a comparison: the settings' engine and the published code, or the backends they name.

    Thread-safe, `close` too: what other threads read is cancelled, and nothing is opened after it.
    """

    def __init__(self, settings: Settings, opening: Opening | None = None) -> None:
        self.settings, self._opening = settings, opening or Opening()
        self._opened: dict[Side, Backend] = {}
        self._uses = Uses("the session")
        self._opening_one = threading.Lock()

    @property
    def marks(self) -> Marks:
        """Give the marks that our engines' stages leave."""
        from dsocr_core.engine.stage_timer import Marks

        return self._opening.marks or Marks.TIMED

    def side(self, side: Side) -> Backend:
        """Give what reads a page as that side; nothing is loaded by this. Raises DsocrError."""
        with self._opening_one:
            self._uses.check()
            if side not in self._opened:
                settings = self.settings
                if settings.draft == DRAFT_OF_A and side == "a":
                    settings = replace(settings, draft="")  # A is read before it can draft anything
                self._opened[side] = open_backend(settings.spec(side), settings, self._opening)
            return self._opened[side]

    def check(self, sides: Iterable[Side] = SIDES, together: bool = False) -> None:
        """Say what is wrong for every page before a model is loaded; `together` where several are in one
        prompt. Raises DsocrError.
        """
        sides = tuple(sides)
        if self.settings.draft == DRAFT_OF_A and ("b" not in sides or self.settings.spec("b").kind != "fast"):
            raise SettingsError("draft a: B of a comparison verifies what A read; give --b fast")
        for side in sides:
            if together:
                self.side(side).check_together()
            self.side(side).check()

    def load(self, sides: Iterable[Side] = SIDES) -> None:
        """Have the sides ready for their first page. Raises DsocrError."""
        with self._uses.use():
            for side in sides:
                self.side(side).load()

    def request_of(self, side: Side, request: OcrRequest) -> OcrRequest:
        """The request of a side that was named: its own settings decide it."""
        if not self.settings.names_backend(side):
            return request
        more = request.more if request.together else None
        own = self.side(side).settings.request(request.image, request.source, more)
        return replace(own, file=request.file, more_files=request.more_files)

    def key(self, side: Side, request: OcrRequest) -> str:
        """A name for all that decides a side's result on a page. Raises DsocrError."""
        return self.side(side).key(self.request_of(side, request))

    def prepared(self, request: OcrRequest, opened: PreparedPage | None = None) -> PreparedPage | None:
        """The page opened and preprocessed for A before its turn, on any thread. Raises DsocrError."""
        with self._uses.use():
            return self.side("a").prepare(self.request_of("a", request), opened)

    def recorded(self, request: OcrRequest, sides: Iterable[Side] = SIDES) -> Comparison | None:
        """Find what the sides gave for the same page before, if all of them have it. Opens no backend."""
        return ResultCache(self.settings, self._opening.results).find(request, sides)

    @property
    def cached(self) -> set[BackendName]:
        """The backends whose results the result cache takes."""
        if not self._opening.cached:
            return set()
        specs = [self.settings.spec(side) for side in SIDES]
        return {spec.name for spec in specs if spec.kind in LOCAL_KINDS}

    def link(self, keys: Iterable[str], run: Path) -> None:
        """Have the rows of these keys in a run directory found by `recorded`."""
        ResultCache(self.settings, self._opening.results).link(keys, run)

    def compare(
        self,
        request: OcrRequest,
        sides: Iterable[Side] = SIDES,
        observers: Mapping[Side, Observer] | None = None,
        cancel: CancelToken | None = None,
        on_wait: OnWait | None = None,
        prepared: PreparedPage | None = None,
        a: OcrResult | None = None,
    ) -> Comparison:
        """Run the sides one after the other. A side's error is in the comparison, not raised.

        `prepared` is the page's picture, or what `prepared` gave, which is for A alone; `a` is what A read,
        where that was before.

        Raises Cancelled when `cancel` is set, by `close` too: PageCancelled where a side was through by then.
        """
        results: dict[Side, OcrResult] = {} if a is None else {"a": a}
        errors: dict[Side, str] = {}

        def comparison() -> Comparison:
            tolerance = self.settings.tolerance
            return Comparison(request, results.get("a"), results.get("b"), errors, tolerance=tolerance)

        cancel = cancel or CancelToken()
        with self._uses.use(cancel.set):
            for side in sides:
                try:
                    backend, own = self.side(side), self.request_of(side, request)
                    if side == "b" and "a" in results:
                        backend.told(own, results["a"])
                    ready = prepared if side == "a" or (prepared and prepared.image is None) else None
                    results[side] = backend.read(own, (observers or {}).get(side), cancel, on_wait, ready)
                except Closed:
                    raise
                except Cancelled as stop:
                    if results or errors:
                        raise PageCancelled(comparison()) from stop
                    raise
                except Exception as error:  # noqa: BLE001 - whatever a page does to us, the others are read
                    errors[side] = str(page_error(error, request.name))
                    if tail := getattr(error, "stderr_tail", ""):
                        log.warning("the vendor worker's last words:\n%s", tail)
        return comparison()

    def read_many(
        self, side: Side, source: Source, on_result: OnResult, slots: int, cancel: CancelToken
    ) -> None:
        """Read all pages of a source as that side. Raises as `Backend.read_many`."""
        with self._uses.use(cancel.set):
            self.side(side).read_many(source, on_result, slots, cancel)

    def close(self) -> None:
        """Cancel and await what other threads read; end workers, give memory back. May be repeated."""
        self._uses.end()
        with self._opening_one:
            opened, self._opened = self._opened, {}
        for backend in opened.values():
            backend.close()
