"""Address of the Timing page: all of its state, so that a view can be linked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pages.widgets.shared import run_filters
from pages.widgets.shared.url_state import LinkedState, Parameter, linked

VIEWS = ("Regressions", "Stages", "Trend", "B against A", "Kernels")
"""B against A: A is what was before, and B is faster or slower than it, on every page."""
PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter(VIEWS[0], VIEWS, former=(("A against B", "B against A"),)),
    # which runs are offered
    **run_filters.PARAMETERS,
    "profiled": Parameter(False),
    "contended": Parameter(False),
    # Stages
    "runs": Parameter([], view="Stages"),
    # Trend
    "stage": Parameter("decode", view="Trend"),
    "trend_backend": Parameter("", view="Trend"),
    # B against A
    "a": Parameter("", view="B against A"),
    "b": Parameter("", view="B against A"),
    "backend_a": Parameter("", view="B against A"),
    "backend_b": Parameter("", view="B against A"),
    "neutral": Parameter(2.0, (), 0, 50, view="B against A"),
    "of": Parameter("decode", view="B against A"),
    # Kernels
    "run": Parameter("", view="Kernels"),
    "against": Parameter("", view="Kernels"),
    "part": Parameter("", view="Kernels"),
    "top": Parameter(15, (), 5, 50, view="Kernels"),
    # names that the reader, or the link that was followed, has chosen; the page chooses the others
    "chosen": Parameter(frozenset(), widget=False, linked=False),
}
STATE = LinkedState("timing", PARAMETERS)
key, value, put, write = STATE.key, STATE.value, STATE.put, STATE.write


def chosen(name: str) -> bool:
    """Tell whether the reader, or the link that was followed, has chosen this one; else the page chooses."""
    return name in value("chosen")


def choose(*names: str) -> None:
    """Note that the reader has chosen these."""
    put("chosen", value("chosen") | {*names})


def read() -> None:
    """Make every parameter have its value; another page may have asked for runs."""
    if (asked := STATE.read(_first)) is not None:
        put("view", "Stages")
        put("runs", asked["runs"])
        STATE.clear("a", "b")
        put("chosen", value("chosen") - {"a", "b"} | {"runs"})


def _first() -> dict[str, Any]:
    """Give what the link has chosen, and the view that its first parameter of a view belongs to."""
    link = linked(PARAMETERS)
    return {
        "chosen": frozenset(link),
        "view": next((view for name in link if (view := PARAMETERS[name].view)), VIEWS[0]),
    }
