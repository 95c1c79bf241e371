"""State of a page that shows a pair: page, sheet in a prompt, selected block; actions of the viewer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import streamlit as st

from pages.widgets.components import MODES
from pages.widgets.shared.url_state import LinkedState, Parameter

TABS = ("Differences", "Cause", "Details")
PAIR_PARAMETERS = {
    **{name: Parameter("", widget=False) for name in ("page", "box", "sheet")},
    "mode": Parameter(MODES[0], MODES, widget=False),
    "tab": Parameter(TABS[0], TABS, widget=False),
    # number of the last action of the viewer that was done
    "taken": Parameter(0, widget=False, linked=False),
}


@dataclass(frozen=True)
class PairState(LinkedState):
    """State of a page that shows a pair. Its link counts sheets and blocks from one."""

    def show_page(self, name: str) -> None:
        """Make `name` the page that is shown, nothing selected, from the next run on."""
        self.values.update(page=name, box="", sheet="")

    def sheet(self, count: int) -> int:
        """The page shown of those in one prompt."""
        return index_of(self.value("sheet"), count) or 0

    def selected(self, count: int) -> int | None:
        """Index of the selected row among `count`."""
        return index_of(self.value("box"), count)

    def select(self, index: int | None) -> None:
        self.put("box", "" if index is None else str(index + 1))

    def new_actions(self, key: str) -> list[tuple[int, str, str]]:
        """Actions of the viewer after the last one done: number, act, and the page that was shown then."""
        state: Any = st.session_state.get(key)
        actions = state.get("actions") if state else None
        found = []
        for action in actions if isinstance(actions, list) else []:
            number = action.get("n") if isinstance(action, dict) else None
            if isinstance(number, int) and number > self.values["taken"]:
                found.append((number, str(action.get("act") or ""), str(action.get("subject") or "")))
        return found


def index_of(text: str, count: int) -> int | None:
    """Index of the chosen one of `count`, which the address counts from one; None when there is none."""
    number = int(text) if text.isdecimal() and len(text) < 10 else 0
    return number - 1 if 0 < number <= count else None
