"""Backends that may read as A and as B, by name, and the commands that read a page with them again.

An address may only choose among these names. So no link makes the app call a server that the file does not
name.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.base.specs import ENGINES
from dsocr_core.reading.records import SIDES, VENDOR, OcrRequest
from dsocr_core.runs.commands import command_line
from dsocr_core.settings import Settings
from pages.widgets.shared import resources

if TYPE_CHECKING:
    from dsocr_core.reading.parity import Comparison

OURS = ("eager", "fast")


def names() -> tuple[str, ...]:
    """List what may be chosen: nothing unless the settings file names backends."""
    named = resources.usable_settings().backends
    return (*OURS, VENDOR, *named) if named else ()


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


# --- commands -------------------------------------------------------------------------------------


def read_again(request: OcrRequest, settings: Settings) -> str:
    """The command line that reads this page again under these settings."""
    more = ["--pages-together"] if request.together else []
    return command_line("compare", asdict(settings), _images(request), *more)


def _images(request: OcrRequest) -> list[str]:
    return [
        str(image.relative_to(PROJECT_ROOT) if image.is_relative_to(PROJECT_ROOT) else image)
        for image in request.images
    ]


def to_find_out(settings: Settings, comparison: Comparison) -> dict[str, str]:
    """Commands that find why our engine reads otherwise than B, by what they do; none where texts agree."""
    a, b, request = comparison.a, comparison.b, comparison.request
    different = a is not None and b is not None and a.text_raw != b.text_raw
    if not different or settings.spec("a").kind not in ENGINES:
        return {}
    found = {"Find the cause (tries up to 60 settings on A):": f"{read_again(request, settings)} --why 1"}
    if not request.together:
        sides = {"a": "fast" if settings.backend("a") == "fast" else None, "b": None}
        trace = command_line("trace", asdict(settings) | sides, _images(request), "--save")
        found["Find the first layer that differs (minutes on a CPU):"] = trace
    return found
