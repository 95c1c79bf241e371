"""The state of the Review page: the review, page and block in it, the chips, the reviewer's own.

The reviewer's name is not in the address, as others open the link: the browser stores it in a cookie.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, unquote

import streamlit as st

from dsocr_core.review.verdicts import REVIEWER_LIMIT
from pages.widgets.pair.state import PAIR_PARAMETERS, PairState
from pages.widgets.shared.url_state import Parameter


def _own(default: Any, widget: bool = False) -> Parameter:
    """Make a parameter that no link has."""
    return Parameter(default, widget=widget, linked=False)


PARAMETERS: Mapping[str, Parameter] = {
    **PAIR_PARAMETERS,
    "review": Parameter("", widget=False),
    "show": Parameter([]),
    "reviewer": _own("", widget=True),
    # number of the last action of the viewer that was done, what went wrong, what was done
    "taken": _own(0), "problem": _own(""), "notice": _own(""),
    # a verdict that waits for a name, and when the name was asked for
    "pending": _own(None), "asked": _own(0),
}  # fmt: skip
STATE = PairState("review", PARAMETERS)
key, value, put, write = STATE.key, STATE.value, STATE.put, STATE.write
_COOKIE = "dsocr_reviewer"


def values() -> dict[str, Any]:
    """State of this session, to be changed in one step."""
    return STATE.values


def read() -> None:
    """Give every parameter its value; another page may have asked for a review."""
    if (asked := STATE.read(_first)) is not None:
        open_review(asked["review"])


def _first() -> dict[str, Any]:
    cookie = st.context.cookies.get(_COOKIE)
    return {"reviewer": unquote(cookie)[:REVIEWER_LIMIT] if isinstance(cookie, str) else ""}


def open_review(name: str) -> None:
    """Open a review at its grid."""
    put("review", name)
    put("show", [])
    STATE.show_page("")


def reviewer() -> str:
    return " ".join(value("reviewer").split())


def cookie() -> str:
    """The cookie that makes the browser remember the reviewer's name."""
    return f"{_COOKIE}={quote(reviewer(), safe='')}"
