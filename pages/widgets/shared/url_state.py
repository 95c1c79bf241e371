"""A page's state that its address holds: typed parameters, read from a link once, written after every run.

The session holds the truth and the address follows it. A browser sends its address with every event,
and an event sent before the last answer came brings an old one: reading it again would undo a click.
Streamlit's own binding leaves out what is not drawn (docs/decisions/0038).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from math import inf
from typing import Any

import streamlit as st

from pages.widgets.shared.messages import show_error

_REFUSED = "link refused"


@dataclass(frozen=True)
class Parameter:
    """One name of the address; its default is left out there and says what type it is.

    A text, a number, a flag, a day (None when there is none), or several texts (a list). A list is written
    as one name several times over, so that no value needs a separator.
    """

    default: Any
    choices: tuple[Any, ...] = ()
    least: float = -inf
    most: float = inf
    view: str | None = None
    """The only view that it means something to; None for all."""

    def read(self, texts: Sequence[str]) -> Any:
        """The value that the address writes. Raises ValueError when it is none of this parameter's."""
        if isinstance(self.default, list):
            return list(dict.fromkeys(text for text in texts if text))
        text = texts[-1]
        if self.default is None:
            return date.fromisoformat(text)
        if isinstance(self.default, bool):
            return ("off", "on").index(text) == 1
        value = type(self.default)(text)
        if self.choices and value not in self.choices:
            raise ValueError(text)
        if not isinstance(value, str) and not self.least <= value <= self.most:
            raise ValueError(text)
        return value

    def held(self, value: Any) -> Any:
        """A session's value; of a flag or a choice that Streamlit says is None, the default."""
        return self.default if value is None and (isinstance(self.default, bool) or self.choices) else value

    def write(self, value: Any) -> list[str]:
        if isinstance(self.default, list):
            return list(value)
        if isinstance(value, bool):
            return ["on" if value else "off"]
        return [f"{value:g}" if isinstance(value, float) else str(value)]


@dataclass(frozen=True)
class LinkedState:
    """The parameters of one page, each in the session under a name that no other page has."""

    page: str
    parameters: Mapping[str, Parameter]

    def key(self, name: str) -> str:
        """The session's key of a parameter, and of its widget."""
        return f"{self.page} {name}"

    def value(self, name: str) -> Any:
        return self.parameters[name].held(st.session_state[self.key(name)])

    def put(self, name: str, new: Any) -> None:
        """Only before the parameter's widget is drawn: in a callback, say."""
        st.session_state[self.key(name)] = new

    def read(self) -> None:
        """Make every parameter have its value, before any widget is drawn.

        The address counts in a new session only. Streamlit forgets the value of a widget that was not
        drawn, on another page say: it comes back from here.
        """
        values: dict[str, Any] | None = st.session_state.get(f"{self.page} values")
        if values is None:
            values = st.session_state[f"{self.page} values"] = linked(self.parameters)
            self.follow(*values)
        for name, parameter in self.parameters.items():
            if self.key(name) not in st.session_state:
                self.put(name, values.get(name, parameter.default))
            values[name] = self.value(name)

    def follow(self, *names: str) -> None:
        """Note that a link, or another page, gave these: `missing` asks whether they are there."""
        st.session_state[f"{self.page} linked"] = {*names}

    def missing(self, name: str, there: Iterable[Any]) -> bool:
        """Whether a link that was just followed names what is not there: then nothing else is shown."""
        followed: set[str] = st.session_state[f"{self.page} linked"]
        value = self.value(name)
        if name not in followed or {*(value if isinstance(value, list) else [value])} <= {*there}:
            followed.discard(name)
            return False
        return True

    def say_missing(self, name: str, words: str) -> None:
        """Say that a link names what is not there, and offer the page without it."""
        value = self.value(name)
        named = ", ".join(value) if isinstance(value, list) else str(value)
        _say(f"{words[:1].upper()}{words[1:]} {named[:100]} is not there.", partial(self._forget, name))

    def _forget(self, name: str) -> None:
        st.session_state[f"{self.page} linked"].discard(name)
        self.put(name, self.parameters[name].default)

    def write(self) -> None:
        """Make the address say what the session holds and the open view uses."""
        show_address(
            self.page, written(self.parameters, {name: self.value(name) for name in self.parameters})
        )


def linked(parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """What the address says beside the defaults; a value that is foreign here is left for `refused`."""
    found: dict[str, Any] = {}
    for name, parameter in parameters.items():
        if name in st.query_params:
            try:
                found[name] = parameter.read(st.query_params.get_all(name))
            except ValueError:
                refuse(name, st.query_params[name])
    return {name: value for name, value in found.items() if value != parameters[name].default}


def refuse(name: str, value: str) -> None:
    """Note that the address gives a parameter a value that it has not."""
    st.session_state.setdefault(_REFUSED, []).append(f"{name} {value[:60]}")


def refused() -> bool:
    """Say what the address asks for and the page does not know; then nothing else is shown."""
    if found := st.session_state.get(_REFUSED):
        _say(f"This page does not know {', '.join(found)}.", partial(st.session_state.pop, _REFUSED, None))
    return bool(found)


def _say(words: str, forget: Callable[[], object]) -> None:
    show_error(words)
    st.button("Open the page without it", type="primary", key="open without", on_click=forget)


def written(parameters: Mapping[str, Parameter], values: Mapping[str, Any]) -> dict[str, list[str]]:
    """The address for the values of all parameters."""
    return {
        name: parameter.write(values[name])
        for name, parameter in parameters.items()
        if values[name] not in (None, parameter.default)
        and (parameter.view is None or parameter.view == values["view"])
    }


def show_address(page: str, wanted: Mapping[str, list[str]]) -> None:
    """Make that the address."""
    claimed = {name: st.query_params.get_all(name) for name in st.query_params}
    # What the browser claims may be older than what was sent last: both must agree with the session.
    if claimed != wanted or st.session_state.get(f"{page} address sent") != wanted:
        st.query_params.from_dict(wanted)
        st.session_state[f"{page} address sent"] = wanted


def index_of(text: str, count: int) -> int | None:
    """Index of the chosen one of `count`, which the address counts from one; None when there is none."""
    number = int(text) if text.isdecimal() and len(text) < 10 else 0
    return number - 1 if 0 < number <= count else None
