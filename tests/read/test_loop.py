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

Read = Callable[[int, CancelToken], bool]
"""Reads a page; returns whether it was cancelled on the way."""


class Loop:
    """The loop over pages that are named by their numbers, and what came of it."""

    def __init__(self, count: int, read: Read, meanwhile: bool = False) -> None:
        self.count, self.read_page = count, read
        self.reads_many, self.records_meanwhile = False, meanwhile
        self.taken: list[int] = []
        self.came: list[PageOutcome] = []

    def __len__(self) -> int:
        return self.count

    def read(self, *given: Any) -> Any:
        """Serve as both: a page is taken by its number, and read by its request."""
        if len(given) == 1:
            self.taken.append(given[0])
            return self.take(given[0])
        request, _, cancel = given
        return [Comparison(request)], self.read_page(int(request.name), cancel)

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
            self.came.append(outcome)
            on_page(outcome)

        try:
            read_pages(cast(Sides, self), cast(PageReader, self), heard, in_flight, cancel)
        finally:
            names = [outcome.page.source for outcome in self.came]
        return names


@pytest.mark.parametrize(("in_flight", "meanwhile"), [(1, False), (1, True), (2, False), (5, False)])
def test_pages_come_in_order_whichever_ends_first_and_few_are_in_memory(
    in_flight: int, meanwhile: bool
) -> None:
    last_of_group = [threading.Event() for _ in range(4)]

    class Mixed(Loop):
        def take(self, number: int) -> ReadyPage:
            if number % 5 == 3:
                return PageDone(str(number))
            return PageFailed(str(number), "torn") if number % 5 == 4 else super().take(number)

    def read(number: int, _: CancelToken) -> bool:
        if in_flight == 5 and number % 5 == 0:
            assert last_of_group[number // 5].wait(30)  # the first of five ends last
        if number % 5 == 2:
            last_of_group[number // 5].set()
        return False

    def few(outcome: PageOutcome) -> None:
        number = int(outcome.page.source)
        assert [int(part.request.name) for part in outcome.comparisons] == [number] * (number % 5 < 3)
        assert len(loop.taken) <= number + 1 + in_flight + PREFETCHED

    loop = Mixed(20, read, meanwhile)
    assert loop.run(in_flight, on_page=few) == [str(number) for number in range(20)]
    assert sorted(loop.taken) == list(range(20))


def test_a_drafted_page_is_recorded_while_the_next_one_is_read() -> None:
    second = threading.Event()

    def read(number: int, _: CancelToken) -> bool:
        if number == 1:
            second.set()
        return False

    def recorded(outcome: PageOutcome) -> None:
        assert second.wait(30)

    assert Loop(3, read, meanwhile=True).run(on_page=recorded) == ["0", "1", "2"]


def test_an_error_that_concerns_all_pages_stops_those_in_flight() -> None:
    stopped, second = threading.Event(), threading.Event()

    def read(number: int, stop: CancelToken) -> bool:
        if number == 0:
            assert second.wait(30)
            raise DsocrError("the disk is full")
        second.set()
        if stop.wait(30):
            stopped.set()
        return False

    with pytest.raises(DsocrError, match="the disk is full"):
        Loop(3, read).run(2)
    assert stopped.is_set()


def test_an_error_of_what_records_stops_it() -> None:
    begun: list[int] = []

    def read(number: int, _: CancelToken) -> bool:
        begun.append(number)
        return False

    def fails(_: PageOutcome) -> None:
        raise DsocrError("no room")

    with pytest.raises(DsocrError, match="no room"):
        Loop(100, read).run(on_page=fails)
    assert len(begun) <= 2


@pytest.mark.parametrize(("raises", "came"), [(True, ["0"]), (False, ["0", "1"])])
def test_cancelled_it_gives_what_was_through_and_reads_nothing_more(raises: bool, came: list[str]) -> None:
    """A page of which the first side was through comes too."""
    cancel, begun = CancelToken(), list[int]()

    def read(number: int, _: CancelToken) -> bool:
        begun.append(number)
        if number == 1:
            cancel.set()
            if raises:
                raise Cancelled
        return number == 1

    loop = Loop(50, read)
    with pytest.raises(Cancelled):
        loop.run(1, cancel)
    assert ([outcome.page.source for outcome in loop.came], begun) == (came, [0, 1])


def test_cancelled_after_its_last_page_it_has_read_all() -> None:
    cancel = CancelToken()

    def read(number: int, _: CancelToken) -> bool:
        if number == 2:
            cancel.set()
        return False

    assert Loop(3, read).run(1, cancel) == ["0", "1", "2"]
