"""Address of the Timing page: all of its state, so that a view can be linked."""

from __future__ import annotations

from collections.abc import Mapping

from pages.widgets.shared import shown_runs
from pages.widgets.shared.url_state import LinkedState, Parameter

VIEWS = ("Changes", "Kernels")
PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter(VIEWS[0], VIEWS, widget=False),
    # which runs are offered
    **shown_runs.PARAMETERS,
    "profiled": Parameter(False),
    "contended": Parameter(False),
    # Changes: two commits on a card, a series of runs, and two runs with their backends side by side
    "commits": Parameter(""),
    "series": Parameter(""),
    **{name: Parameter("", widget=False) for name in ("a", "b", "backend_a", "backend_b")},
    # Kernels
    **{name: Parameter("") for name in ("run", "against", "part")},
}
STATE = LinkedState("timing", PARAMETERS)
bound, value, put = STATE.bound, STATE.value, STATE.put


def open_pair(a: tuple[str, str], b: tuple[str, str]) -> None:
    """Show two runs and their backends side by side, the former one as A. Before any widget is drawn."""
    (run_a, backend_a), (run_b, backend_b) = a, b
    STATE.values.update(view=VIEWS[0], a=run_a, b=run_b, backend_a=backend_a, backend_b=backend_b)
