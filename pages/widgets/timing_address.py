"""What the address of the Timing page keeps: all of its state, so that a view can be linked.

As in `address`, the session holds the truth and the address follows it. A list is written as one name
several times over, so that no value needs a separator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from typing import Any

import streamlit as st

VIEWS = ("Stages", "Trend", "A against B", "Kernels")
FILTERS = ("road", "engine", "gpu", "preset", "dtype", "source", "commit", "tag")
"""Lists of values that runs may have, an empty one standing for any. The history's own names end in s."""


@dataclass(frozen=True)
class Parameter:
    """One name of the address; its default is left out there and says what type it is, None being a day."""

    default: Any
    choices: tuple[str, ...] = ()
    least: float = 0
    most: float = 0
    view: str | None = None
    """The only view that it means something to; None for all."""

    def read(self, texts: Sequence[str]) -> Any:
        """The value that the address writes. Raises ValueError when it is none of this parameter's."""
        if isinstance(self.default, tuple):
            return [text for text in texts if text]
        if not texts:
            raise ValueError("not given")
        text = texts[-1]
        if self.default is None:
            return date.fromisoformat(text)
        if isinstance(self.default, bool):
            if text not in ("on", "off"):
                raise ValueError(text)
            return text == "on"
        value = type(self.default)(text)
        if (self.choices and value not in self.choices) or (
            not isinstance(value, str) and not self.least <= value <= self.most
        ):
            raise ValueError(text)
        return value

    def write(self, value: Any) -> str | list[str]:
        if isinstance(self.default, tuple):
            return list(value)
        if isinstance(value, bool):
            return "on" if value else "off"
        return f"{value:g}" if isinstance(value, float) else str(value)


PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter(VIEWS[0], VIEWS),
    # which runs there are to look at
    **{name: Parameter(()) for name in FILTERS},
    "profiled": Parameter(False),
    "since": Parameter(None),
    "until": Parameter(None),
    # Stages
    "runs": Parameter((), view="Stages"),
    "every": Parameter(False, view="Stages"),
    # Trend
    "stage": Parameter("decode", view="Trend"),
    "trend_road": Parameter("ours", view="Trend"),
    "page": Parameter("", view="Trend"),
    "axis": Parameter("run", ("run", "time"), view="Trend"),
    # A against B
    "a": Parameter("", view="A against B"),
    "b": Parameter("", view="A against B"),
    "road_a": Parameter("", view="A against B"),
    "road_b": Parameter("", view="A against B"),
    "neutral": Parameter(2.0, (), 0, 50, view="A against B"),
    "of": Parameter("decode", view="A against B"),
    # Kernels
    "run": Parameter("", view="Kernels"),
    "part": Parameter("", view="Kernels"),
    "top": Parameter(15, (), 5, 50, view="Kernels"),
}


def key(name: str) -> str:
    """The session's key of a parameter; other pages have names of their own."""
    return f"timing {name}"


def value(name: str) -> Any:
    return st.session_state[key(name)]


def put(name: str, new: Any) -> None:
    """Give a parameter a value; before its widget is drawn."""
    st.session_state[key(name)] = new


def chosen(name: str) -> bool:
    """Whether the reader, or the link that was followed, has chosen this one; else it is ours to choose."""
    return name in st.session_state["timing chosen"]


def choose(*names: str) -> None:
    """Note that the reader has chosen these."""
    st.session_state["timing chosen"] |= {*names}


def read() -> None:
    """Make every parameter have its value, before any widget is drawn.

    The address counts in a new session only; later addresses are echoes of the session. Streamlit forgets
    the value of a widget that was not drawn, on another page say: it comes back from what was kept.
    """
    kept: dict[str, Any] | None = st.session_state.get("timing kept")
    if kept is None:
        kept = st.session_state["timing kept"] = _linked()
        st.session_state["timing chosen"] = set(kept)
    for name, parameter in PARAMETERS.items():
        if key(name) not in st.session_state:
            default = [] if isinstance(parameter.default, tuple) else parameter.default
            put(name, kept.get(name, default))
        kept[name] = value(name)


def _linked() -> dict[str, Any]:
    """What the address says; a name or a value that is foreign here is ignored."""
    linked: dict[str, Any] = {}
    for name, parameter in PARAMETERS.items():
        with suppress(ValueError):
            linked[name] = parameter.read(st.query_params.get_all(name))
    return {name: value for name, value in linked.items() if value != []}


def write() -> None:
    """Make the address say what the session holds and the open view uses."""
    wanted: dict[str, str | list[str]] = {}
    for name, parameter in PARAMETERS.items():
        here = value(name)
        empty = here is None or here == [] or here == parameter.default
        if not empty and parameter.view in (None, value("view")):
            wanted[name] = parameter.write(here)
    # What the browser claims may be older than what it was told last: both must agree with the session.
    claimed = {name: st.query_params.get_all(name) for name in st.query_params}
    listed = {name: [text] if isinstance(text, str) else text for name, text in wanted.items()}
    if claimed != listed or st.session_state.get("timing told") != wanted:
        st.query_params.from_dict(wanted)
        st.session_state["timing told"] = wanted
