"""A page's state: named parameters, most of them in its address, read from a link once and written after.

The session holds the truth and the address follows it. A browser sends its address with every event, and an
event sent before the last answer came brings an old one: reading it again would undo a click. Streamlit's
own `bind="query-params"` does not do: it writes the label of a choice in place of its value, takes what is
not drawn out of the address, drops a foreign value without a word, and ids of runs, pages and boxes have no
widget at all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import duckdb
import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from dsocr_core.base.errors import DsocrError
from pages.widgets.shared.messages import show_error


@dataclass(frozen=True)
class Parameter:
    """One name of the address: a text, a number, a flag, or several texts (a list), as its default is.

    The default is left out there. A list is written as one name several times over, so that no value needs
    a separator.
    """

    default: Any
    choices: tuple[Any, ...] = ()
    least: float = -inf
    most: float = inf
    widget: bool = True
    """True where a widget shows it, under its key; else the page's own code alone reads and sets it."""
    linked: bool = True
    """True where the address holds it."""

    def read(self, texts: Sequence[str]) -> Any:
        """Value in the address. Raises ValueError when the parameter cannot have it."""
        if isinstance(self.default, list):
            return list(dict.fromkeys(text for text in texts if text))
        if isinstance(self.default, bool):
            return ("off", "on").index(texts[-1]) == 1
        value = type(self.default)(texts[-1])
        if self.choices and value not in self.choices:
            raise ValueError(value)
        if not isinstance(value, str) and not self.least <= value <= self.most:
            raise ValueError(value)
        return value

    def write(self, value: Any) -> list[str]:
        if isinstance(value, list):
            return list(value)
        if isinstance(value, bool):
            return ["on" if value else "off"]
        return [f"{value:.12g}" if isinstance(value, float) else str(value)]


@dataclass(frozen=True)
class LinkedState:
    """The parameters of one page, each in the session under a name that no other page has.

    Those without a widget lie in one plain dict: Streamlit may stop a script whenever it asks the session
    for something, and what belongs together is changed in one step.
    """

    page: str
    parameters: Mapping[str, Parameter]

    def key(self, name: str) -> str:
        """The session's key of a parameter's widget."""
        return f"{self.page} {name}"

    def bound(self, name: str) -> dict[str, Any]:
        """Arguments of the widget that shows a parameter."""
        return {"key": self.key(name), "persist_state": "session"}

    @property
    def values(self) -> dict[str, Any]:
        """Give the parameters without a widget."""
        found: dict[str, Any] = st.session_state[self.key("values")]
        return found

    @property
    def _usual(self) -> dict[str, Any]:
        """Values that the page chose by itself."""
        found: dict[str, Any] = st.session_state.setdefault(self.key("usual values"), {})
        return found

    def value(self, name: str) -> Any:
        parameter = self.parameters[name]
        found = st.session_state.get(self.key(name)) if parameter.widget else self.values[name]
        return parameter.default if found is None else found

    def put(self, name: str, new: Any) -> None:
        """Only before the parameter's widget is drawn: in a callback, say."""
        if self.parameters[name].widget:
            st.session_state[self.key(name)] = new
        else:
            self.values[name] = new

    def clear(self, *names: str) -> None:
        """Give parameters their defaults."""
        for name in names:
            self.put(name, self.parameters[name].default)

    def used(self, *names: str) -> int:
        """Count those that have another value than their default."""
        return sum(self.value(name) != self.parameters[name].default for name in names)

    def read(self, first: Callable[[], Mapping[str, Any]] = dict) -> None:
        """Make every parameter have its value, before any widget is drawn.

        The address counts in a new session, and where the browser went back or forward, over what `first`
        gives; what another page asked for counts once, over both.
        """
        session, context = st.session_state, get_script_run_ctx()
        new = self.key("values") not in session
        if new or (context is not None and context.is_history_navigation):
            if context is not None:
                context.is_history_navigation = False  # once a run: parts of the page read again
            begun = {**first()}
            found = {name: of.default for name, of in self.parameters.items() if new or of.linked}
            found |= begun | self._link()
            session[self.key("usual values")] = {} if st.query_params else begun
            for name, each in found.items():
                if self.parameters[name].widget:
                    session[self.key(name)] = each
            own = {name: each for name, each in found.items() if not self.parameters[name].widget}
            session[self.key("values")] = own if new else self.values | own
        if asked := session.pop(f"{self.page} request", {}):
            self.clear(*(name for name, of in self.parameters.items() if of.linked))
        for name, each in asked.items():
            if not (choices := self.parameters[name].choices) or each in choices:
                self.put(name, each)

    def _link(self) -> dict[str, Any]:
        """Read the address. Unknown values are noted."""
        found = {}
        for name in st.query_params:
            texts = st.query_params.get_all(name)
            try:
                if not self.parameters[name].linked:
                    raise KeyError(name)
                found[name] = self.parameters[name].read(texts)
            except (KeyError, ValueError):
                self._note(name, texts[-1])
        return found

    def _note(self, name: str, value: str) -> None:
        st.session_state.setdefault(self.key("notes"), []).append(f"{name} {value[:100]}")

    def show_notes(self) -> None:
        """Say what a link asks for and this page has not, until it is dismissed."""
        if notes := st.session_state.get(self.key("notes")):
            named = ", ".join(dict.fromkeys(notes))
            show_error(f"Not there, or not readable, so left out of the link: {named}.")
            st.button("Dismiss", key=self.key("dismiss"), on_click=notes.clear)

    def settle(self, name: str, there: Collection[Any], usual: Any = "") -> None:
        """Give a parameter that is empty, or names what is not there, its usual value; the latter is said."""
        value = self.value(name)
        wanted = value if isinstance(value, list) else [value] if value else []
        missing = [each for each in wanted if each not in there]
        for each in missing:
            self._note(name, each)
        if missing or not value:
            usual = [each for each in value if each in there] if isinstance(value, list) else usual
            self.choose(name, usual)
        if missing:
            st.rerun()

    def choose(self, name: str, usual: Any) -> None:
        """Give a parameter the value that the page has by itself: an address without others stays bare."""
        self._usual[name] = usual
        if usual != self.value(name):
            self.put(name, usual)

    def write(self, standard: Mapping[str, Any] | None = None) -> None:
        """Make the address say what the session holds, other than `standard` here.

        It stays bare while the page shows what it chose by itself: so that one can go back from it.
        """
        values = {name: self.value(name) for name, of in self.parameters.items() if of.linked}
        standard = {name: self.parameters[name].default for name in values} | {**(standard or {})}
        wanted = {
            name: self.parameters[name].write(each) for name, each in values.items()
            if each != standard[name]
        }  # fmt: skip
        if all(each == self._usual.get(name, standard[name]) for name, each in values.items()):
            wanted = {}
        claimed = {name: st.query_params.get_all(name) for name in st.query_params}
        # What the browser claims may be older than what was sent last: both must agree with the session.
        if claimed != wanted or st.session_state.get(self.key("address sent")) != wanted:
            st.query_params.from_dict(wanted)
            st.session_state[self.key("address sent")] = wanted


def go(page: str, /, **asked: Any) -> None:
    """Open another page as a link with these values would."""
    st.session_state[f"{page} request"] = asked
    st.switch_page(f"{page}.py")


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
