"""A page's state: typed parameters, most in its address, read from a link once, written after every run.

The session holds the truth and the address follows it. A browser sends its address with every event,
and an event sent before the last answer came brings an old one: reading it again would undo a click.
Streamlit's own binding leaves out what is not drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial
from math import inf
from typing import Any

import duckdb
import streamlit as st
from streamlit.delta_generator import DeltaGenerator
from streamlit.runtime.scriptrunner import get_script_run_ctx

from dsocr_core.base.errors import DsocrError
from pages.widgets.shared import navigation
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
    widget: bool = True
    """True where a widget shows it, under its key; else the page's own code alone reads and sets it."""
    linked: bool = True
    """True where the address holds it."""
    former: tuple[tuple[str, str], ...] = ()
    """Values of older links, and what they are now."""

    def read(self, texts: Sequence[str]) -> Any:
        """The value that the address writes. Raises ValueError when it is none of this parameter's."""
        if isinstance(self.default, list):
            return list(dict.fromkeys(text for text in texts if text))
        text = dict(self.former).get(texts[-1], texts[-1])
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
        return [f"{value:.12g}" if isinstance(value, float) else str(value)]


@dataclass(frozen=True)
class LinkedState:
    """The parameters of one page, each in the session under a name that no other page has.

    The page holds values of its own beside the widgets': Streamlit forgets the value of a widget that was not
    drawn, on another page say, and may stop a script whenever it asks the session for one.
    """

    page: str
    parameters: Mapping[str, Parameter]

    def key(self, name: str) -> str:
        """The session's key of a parameter, and of its widget."""
        return f"{self.page} {name}"

    @property
    def values(self) -> dict[str, Any]:
        """Give what the page holds: parameters without a widget, the others as they were last drawn."""
        found: dict[str, Any] = st.session_state[f"{self.page} values"]
        return found

    def value(self, name: str) -> Any:
        """As it is; of a widget that is not drawn, as it was."""
        parameter, key = self.parameters[name], self.key(name)
        drawn = parameter.widget and key in st.session_state
        return parameter.held(st.session_state[key] if drawn else self.values[name])

    def put(self, name: str, new: Any) -> None:
        """Only before the parameter's widget is drawn: in a callback, say."""
        self.values[name] = new
        if self.parameters[name].widget:
            st.session_state[self.key(name)] = new

    def clear(self, *names: str) -> None:
        """Give parameters their defaults."""
        for name in names:
            self.put(name, self.parameters[name].default)

    def used(self, *names: str) -> int:
        """Count those that have another value than their default."""
        return sum(self.value(name) != self.parameters[name].default for name in names)

    def read(self, first: Callable[[], Mapping[str, Any]] = dict) -> dict[str, Any] | None:
        """Make every parameter have its value, before any widget is drawn; what another page asked for, once.

        The address counts in a new session only, over what `first` gives.
        """
        if f"{self.page} values" not in st.session_state:
            standard = {name: parameter.default for name, parameter in self.parameters.items()}
            link = linked(self.parameters)
            st.session_state[f"{self.page} values"] = standard | {**first()} | link
            self.follow(*link)
        elif (context := get_script_run_ctx()) is not None and context.is_history_navigation:
            context.is_history_navigation = False  # once a run: parts of the page read again
            self._go_back()
        values, drawn = self.values, f"{self.page} view before"  # no parameter has a name of two words
        for name, parameter in self.parameters.items():
            if not parameter.widget:
                continue
            # Once its widget is gone, Streamlit gives the value that a key had before it: not to be believed.
            hidden = parameter.view is not None and parameter.view != st.session_state.get(drawn)
            if hidden or self.key(name) not in st.session_state:
                st.session_state[self.key(name)] = values[name]
            values[name] = parameter.held(st.session_state[self.key(name)])
        st.session_state[drawn] = values.get("view")
        return navigation.taken_request(self.page)

    def _go_back(self) -> None:
        """Take the address on to which the browser went back, or forward."""
        link = linked(self.parameters)
        for name, parameter in self.parameters.items():
            if parameter.linked:
                self.put(name, link.get(name, parameter.default))
        st.session_state[f"{self.page} address sent"] = None

    def number_input(self, place: DeltaGenerator, label: str, name: str, **more: Any) -> None:
        """A field for a number that takes what a link may say, no more."""
        of = self.parameters[name]
        bounds = (None if abs(bound) == inf else type(of.default)(bound) for bound in (of.least, of.most))
        shown = "%g" if isinstance(of.default, float) else "%d"
        place.number_input(label, *bounds, key=self.key(name), format=shown, **more)

    def follow(self, *names: str) -> None:
        """Note that a link, or another page, gave these: `missing` asks whether they are there."""
        st.session_state[f"{self.page} linked"] = {*names}

    def missing(self, name: str, there: Iterable[Any]) -> bool:
        """Tell whether a link that was just followed names what is not there: then nothing else is shown."""
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
        self.clear(name)

    def write(self, usual: Mapping[str, Any] | None = None) -> None:
        """Make the address say what the session holds, the open view uses and is not `usual` here."""
        values = {name: self.value(name) for name in self.parameters}
        usual = usual or {}
        wanted = {
            name: texts for name, texts in written(self.parameters, values).items()
            if values[name] != usual.get(name)
        }  # fmt: skip
        claimed = {name: st.query_params.get_all(name) for name in st.query_params}
        # What the browser claims may be older than what was sent last: both must agree with the session.
        if claimed != wanted or st.session_state.get(f"{self.page} address sent") != wanted:
            st.query_params.from_dict(wanted)
            st.session_state[f"{self.page} address sent"] = wanted


