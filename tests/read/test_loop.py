"""Pages to results: in order, a few at a time, each once, and what ends the loop."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from PIL import Image

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.engine.page import PreparedPage
from dsocr_core.read.loop import PREFETCHED, PageOutcome, read_pages
from dsocr_core.read.prefetch import PageDone, PageFailed, PageReader, PageToRead, ReadyPage
from dsocr_core.read.session import Sides
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import CancelToken, OcrRequest


class Loop:
    """Stands in for the sides and for the pages, which are named by their numbers.

    `act` reads a page and returns whether it was cancelled on the way.
    """

    reads_many = False

    def __init__(self, count: int, act: Callable[[int, CancelToken], object]) -> None:
        self.count, self.act = count, act
        self.taken, self.came = list[int](), list[str]()

    def __len__(self) -> int:
        return self.count

    def read(self, first: Any, *more: Any) -> Any:
        if not more:
            self.taken.append(first)
            return self.take(first)
        return [Comparison(first)], bool(self.act(int(first.name), more[1]))

    def take(self, number: int) -> ReadyPage:
        pixels = PreparedPage(Image.new("RGB", (4, 4)))
        return PageToRead(str(number), OcrRequest(Path(str(number))), {}, pixels)

    def run(
        self,
        in_flight: int = 1,
        cancel: CancelToken | None = None,
        on_page: Callable[[PageOutcome], object] = lambda _: None,
    ) -> list[str]:
        def heard(outcome: PageOutcome) -> None:
            self.came.append(outcome.page.source)
            on_page(outcome)

        read_pages(cast(Sides, self), cast(PageReader, self), heard, in_flight, cancel)
        return self.came


@pytest.mark.parametrize("in_flight", [1, 5])
def test_pages_come_in_order_whichever_ends_first_and_few_are_in_memory(in_flight: int) -> None:
    last_of_group = [threading.Event() for _ in range(4)]

    class Mixed(Loop):
        def take(self, number: int) -> ReadyPage:
            if number % 5 == 3:
                return PageDone(str(number))
            return PageFailed(str(number), "torn") if number % 5 == 4 else super().take(number)

    def act(number: int, _: CancelToken) -> None:
        if in_flight == 5 and number % 5 == 0:
            assert last_of_group[number // 5].wait(30)  # the first of five ends last
        if number % 5 == 2:
            last_of_group[number // 5].set()

    def few(outcome: PageOutcome) -> None:
        number = int(outcome.page.source)
        assert [int(part.request.name) for part in outcome.comparisons] == [number] * (number % 5 < 3)
        assert len(loop.taken) <= number + 1 + in_flight + PREFETCHED

    loop = Mixed(20, act)
    assert loop.run(in_flight, on_page=few) == [str(number) for number in range(20)]
    assert sorted(loop.taken) == list(range(20))


def test_an_error_that_concerns_all_pages_stops_those_in_flight() -> None:
    stopped, second = threading.Event(), threading.Event()

    def act(number: int, stop: CancelToken) -> None:
        if number == 0:
            assert second.wait(30)
            raise DsocrError("the disk is full")
        second.set()
        if stop.wait(30):
            stopped.set()

    with pytest.raises(DsocrError, match="the disk is full"):
        Loop(3, act).run(2)
    assert stopped.is_set()


def test_an_error_of_what_records_stops_it() -> None:
    begun: list[int] = []

    def fails(_: PageOutcome) -> None:
        raise DsocrError("no room")

    with pytest.raises(DsocrError, match="no room"):
        Loop(100, lambda number, _: begun.append(number)).run(on_page=fails)
    assert len(begun) <= 2


@pytest.mark.parametrize(
    ("count", "at", "raises", "came"),
    [(50, 1, True, ["0"]), (50, 1, False, ["0", "1"]), (3, 2, None, ["0", "1", "2"])],
)
def test_cancelled_it_gives_what_was_through_and_reads_nothing_more(
    count: int, at: int, raises: bool | None, came: list[str]
) -> None:
    """A page of which the first side was through comes too; after the last page nothing is cancelled."""
    cancel, begun = CancelToken(), list[int]()

    def act(number: int, _: CancelToken) -> bool:
        begun.append(number)
        if number == at:
            cancel.set()
            if raises:
                raise Cancelled
        return number == at and raises is not None

    loop = Loop(count, act)
    if raises is None:
        loop.run(1, cancel)
    else:
        with pytest.raises(Cancelled):
            loop.run(1, cancel)
    assert (loop.came, begun) == (came, [*range(at + 1)])
