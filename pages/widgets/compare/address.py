"""The state of the Compare page: the page, how it is read, what is shown of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

import streamlit as st

from dsocr_core.base.specs import Attention, Dtype
from dsocr_core.models.family import MODELS
from dsocr_core.reading.records import SIDES
from pages.widgets.compare import backends
from pages.widgets.pair.state import PAIR_PARAMETERS, PairState
from pages.widgets.shared import resources
from pages.widgets.shared.url_state import Parameter

DTYPES: tuple[Dtype, ...] = get_args(Dtype)
ATTENTION: tuple[Attention, ...] = tuple(name for name in get_args(Attention) if name != "auto")
PRESETS = tuple(dict.fromkeys(name for row in MODELS.values() for name in row.presets))
PARAMETERS: Mapping[str, Parameter] = {
    **PAIR_PARAMETERS,
    "source": Parameter("Sample", ("Sample", "File")),
    "path": Parameter(""),
    "pages": Parameter(""),
    "together": Parameter(False),
    "prompt": Parameter("markdown", ("markdown", "free_ocr", "figure", "locate")),
    # as the settings file has them until the reader chooses
    "preset": Parameter("", ("", *PRESETS)),
    "dtype": Parameter("", ("", *DTYPES)),
    "attention": Parameter("", ("", *ATTENTION)),
    # that of B, where it is another one
    "dtype_b": Parameter("", ("", *DTYPES)),
    **{side: Parameter("") for side in SIDES},
    # whether the page that Compare opens on is shown with what is recorded of it
    "example": Parameter(False, widget=False, linked=False),
}
STATE = PairState("compare", PARAMETERS)
bound, value, put, show_page = STATE.bound, STATE.value, STATE.put, STATE.show_page


def usual() -> dict[str, str]:
    """Settings of Compare unless its reader chooses: dtype, our decoder's attention, A and B."""
    base = resources.usable_settings()
    return {"dtype": base.dtype, "attention": base.for_comparison().own_attention, **backends.usual()}


def read(first: Callable[[], Mapping[str, Any]]) -> None:
    """Give every parameter its value; without a link `first` says what is shown.

    A side is a name of the settings file, never an address of the web.
    """
    STATE.read(dict if st.query_params else first)
    usually = dict.fromkeys(SIDES, "") | usual()
    for side in SIDES:
        STATE.settle(side, backends.names(), usually[side])
    for name in ("dtype", "attention"):
        put(name, value(name) or usually[name])


def write() -> None:
    """Make the address say what the session holds."""
    hidden = ("path", "pages") if value("source") == "Sample" else ()
    STATE.write(usual() | {name: value(name) for name in hidden})


def open_sample() -> None:
    """A callback: the first sample."""
    put("source", "Sample")
    show_page("")


def take_turns(keys: Sequence[str], position: int, sheets: int) -> bool:
    """Turn the pages as the viewer asked since the last time, through the pages of a prompt, then the others.

    Each turn counts, however fast they come and whatever else runs; only what was done is marked as taken.
    """
    new = STATE.new_actions("viewer")
    at = STATE.sheet(sheets)
    for number, act, _ in new:
        step = 1 if act == "next" else -1
        if 0 <= at + step < sheets:
            at += step
            STATE.values.update(sheet=str(at + 1), box="", taken=number)
        elif 0 <= position + step < len(keys):
            # How many pages the next prompt has is not known yet.
            position, at, sheets = position + step, 0, 1
            STATE.values.update(page=keys[position], sheet="", box="", taken=number)
        else:
            put("taken", number)
    return bool(new)
