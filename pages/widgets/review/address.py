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


def _own(default: Any) -> Parameter:
    """Make a parameter that no link and no widget has."""
    return Parameter(default, widget=False, linked=False)


PARAMETERS: Mapping[str, Parameter] = {
    **PAIR_PARAMETERS,
    "review": Parameter("", widget=False),
    "show": Parameter([]),
    "reviewer": Parameter("", linked=False),
    # what went wrong, what was done; a verdict that waits for a name, and when the name was asked for
    "problem": _own(""), "notice": _own(""), "pending": _own(()), "asked": _own(0),
}  # fmt: skip
STATE = PairState("review", PARAMETERS)
key, value, put = STATE.key, STATE.value, STATE.put
_COOKIE = "dsocr_reviewer"


def first() -> dict[str, Any]:
    """A new session has its reviewer's name from the cookie."""
    name = st.context.cookies.get(_COOKIE)
    if key("reviewer") in st.session_state or not isinstance(name, str):
        return {}
    return {"reviewer": unquote(name)[:REVIEWER_LIMIT]}


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
