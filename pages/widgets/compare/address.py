"""The state of the Compare page: the page, how it is read, what is shown of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, get_args

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.models.family import MODELS
from dsocr_core.reading.records import SIDES
from dsocr_core.settings import Attention, Dtype, Settings
from pages.widgets.compare import backends
from pages.widgets.components.viewer import MODES
from pages.widgets.shared import resources
from pages.widgets.shared.url_state import LinkedState, Parameter, index_of, refuse

TABS = ("Text", "Boxes", "Tokens", "Layers", "Inputs", "Timings", "Files")
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
ATTENTION: tuple[Attention, ...] = tuple(name for name in get_args(Attention) if name != "auto")
PARAMETERS: Mapping[str, Parameter] = {
    "source": Parameter("Sample", ("Sample", "Upload", "Path")),
    "page": Parameter("", widget=False),
    "path": Parameter(""),
    "pages": Parameter(""),
    "box": Parameter("", widget=False),
    "sheet": Parameter("", widget=False),
    "together": Parameter(False),
    "mode": Parameter(MODES[0], MODES, widget=False),
    "tab": Parameter(TABS[0], TABS),
    "prompt": Parameter("markdown", ("markdown", "free_ocr", "figure", "locate")),
    # as the settings file has them until the reader chooses
    "preset": Parameter("", ("", *dict.fromkeys(name for row in MODELS.values() for name in row.presets))),
    "dtype": Parameter("", ("", *DTYPES)),
    "attention": Parameter("", ("", *ATTENTION)),
    # that of B, where it is another one
    "dtype_b": Parameter("", ("", *DTYPES)),
    **{side: Parameter("") for side in SIDES},
    # whether the page that Compare opens on is shown with its line of words
    "example": Parameter(False, widget=False, linked=False),
}
OWN_SETTINGS = ("dtype", "attention", "dtype_b")
STATE = LinkedState("compare", PARAMETERS)
key, value, put = STATE.key, STATE.value, STATE.put


def usual() -> dict[str, str]:
    """Settings of Compare unless its reader chooses: number type, our decoder's attention, A and B."""
    try:
        base = resources.base_settings()
    except DsocrError:  # said where the settings are drawn
        base = Settings()
    return {"dtype": base.dtype, "attention": base.for_comparison().own_attention, **backends.usual()}


def read(first: Callable[[], Mapping[str, Any]]) -> None:
    """Make every parameter have its value; without a link `first` says what is shown.

    Another page may have asked for a sample or a file. A side is a name of the settings file, never an
    address of the web.
    """
    asked = STATE.read(dict if st.query_params else first)
    if asked is not None:
        put("example", False)
        for name in ("preset", *OWN_SETTINGS):
            put(name, "")
        for name, text in asked["settings"].items():
            with suppress(ValueError):  # a run may have what Compare does not offer
                put(name, PARAMETERS[name].read([text]))
    for name, usually in (dict.fromkeys(SIDES, "") | usual()).items():
        known = name not in SIDES or value(name) in backends.names()
        if not known and value(name) and asked is None:
            refuse(name, value(name))
        put(name, (value(name) if known else "") or usually)
    if asked is not None:
        put("source", "Sample")
        show_page(asked["page"])
        if asked["path"]:
            put("source", "Path")
            put("path", asked["path"])


def write() -> None:
    """Make the address say what the session holds."""
    sample = value("source") == "Sample"
    here = {
        name: value(name) for name, other in (("path", value("source") != "Path"), ("pages", sample)) if other
    }
    STATE.write(usual() | here)


def show_page(name: str) -> None:
    """Make `name` the page that is shown, nothing selected, from the next run on."""
    STATE.values.update(page=name, box="", sheet="")


def sheet(count: int) -> int:
    """The page shown of so many in one prompt; the address counts from one."""
    return index_of(value("sheet"), count) or 0


def show_sheet(number: int) -> None:
    STATE.values.update(sheet=str(number + 1), box="")


def selected(count: int) -> int | None:
    """Index of the selected pair among `count`; the address counts from one."""
    return index_of(value("box"), count)


def select(index: int | None) -> None:
    put("box", "" if index is None else str(index + 1))


_TAKEN = "compare taken"


def turns() -> dict[str, object]:
    """Give the viewer the number of the last turn of pages that was taken, and the page that is shown."""
    return {"taken": st.session_state.setdefault(_TAKEN, 0), "subject": value("page")}


def take_turns(keys: Sequence[str], position: int, sheets: int) -> bool:
    """Turn the pages as the viewer asks since the last time, through the pages of a prompt, then the others.

    Each turn counts, however fast they come and whatever else runs; only what was done is marked as taken.
    """
    state: Any = st.session_state.get("viewer")
    actions = state.get("actions") if state else None
    found = [each for each in actions if isinstance(each, dict)] if isinstance(actions, list) else []
    new = [each for each in found if isinstance(n := each.get("n"), int) and n > st.session_state[_TAKEN]]
    at = sheet(sheets)
    for action in new:
        step = 1 if action.get("act") == "next" else -1
        if sheets > 1 and (len(keys) == 1 or 0 <= at + step < sheets):
            at = (at + step) % sheets
            show_sheet(at)
        else:
            # Of the next prompt nobody knows yet how many pages it has.
            position, at, sheets = (position + step) % len(keys), 0, 1
            show_page(keys[position])
    if new:
        st.session_state[_TAKEN] = max(each["n"] for each in new)
    return bool(new)