@st.fragment
def part(read: Callable[[], None], drawer: Callable[[], None], write: Callable[[], None]) -> None:
    """A part of a page that its own widgets draw again alone: a tab is chosen without drawing the rest anew.

    The drawer has what the page found in its last whole run; it may not draw into the sidebar.
    """
    read()
    try:
        drawer()
    except (DsocrError, duckdb.Error) as error:
        show_error(error)
    write()


def has_link() -> bool:
    """Tell whether the address says what to show."""
    return bool(st.query_params)


def linked(parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """Read what the address says other than the defaults.

    A value that is foreign here is left for `refused`.
    """
    address = {name: st.query_params.get_all(name) for name in st.query_params}
    found: dict[str, Any] = {}
    for name in address:
        if name not in parameters or not parameters[name].linked:
            refuse(name, address[name][-1])
    for name, parameter in parameters.items():
        if parameter.linked and name in address:
            try:
                found[name] = parameter.read(address[name])
            except ValueError:
                refuse(name, address[name][-1])
    return {name: value for name, value in found.items() if value != parameters[name].default}


def refuse(name: str, value: str) -> None:
    """Note that the address gives a parameter a value that it has not."""
    st.session_state.setdefault(_REFUSED, []).append(f"{name} {value[:60]}")


def refused() -> bool:
    """Say what the address asks for and the page does not know; then nothing else is shown."""
    if found := st.session_state.get(_REFUSED):
        _say(f"This page does not know {', '.join(dict.fromkeys(found))}.", _forget_refused)
    return bool(found)


def _forget_refused() -> None:
    del st.session_state[_REFUSED]


def _say(words: str, forget: Callable[..., None]) -> None:
    show_error(words)
    st.button("Open the page without it", type="primary", key="open without", on_click=forget)


def written(parameters: Mapping[str, Parameter], values: Mapping[str, Any]) -> dict[str, list[str]]:
    """The address for the values of all parameters."""
    return {
        name: parameter.write(values[name])
        for name, parameter in parameters.items()
        if parameter.linked
        and values[name] not in (None, parameter.default)
        and (parameter.view is None or parameter.view == values["view"])
    }


def index_of(text: str, count: int) -> int | None:
    """Index of the chosen one of `count`, which the address counts from one; None when there is none."""
    number = int(text) if text.isdecimal() and len(text) < 10 else 0
    return number - 1 if 0 < number <= count else None
