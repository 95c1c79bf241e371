"""Backends that may read as A and as B: those of the settings file, by name.

An address may only choose among these names. So no link makes the app call a server that the file does not
name.
"""

from __future__ import annotations

from dataclasses import replace

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.records import SIDES, VENDOR
from dsocr_core.settings import Settings
from pages.widgets.shared import resources

OURS = ("eager", "fast")


def names() -> tuple[str, ...]:
    """List what may be chosen: nothing unless the settings file names backends."""
    try:
        base = resources.base_settings()
    except DsocrError:  # said where the settings are drawn
        return ()
    return (*OURS, VENDOR, *base.backends) if base.backends else ()


def usual() -> dict[str, str]:
    """Give what reads as A and as B unless its reader chooses; empty where there is no choice.

    The settings file's A and B where they are names to choose from, else the engine and the vendor.
    """
    found = names()
    if not found:
        return {}
    base = resources.base_settings()
    otherwise = {"a": base.engine, "b": VENDOR}
    named = {"a": base.a, "b": base.b}
    return {side: name if (name := str(named[side])) in found else otherwise[side] for side in SIDES}


def with_dtype_of_b(settings: Settings, dtype: str) -> Settings:
    """The settings with a number type of B's own; "" is that of A. Raises DsocrError where B takes none."""
    if not dtype:
        return settings
    b = settings.b or VENDOR
    return replace(settings, b={**({"spec": b} if isinstance(b, str) else b), "dtype": dtype})


def with_sides(settings: Settings, a: str, b: str) -> Settings:
    """The settings with these backends; the usual pair is no choice, so that its results are found again."""
    if a == settings.engine and b == VENDOR:
        return replace(settings, a=None, b=None)
    return replace(settings, a=a, b=b)
