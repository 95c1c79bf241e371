"""Runs that come in while a page is shown: when it is drawn with them."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest
import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.history import History
from pages.widgets.shared import shown_runs
from tests.support.opened_page import opened


class Busy:
    """A history that has another run each time one looks."""

    def __init__(self) -> None:
        self.runs, self.broken = list[str](), False

    def refresh(self) -> None:
        if self.broken:
            raise DsocrError("it cannot be listed")
        self.runs.append(f"run {len(self.runs)}")

    def run_ids(self) -> list[str]:
        return [*self.runs]


class Tab:
    """A page of a tab: seconds that went by, and when it was drawn again."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.history, self.again, self.said = 100.0, Busy(), list[float](), list[object]()
        self.state: dict[str, Any] = {}
        monkeypatch.setattr(shown_runs, "time", SimpleNamespace(monotonic=lambda: self.now))
        monkeypatch.setattr(shown_runs, "rerun_page", lambda: self.again.append(self.now))
        monkeypatch.setattr(shown_runs, "show_error", self.said.append)
        monkeypatch.setattr(st, "session_state", self.state)
        monkeypatch.setattr(st, "fragment", self._fragment)

    def _fragment(self, function: Any, run_every: float) -> Any:
        def first(*given: Any) -> None:
            self.look = lambda: function(*given)
            self.look()

        return first

    def draw(self, seconds: float) -> None:
        shown_runs.watch(self.history)  # type: ignore[arg-type]
        self.now += seconds
        self.state["drawn at"] = self.now

    def looks(self, until: int) -> None:
        for self.now in range(105, until, 5):
            if self.now > self.state.get("drawn at", 0):
                self.look()


@pytest.fixture
def tab(monkeypatch: pytest.MonkeyPatch) -> Tab:
    return Tab(monkeypatch)


@pytest.mark.parametrize(("seconds", "first"), [(0.2, 105), (10, 140)])
def test_a_page_stands_three_times_as_long_as_it_was_drawn(tab: Tab, seconds: float, first: int) -> None:
    tab.draw(seconds)
    tab.looks(until=160)
    assert tab.again == [*range(first, 160, 5)]


def test_runs_that_come_while_a_page_begins_do_not_begin_it_again(tab: Tab) -> None:
    tab.draw(0.2)
    assert tab.history.runs and tab.again == []


def test_a_page_that_did_not_come_to_its_end_is_drawn_again_with_the_next_run(tab: Tab) -> None:
    tab.state["drawn at"] = 40.0
    shown_runs.watch(tab.history)  # type: ignore[arg-type]
    tab.looks(until=110)
    assert tab.again == [105]


def test_a_history_that_can_be_read_again_is_drawn(tab: Tab) -> None:
    tab.history.broken = True
    tab.draw(0.2)
    tab.looks(until=110)
    assert len(tab.said) == 2 and tab.again == []
    tab.history.broken = False
    tab.look()
    assert tab.again == [105]


def test_the_dashboard_says_when_a_page_was_drawn(seeds: History) -> None:
    begun = time.monotonic()
    assert begun < opened("dashboard").session_state["drawn at"] < time.monotonic()
