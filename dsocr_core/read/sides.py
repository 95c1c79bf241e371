"""The backends that read each page of a run: A alone, A and B, or A and several B."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dsocr_core.base.errors import Cancelled
from dsocr_core.engine.source import OnResult, Source
from dsocr_core.read.session import PageCancelled, Session
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import SIDES, BackendName, CancelToken, Observer, OcrRequest, Side
from dsocr_core.runs.texts import UnmatchedTexts

if TYPE_CHECKING:
    from dsocr_core.engine.page import PreparedPage


@dataclass(frozen=True)
class Sides:
    """A of the first session and the B of each, under settings as `settings_against` gives them."""

    sessions: Sequence[Session]
    compared: bool = True  # False for A alone
    observer: Callable[[str], Observer] | None = None
    """Gives the observer of `work`, a page's name and its backend's."""

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
    def records_meanwhile(self) -> bool:
        """Tell whether a page is recorded while the next is read: a drafted page is read for its speed."""
        return self.reads_many and bool(self.first.settings.draft)

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
        """Have all sides ready for their first page. Raises DsocrError."""
        for session, side in self.readers:
            session.load((side,))

    def keys(self, request: OcrRequest) -> dict[BackendName, str]:
        """By backend a name for all that decides its result. Raises DsocrError."""
        return {session.side(side).name: session.key(side, request) for session, side in self.readers}

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

    def read_many(self, source: Source, on_result: OnResult, slots: int, cancel: CancelToken) -> None:
        """Read all pages of a source as A. Raises as `Backend.read_many`."""
        self.first.read_many("a", source, on_result, slots, cancel)

    def left_over(self) -> dict[BackendName, UnmatchedTexts]:
        """By backend, what lies in folders and belongs to no page that was read. Raises DsocrError."""
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
