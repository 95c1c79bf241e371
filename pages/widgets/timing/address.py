"""Address of the Timing page: all of its state, so that a view can be linked."""

from __future__ import annotations

from collections.abc import Mapping

from pages.widgets.shared import run_filters
from pages.widgets.shared.url_state import LinkedState, Parameter

VIEWS = ("Changes", "Kernels")
_FORMER = ("Regressions", "Stages", "Trend", "B against A", "A against B")
PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter(VIEWS[0], VIEWS, former=tuple((name, VIEWS[0]) for name in _FORMER)),
    # which runs are offered
    **run_filters.PARAMETERS,
    "profiled": Parameter(False),
    "contended": Parameter(False),
    # Changes: two commits on a card, a series of runs, and two runs side by side
    "commits": Parameter("", view=VIEWS[0]),
    "series": Parameter("", view=VIEWS[0]),
    "a": Parameter("", view=VIEWS[0], widget=False),
    "b": Parameter("", view=VIEWS[0], widget=False),
    "backend_a": Parameter("", view=VIEWS[0], widget=False),
    "backend_b": Parameter("", view=VIEWS[0], widget=False),
    # Kernels
    "run": Parameter("", view=VIEWS[1]),
    "against": Parameter("", view=VIEWS[1]),
    "part": Parameter("", view=VIEWS[1]),
}
STATE = LinkedState("timing", PARAMETERS)
key, value, put, write = STATE.key, STATE.value, STATE.put, STATE.write


def read() -> None:
    """Make every parameter have its value; another page may have asked for runs."""
    if (asked := STATE.read()) is not None:
        before, *after = asked["runs"] if len(asked["runs"]) > 1 else ["", *asked["runs"]]
        open_pair((before, ""), (after[-1], ""))


def open_pair(a: tuple[str, str], b: tuple[str, str]) -> None:
    """Show two runs and their backends side by side, the former one as A. Before any widget is drawn."""
    put("view", VIEWS[0])
    choose_pair(a, b)


def choose_pair(a: tuple[str, str], b: tuple[str, str]) -> None:
    for side, (run, backend) in (("a", a), ("b", b)):
        put(side, run)
        put(f"backend_{side}", backend)
