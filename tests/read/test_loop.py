"""Pages to results: in order, a few at a time, each once, and what ends the loop."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.engine.page import PreparedPage
from dsocr_core.read.loop import PREFETCHED, read_each
from dsocr_core.read.prefetch import PageDone, PageFailed, PageToRead, ReadyPage
from dsocr_core.reading.records import CancelToken, OcrRequest

PIXELS = PreparedPage(Image.new("RGB", (4, 4)))


def page(number: int) -> PageToRead:
    return PageToRead(str(number), OcrRequest(Path(str(number))), {}, PIXELS)


@pytest.mark.parametrize(("concurrency", "beside"), [(1, False), (1, True), (2, False), (5, False)])
def test_pages_come_in_order_whichever_ends_first_and_few_are_held(concurrency: int, beside: bool) -> None:
    taken: list[int] = []
    last_of_group = [threading.Event() for _ in range(4)]

    def take(number: int) -> ReadyPage:
        taken.append(number)
        if number % 5 == 3:
            return PageDone(str(number))
        return PageFailed(str(number), "torn") if number % 5 == 4 else page(number)

    def read(one: PageToRead, stop: CancelToken) -> int:
        number = int(one.source)
        if concurrency == 5 and number % 5 == 0:
            assert last_of_group[number // 5].wait(30)  # the first of five ends last
        if number % 5 == 2:
            last_of_group[number // 5].set()
        return number

    for number, (came, outcome) in enumerate(read_each(take, 20, read, concurrency, None, beside)):
        assert came.source == str(number)
        assert outcome == (number if number % 5 < 3 else None)
        assert len(taken) <= number + 1 + concurrency + PREFETCHED
    assert sorted(taken) == list(range(20))


def test_beside_the_next_page_is_read_before_the_last_one_is_taken() -> None:
    second = threading.Event()

    def read(one: PageToRead, stop: CancelToken) -> int:
        if one.source == "1":
            second.set()
        return 0

    with closing(read_each(page, 3, read, beside=True)) as outcomes:
        next(outcomes)
        assert second.wait(30)


def test_an_error_that_concerns_all_pages_stops_those_in_flight() -> None:
    stopped, second = threading.Event(), threading.Event()

    def read(one: PageToRead, stop: CancelToken) -> int:
        if one.source == "0":
            assert second.wait(30)
            raise DsocrError("the disk is full")
        second.set()
        if stop.wait(30):
            stopped.set()
        return 1

    with pytest.raises(DsocrError, match="the disk is full"):
        list(read_each(page, 3, read, 2))
    assert stopped.is_set()


def test_left_early_it_stops() -> None:
    begun: list[str] = []

    def read(one: PageToRead, stop: CancelToken) -> int:
        begun.append(one.source)
        if one.source != "0":
            assert stop.wait(30)
            raise Cancelled
        return 0

    with closing(read_each(page, 100, read)) as outcomes:
        assert next(outcomes)[1] == 0
    assert len(begun) <= 2


def test_cancelled_it_gives_what_was_through_and_reads_nothing_more() -> None:
    cancel, begun = CancelToken(), list[str]()

    def read(one: PageToRead, stop: CancelToken) -> int:
        begun.append(one.source)
        if one.source == "1":
            cancel.set()
            raise Cancelled
        return 0

    came: list[str] = []
    with pytest.raises(Cancelled):
        for one, _ in read_each(page, 50, read, 1, cancel):
            came.append(one.source)
    assert (came, begun) == (["0"], ["0", "1"])
