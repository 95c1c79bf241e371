"""What the page's address keeps, so that a view can be linked: the page, how it is read, what is shown of it.

As in `url_state`, the session holds the truth and the address follows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import get_args

import streamlit as st

from dsocr_core.records import SIDES
from dsocr_core.resolution import PRESETS
from dsocr_core.settings import Attention, Dtype
from pages.widgets.compare import backends, example
from pages.widgets.components.viewer.payload import MODES
from pages.widgets.shared import navigation
from pages.widgets.shared.url_state import index_of, refuse, show_address

CHOICES: Mapping[str, tuple[str, ...]] = {
    "source": ("Sample", "Upload", "Path"),
    "preset": tuple(PRESETS),
    "prompt": ("markdown", "free_ocr", "figure", "locate"),
    "mode": MODES,
    "dtype": get_args(Dtype),
    "attention": tuple(name for name in get_args(Attention) if name != "auto"),
    "tab": ("Text", "Boxes", "Tokens", "Why", "Layers", "Inputs", "Timings", "Files"),
}
"""Parameters with a fixed set of values; an address with another value is ignored there."""
FREE = ("page", "box")
DEFAULTS = {"source": "Sample", "prompt": "markdown", "mode": "2-up", "tab": "Text"}
"""Left out of the address."""


def read() -> None:
    """Take the address into a new session; later addresses are echoes of the session.

    Another page may have asked for a sample meanwhile.
    """
    if "address" not in st.session_state:
        _read_once()
    if (asked := navigation.taken_request("compare")) is not None:
        show_samples()
        show_page(asked["page"])
        if asked["path"]:
            st.session_state["source"], st.session_state["path"] = "Path", asked["path"]
        if asked["preset"] in PRESETS:
            st.session_state["preset"] = asked["preset"]


def _read_once() -> None:
    st.session_state["address"] = True
    if not st.query_params:
        example.open_first()
    # A side is a name of the settings file, never an address of the web.
    for name, values in {**CHOICES, **dict.fromkeys(SIDES, tuple(backends.names()))}.items():
        if name in st.query_params:
            if st.query_params[name] in values:
                st.session_state[name] = st.query_params[name]
            else:
                refuse(name, st.query_params[name])
    st.session_state.setdefault("source", DEFAULTS["source"])
    for name in FREE:
        if name in st.query_params or name not in st.session_state:
            st.session_state[name] = st.query_params.get(name, "")
    st.session_state["linked page"] = st.session_state["page"]


def write() -> None:
    """Make the address say what the session holds."""
    wanted, usual = {}, DEFAULTS | example.usual() | backends.usual()
    for name in (*CHOICES, *FREE, *backends.usual()):
        value = st.session_state.get(name)
        if isinstance(value, str) and value and usual.get(name) != value:
            wanted[name] = [value]
    show_address("address", wanted)


def page_key() -> str:
    return str(st.session_state.get("page", ""))


def missing(keys: Sequence[str]) -> str:
    """The page that a link names, where it is none of these; empty once one was shown."""
    followed = str(st.session_state.get("linked page", ""))
    if followed != page_key() or followed in keys:
        st.session_state["linked page"] = ""
    return str(st.session_state["linked page"])


def show_page(key: str) -> None:
    """Make `key` the page that is shown, nothing selected, from the next run on."""
    st.session_state["page"], st.session_state["box"] = key, ""


def show_samples() -> None:
    """Go back to the samples, from the next run on."""
    st.session_state["source"] = "Sample"


def mode() -> str:
    return str(st.session_state.get("mode", MODES[0]))


def selected(count: int) -> int | None:
    """Index of the selected pair among `count`; the address counts from one."""
    return index_of(str(st.session_state.get("box", "")), count)


def select(index: int | None) -> None:
    st.session_state["box"] = "" if index is None else str(index + 1)
