"""Which backends read as A and as B: those of the settings file, by name.

An address may only choose among these names. So no link makes the app call a server that the file does not
name.
"""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from dsocr_core.errors import DsocrError
from dsocr_core.records import SIDES, VENDOR, Side
from dsocr_core.settings import Settings
from pages.widgets.shared import resources
from pages.widgets.shared.labels import side_letter

OURS = ("eager", "fast")


def names() -> tuple[str, ...]:
    """What may be chosen: nothing unless the settings file names backends."""
    try:
        base = resources.base_settings()
    except DsocrError:  # said where the settings are drawn
        return ()
    return (*OURS, VENDOR, *base.backends) if base.backends else ()


def usual() -> dict[str, str]:
    """What reads as A and as B unless its reader chooses; empty where there is no choice."""
    return {side: _usual(side) for side in SIDES} if names() else {}


def chosen_otherwise() -> bool:
    """Whether this tab reads with other backends than the usual ones."""
    return any(st.session_state.get(side, name) != name for side, name in usual().items())


def _usual(side: Side) -> str:
    """The settings file's A and B where they are names to choose from, else the engine and the vendor."""
    base = resources.base_settings()
    choice = base.a if side == "a" else base.b
    known = isinstance(choice, str) and choice in names()
    return str(choice) if known else base.engine if side == "a" else VENDOR


def draw(settings: Settings) -> Settings:
    """The choice of A and B; the settings with it. Raises DsocrError."""
    found = names()
    if not found:
        return settings
    chosen: dict[Side, str] = {}
    for side, column in zip(SIDES, st.columns(2), strict=True):
        if st.session_state.get(side) not in found:
            st.session_state[side] = _usual(side)
        chosen[side] = column.selectbox(side_letter(side), found, key=side, persist_state="session")
    return with_sides(settings, chosen["a"], chosen["b"])


def with_sides(settings: Settings, a: str, b: str) -> Settings:
    """The settings with these backends; the usual pair is no choice, so that its results are found again."""
    if a == settings.engine and b == VENDOR:
        return replace(settings, a=None, b=None)
    return replace(settings, a=a, b=b)
