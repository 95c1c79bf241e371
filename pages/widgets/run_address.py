"""What the address of the Runs page keeps: the filters, the chosen runs and what is looked at of them.

As in `address`, the session holds the truth and the address follows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Any

import streamlit as st

VIEWS = ("Runs", "Trash", "Import")
TABS = ("Settings", "Environment", "Tags and notes", "Reproduce")
PROFILED = {"any": None, "no": False, "yes": True}
MANY = ("road", "engine", "gpu", "dtype", "preset", "commit", "tag", "source")
"""Filters of which several values may be chosen; the history's own names for them end in s."""


@dataclass(frozen=True)
class Parameter:
    """One name of the address; its default is left out there and says what type it is.

    A text, a flag, several texts (a list), or a date (None when there is none).
    """

    default: str | bool | list[str] | None
    choices: tuple[str, ...] = ()

    def read(self, texts: list[str]) -> Any:
        """The value that the address writes. Raises ValueError when it is none of this parameter's."""
        if isinstance(self.default, list):
            return list(dict.fromkeys(texts))
        text = texts[-1]
        if isinstance(self.default, bool):
            return text == "on"
        if self.default is None:
            return date.fromisoformat(text)
        if self.choices and text not in self.choices:
            raise ValueError(text)
        return text

    def write(self, value: Any) -> list[str]:
        if isinstance(value, bool):
            return ["on" if value else "off"]
        return list(value) if isinstance(value, list) else [str(value)]


PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter(VIEWS[0], VIEWS),
    "text": Parameter(""),
    **{name: Parameter([]) for name in MANY},
    "profiled": Parameter("any", tuple(PROFILED)),
    "since": Parameter(None),
    "until": Parameter(None),
    "runs": Parameter([]),
    "tab": Parameter(TABS[0], TABS),
    "all": Parameter(False),
}
FILTERS = ("text", *MANY, "profiled", "since", "until")


def key(name: str) -> str:
    """The session's key of a parameter; other pages have names of their own."""
    return f"runs {name}"


def value(name: str) -> Any:
    return st.session_state[key(name)]


def put(name: str, new: Any) -> None:
    """Only before the parameter's widget is drawn: in a callback, say."""
    st.session_state[key(name)] = new


def clear_filters() -> None:
    for name in FILTERS:
        put(name, PARAMETERS[name].default)


def filtered() -> bool:
    return any(value(name) != PARAMETERS[name].default for name in FILTERS)


def read() -> None:
    """Make every parameter have its value, before any widget is drawn.

    The address counts in a new session only; later addresses are echoes of the session. Streamlit forgets
    the value of a widget that was not drawn, on another page say: it comes back from what was kept.
    """
    kept: dict[str, Any] | None = st.session_state.get("runs kept")
    if kept is None:
        kept = st.session_state["runs kept"] = _linked()
    for name, parameter in PARAMETERS.items():
        if key(name) not in st.session_state:
            put(name, kept.get(name, parameter.default))
        kept[name] = value(name)


def _linked() -> dict[str, Any]:
    """What the address says; a name or a value that is foreign here is ignored."""
    linked: dict[str, Any] = {}
    for name, parameter in PARAMETERS.items():
        if name in st.query_params:
            with suppress(ValueError):
                linked[name] = parameter.read(st.query_params.get_all(name))
    return linked


def write() -> None:
    """Make the address say what the session holds."""
    wanted = {
        name: parameter.write(value(name))
        for name, parameter in PARAMETERS.items()
        if value(name) is not None and value(name) != parameter.default
    }
    told = {name: st.query_params.get_all(name) for name in st.query_params}
    # What the browser claims may be older than what it was told last: both must agree with the session.
    if told != wanted or st.session_state.get("runs told") != wanted:
        st.query_params.from_dict(wanted)
        st.session_state["runs told"] = wanted
