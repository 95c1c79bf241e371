"""Runs that come in while a page is shown: when it is drawn with them."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.history import History
from pages.widgets.shared import shown_runs
from tests.support.opened_page import opened


@pytest.mark.parametrize(
    ("ended", "broken", "drawn"),
    [(100.2, (), [*range(105, 160, 5)]), (110, (), [*range(140, 160, 5)]),  # a page stands 3 times as long
     (40.0, (), [*range(105, 160, 5)]),  # it was begun anew and has not come to its end
     (100.2, (100, 105), [*range(110, 160, 5)])],  # what cannot be listed is said, and drawn when it can
)  # fmt: skip
def test_a_page_is_drawn_again_with_runs_that_came_once_it_has_stood(
    monkeypatch: pytest.MonkeyPatch, ended: float, broken: tuple[int, ...], drawn: list[int]
) -> None:
    """The first look, at 100, is while it is drawn; there is another run at each, every 5 s."""
    clock, again, said, looks, state = SimpleNamespace(now=100), list[int](), list[object](), list[Any](), {}

    def refresh() -> None:
        if clock.now in broken:
            raise DsocrError("it cannot be listed")

    def fragment(function: Any, run_every: float) -> Any:
        return lambda *given: (looks.append(lambda: function(*given)), looks[0]())

    monkeypatch.setattr(shown_runs, "time", SimpleNamespace(monotonic=lambda: clock.now))
    monkeypatch.setattr(shown_runs, "rerun_page", lambda: again.append(clock.now))
    monkeypatch.setattr(shown_runs, "show_error", said.append)
    monkeypatch.setattr(shown_runs, "st", SimpleNamespace(session_state=state, fragment=fragment))
    history: Any = SimpleNamespace(refresh=refresh, run_ids=lambda: [str(clock.now)])
    shown_runs.watch(history)
    state["drawn at"] = ended
    for clock.now in range(105, 160, 5):
        if clock.now > ended:
            looks[0]()
    assert again == drawn and len(said) == len(broken)


def test_the_dashboard_says_when_a_page_was_drawn(seeds: History) -> None:
    begun = time.monotonic()
    assert begun < opened("dashboard").session_state["drawn at"] < time.monotonic()
