"""The state of the Review page: the review, page and box in it, the filters, the view, the reviewer's own.

The reviewer's name is not in the address, as others open the link: the browser stores it in a cookie.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

import streamlit as st

from dsocr_core.review.queue import Filters
from dsocr_core.review.verdicts import REVIEWER_LIMIT
from pages.widgets.components.viewer import MODES
from pages.widgets.shared.url_state import LinkedState, Parameter, index_of

TABS = ("Differences", "Text", "Boxes", "Tokens", "Layers", "Inputs", "Timings", "Whole review")
MANY = ("parity", "verdicts", "kinds")
"""Filters of which several values may be chosen, as `queue.Filters` names them."""
FILTERS = ("failing", *MANY)


def _own(default: Any, widget: bool = False) -> Parameter:
    """Make a parameter that no link holds."""
    return Parameter(default, widget=widget, linked=False)


PARAMETERS: Mapping[str, Parameter] = {
    "review": Parameter("", widget=False),
    "page": Parameter("", widget=False),
    "box": Parameter("", widget=False),
    "sheet": Parameter("", widget=False),
    "view": Parameter("Page", ("Page", "Grid")),
    "failing": Parameter(False),
    **{name: Parameter([]) for name in MANY},
    "mode": Parameter(MODES[0], MODES, widget=False),
    "tab": Parameter(TABS[0], TABS),
    "onward": Parameter(False),
    "reviewer": _own("", widget=True),
    # number of the last action of the viewer that was done, what went wrong, what was done
    "taken": _own(0), "problem": _own(""), "notice": _own(""),
    # words that are typed and not recorded; a verdict that waits for a name, and when the name was asked for
    "drafts": _own(None), "pending": _own(None), "asked": _own(0),
}  # fmt: skip
_STATE = LinkedState("review", PARAMETERS)
key, value, put, write = _STATE.key, _STATE.value, _STATE.put, _STATE.write
_COOKIE = "dsocr_reviewer"


def values() -> dict[str, Any]:
    """Give what this session holds, to be changed in one step."""
    return _STATE.values


def filters() -> Filters:
    parity, verdicts, kinds = (frozenset(value(name)) for name in MANY)
    return Filters(failing=value("failing"), parity=parity, verdicts=verdicts, kinds=kinds)


def clear_filters() -> None:
    _STATE.clear(*FILTERS)


def used_filters() -> int:
    return _STATE.used(*FILTERS)


def show_page(name: str) -> None:
    """Make `name` the page that is shown, nothing selected."""
    values().update(page=name, box="", sheet="")


def sheet(count: int) -> int:
    """The page shown of so many in one prompt; the address counts from one."""
    return index_of(str(value("sheet")), count) or 0


def show_sheet(number: int) -> None:
    values().update(sheet=str(number + 1), box="")


def selected(count: int) -> int | None:
    """Index of the selected pair among `count`; the address counts from one."""
    return index_of(str(value("box")), count)


def select(index: Any) -> None:
    put("box", str(index + 1) if isinstance(index, int) else "")


def read() -> None:
    """Make every parameter have its value; another page may have asked for a review."""
    if (asked := _STATE.read(_first)) is not None:
        open_review(asked["review"])


def _first() -> dict[str, Any]:
    cookie = st.context.cookies.get(_COOKIE)
    return {"reviewer": unquote(cookie)[:REVIEWER_LIMIT] if isinstance(cookie, str) else "", "drafts": {}}


def open_review(name: str) -> None:
    """Make that the open review, at its beginning."""
    put("review", name)
    show_page("")
    clear_filters()


def reviewer() -> str:
    return " ".join(value("reviewer").split())


def cookie() -> str:
    """The cookie that makes the browser remember the reviewer's name."""
    return f"{_COOKIE}={quote(reviewer(), safe='')}"
