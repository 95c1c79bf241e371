"""Work beside the reading of a page: once, from its start on, and none for what is known."""

from __future__ import annotations

import threading

import pytest

from dsocr_core.engine.page import Beside


def test_work_runs_once_on_another_thread() -> None:
    threads: list[str] = []

    def work() -> int:
        threads.append(threading.current_thread().name)
        return 7

    beside = Beside(work)
    assert threads == []
    beside.start()
    assert (beside(), beside()) == (7, 7)
    assert len(threads) == 1 and threads[0].startswith("dsocr-beside")


def test_an_error_is_raised_where_the_result_is_wanted() -> None:
    def work() -> int:
        raise ValueError("no hash")

    beside = Beside(work)
    beside.start()
    with pytest.raises(ValueError, match="no hash"):
        beside()


def test_what_is_known_takes_no_thread() -> None:
    before = threading.active_count()
    beside = Beside.known(3)
    beside.start()
    assert beside() == 3 and threading.active_count() == before
