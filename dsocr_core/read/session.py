"""The backends of some settings, opened: A and B, or A and several B. Torch comes with the first page."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr_core.backends.backend import Backend, OnWait, Opening, open_backend
from dsocr_core.base.errors import Cancelled, page_error
from dsocr_core.base.uses import Closed, Uses
from dsocr_core.engine.source import OnResult, Source
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import SIDES, BackendName, CancelToken, Observer, OcrRequest, OcrResult, Side
from dsocr_core.runs.result_cache import LOCAL_KINDS, ResultCache
from dsocr_core.settings import Settings

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
                self._opened[side] = open_backend(self.settings.spec(side), self.settings, self._opening)
            return self._opened[side]

    def check(self, sides: Iterable[Side] = SIDES, together: bool = False) -> None:
        """Say what is wrong for every page before a model is loaded; `together` where several are in one
        prompt. Raises DsocrError.
        """
        for side in sides:
            self.side(side).check(together)

    def load(self, sides: Iterable[Side] = SIDES) -> None:
        """Prepare the sides' backends for their first page. Raises DsocrError."""
        with self._uses.use():
            for side in sides:
                self.side(side).load()

    def request_of(self, side: Side, request: OcrRequest) -> OcrRequest:
        """The request as a side reads it: the settings of a side that is named decide."""
        if getattr(self.settings, side) is None:
            return request
        more = request.more if request.together else None
        own = self.side(side).settings.request(request.image, request.source, more)
        return replace(own, file=request.file, more_files=request.more_files)

    def cache_key(self, side: Side, request: OcrRequest) -> str:
        """Hash of all that decides a side's result on a page. Raises DsocrError."""
        return self.side(side).cache_key(self.request_of(side, request))

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
        """Add results of a run directory to the result cache, by their keys."""
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
        found = Comparison(request, a, tolerance=self.settings.tolerance)
        cancel = cancel or CancelToken()
        with self._uses.use(cancel.set):
            for side in sides:
                try:
                    backend, own = self.side(side), self.request_of(side, request)
                    ready = prepared if side == "a" or (prepared and prepared.image is None) else None
                    result = backend.read(own, (observers or {}).get(side), cancel, on_wait, ready)
                    found = replace(found, a=result) if side == "a" else replace(found, b=result)
                except Closed:
                    raise
                except Cancelled as stop:
                    if found.results or found.errors:
                        raise PageCancelled(found) from stop
                    raise
                except Exception as error:  # noqa: BLE001 - whatever a page does to us, the others are read
                    found.errors[side] = str(page_error(error, request.name))
                    if tail := getattr(error, "stderr_tail", ""):
                        log.warning("the vendor worker's last words:\n%s", tail)
        return found

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


@dataclass(frozen=True)
class Sides:
    """A of the first session and the B of each, under settings as `settings_against` gives them."""

    sessions: Sequence[Session]
    compared: bool = True  # False for A alone
    observer: Callable[[str], Observer] | None = None
    """Maker of the observer of `work`: names of a page and its backend."""

    @property
    def first(self) -> Session:
        """A's session."""
        return self.sessions[0]

    @property
    def readers(self) -> list[tuple[Session, Side]]:
        """Every backend, A's first."""
        others: list[tuple[Session, Side]] = [(session, "b") for session in self.sessions]
        return [(self.first, "a"), *(others if self.compared else ())]

    @property
    def names(self) -> tuple[BackendName, ...]:
        """Names of the backends, A's first."""
        return tuple(session.settings.backend(side) for session, side in self.readers)

    @property
    def reads_many(self) -> bool:
        """Tell whether pages are read together, in the slots of a batch: A alone may do so."""
        return not self.compared and self.first.side("a").reads_many

    @property
    def concurrency(self) -> int:
        """Pages that may be read at once: those of the side that takes the most."""
        return max(session.side(side).concurrency for session, side in self.readers)

    def check(self, together: bool, pages: Sequence[str]) -> None:
        """Say what is wrong for every page before a model is loaded, and tell all sides the pages' names.

        `together`: several pages are in one prompt. Raises DsocrError.
        """
        for number, session in enumerate(self.sessions):
            session.check(self._sides(number), together)
        for session, side in self.readers:
            session.side(side).expect(pages)

    def load(self) -> None:
        """Prepare all backends for their first page. Raises DsocrError."""
        for session, side in self.readers:
            session.load((side,))

    def keys(self, request: OcrRequest) -> dict[BackendName, str]:
        """Keys of the results by backend: all that decides them. Raises DsocrError."""
        return {session.side(side).name: session.cache_key(side, request) for session, side in self.readers}

    def read(
        self, request: OcrRequest, prepared: PreparedPage | None, cancel: CancelToken
    ) -> tuple[list[Comparison], bool]:
        """Compare A, which reads once, with each B; and whether that was cancelled on the way.

        Cancelled, the later comparisons have A alone. Raises Cancelled where no side was through by then.
        """
        found: list[Comparison] = []
        cancelled = False
        try:
            for number, session in enumerate(self.sessions):
                sides = self._sides(number)
                observers = self._observers(session, sides, request.name)
                a = found[0].a if found else None
                found.append(session.compare(request, sides, observers, cancel, None, prepared, a))
        except PageCancelled as end:
            found, cancelled = [*found, end.finished], True
        except Cancelled:
            if not found:
                raise
            cancelled = True
        first, *others = found
        of_a: dict[Side, str] = {side: why for side, why in first.errors.items() if side == "a"}
        alone = Comparison(request, first.a, errors=of_a)
        whole = [first, *(replace(each, errors=of_a | each.errors) for each in others)]
        return whole + [alone] * (len(self.sessions) - len(whole)), cancelled

    def left_over(self) -> dict[BackendName, Mapping[str, Sequence[str]]]:
        """Texts in folders that no page has asked for, by backend. Raises DsocrError."""
        backends = [session.side(side) for session, side in self.readers]
        return {backend.name: left for backend in backends if (left := backend.left_over())}

    def _sides(self, number: int) -> tuple[Side, ...]:
        """Sides that a session reads itself."""
        return SIDES[number > 0 :] if self.compared else SIDES[:1]

    def _observers(self, session: Session, sides: Sequence[Side], page: str) -> dict[Side, Observer]:
        """Watch the stages of a page; of several pages at once a line of progress cannot tell."""
        if self.observer is None or self.concurrency > 1:
            return {}
        return {side: self.observer(f"{page} {session.side(side).name}") for side in sides}
