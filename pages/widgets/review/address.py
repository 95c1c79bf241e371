"""What the address of the Review page holds: the review, the page and box in it, the filters, the view.

The reviewer's name is not in it, as others open the link: the browser stores that in a cookie. A session has
values of its own beside the widgets', so that a callback finds them whatever was drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

import streamlit as st

from dsocr_core.review.queue import Filters
from dsocr_core.review.verdicts import REVIEWER_LIMIT
from pages.widgets.components.viewer import MODES
from pages.widgets.shared import navigation
from pages.widgets.shared.url_state import Parameter, index_of, linked, show_address, written

TABS = ("Differences", "Text", "Boxes", "Tokens", "Layers", "Inputs", "Timings", "Accuracy", "Whole review")
MANY = ("parity", "verdicts", "kinds", "labels", "presets", "sizes")
"""Filters of which several values may be chosen, as `queue.Filters` names them."""
PARAMETERS: Mapping[str, Parameter] = {
    "review": Parameter(""),
    "page": Parameter(""),
    "box": Parameter(""),
    "failing": Parameter(False),
    **{name: Parameter([]) for name in MANY},
    "text": Parameter(""),
    "mode": Parameter(MODES[0], MODES),
    "tab": Parameter(TABS[0], TABS),
    "onward": Parameter(False),
    "truth": Parameter(""),
}
FILTERS = ("failing", *MANY, "text")
_NO_WIDGET = ("review", "page", "box", "mode")
"""Held beside the session's own names: Streamlit may stop a script whenever it asks the session for one."""
_COOKIE = "dsocr_reviewer"


def key(name: str) -> str:
    """The session's key of a parameter; other pages have names of their own."""
    return f"review {name}"


def values() -> dict[str, Any]:
    """What this session holds: parameters without a widget, the others as they were last drawn."""
    found: dict[str, Any] = st.session_state["review values"]
    return found


def value(name: str) -> Any:
    """As it is; of a widget that is not drawn, as it was."""
    if name not in _NO_WIDGET and key(name) in st.session_state:
        return _held(name, st.session_state[key(name)])
    return _held(name, values()[name])


def _held(name: str, found: Any) -> Any:
    return PARAMETERS[name].held(found) if name in PARAMETERS else found


def put(name: str, new: Any) -> None:
    """Only before the parameter's widget is drawn: in a callback, say."""
    values()[name] = new
    if name not in _NO_WIDGET:
        st.session_state[key(name)] = new


def filters() -> Filters:
    chosen = {name: frozenset(value(name)) for name in MANY}
    return Filters(failing=value("failing"), text=value("text").strip(), **chosen)


def clear_filters() -> None:
    for name in FILTERS:
        put(name, PARAMETERS[name].default)


def used_filters() -> int:
    return sum(value(name) != PARAMETERS[name].default for name in FILTERS)


def show_page(name: str) -> None:
    """Make `name` the page that is shown, nothing selected."""
    values().update(page=name, box="")


def selected(count: int) -> int | None:
    """Index of the selected pair among `count`; the address counts from one."""
    return index_of(str(value("box")), count)


def select(index: Any) -> None:
    put("box", str(index + 1) if isinstance(index, int) else "")


def read() -> None:
    """Make every parameter have its value, before any widget is drawn.

    The address counts in a new session only; later addresses are echoes of the session. Streamlit forgets
    the value of a widget that was not drawn, on another page say: it comes back from here.
    Another page may have asked for a review meanwhile.
    """
    _begin()
    if (asked := navigation.taken_request("review")) is not None:
        open_review(asked["review"])
    here = values()
    for name in (*PARAMETERS, "reviewer"):
        if name in _NO_WIDGET:
            continue
        if key(name) not in st.session_state:
            st.session_state[key(name)] = here[name]
        here[name] = st.session_state[key(name)]


def _begin() -> None:
    if "review values" not in st.session_state:
        cookie = st.context.cookies.get(_COOKIE)
        name = unquote(cookie)[:REVIEWER_LIMIT] if isinstance(cookie, str) else ""
        link = linked(PARAMETERS)
        # Older links say `ours` whichever engine read the run: left out, it is that engine.
        link["review"] = link.get("review", "").replace(":ours", "")
        st.session_state["review values"] = fresh() | link | {"reviewer": name}


def open_review(name: str) -> None:
    """Make that the open review, at its beginning."""
    put("review", name)
    show_page("")
    clear_filters()


def fresh() -> dict[str, Any]:
    """What a session holds to begin with."""
    standard = {name: parameter.default for name, parameter in PARAMETERS.items()}
    # Number of the last action of the viewer that was done, what went wrong, what was done.
    return standard | {
        "reviewer": "", "taken": 0, "problem": "", "notice": "", "drafts": {},
        # A verdict that waits for the name it is given under, and when the name was asked for.
        "pending": None, "asked": 0,
    }  # fmt: skip


def write() -> None:
    """Make the address say what the session holds."""
    show_address("review", written(PARAMETERS, {name: value(name) for name in PARAMETERS}))


def reviewer() -> str:
    return " ".join(value("reviewer").split())


def cookie() -> str:
    """The cookie that makes the browser remember the reviewer's name."""
    return f"{_COOKIE}={quote(reviewer(), safe='')}"
