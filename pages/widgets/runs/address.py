"""Address of the Runs page: the filters, the chosen runs and what is shown of them."""

from __future__ import annotations

from collections.abc import Mapping

from pages.widgets.shared import run_filters
from pages.widgets.shared.url_state import LinkedState, Parameter

LISTS = ("Runs", "Trash")
VIEWS = (*LISTS, "Import")
TABS = ("Settings", "Environment", "Tags and notes", "Reproduce")
PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter(VIEWS[0], VIEWS),
    **run_filters.PARAMETERS,
    "runs": Parameter([], widget=False),
    "baseline": Parameter("", widget=False),
    "tab": Parameter(TABS[0], TABS),
    "all": Parameter(False),
}
STATE = LinkedState("runs", PARAMETERS)
key, value, put, write = STATE.key, STATE.value, STATE.put, STATE.write


def read() -> None:
    """Make every parameter have its value; another page may have asked for a view."""
    if (asked := STATE.read()) is not None:
        put("view", asked["view"])


def clear_filters() -> None:
    STATE.clear(*run_filters.FILTERS)


def filtered() -> bool:
    return STATE.used(*run_filters.FILTERS) > 0
