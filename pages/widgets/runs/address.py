"""Address of the Runs page: the filters, the chosen runs and what is shown of them."""

from __future__ import annotations

from collections.abc import Mapping

from pages.widgets.runs.tables import COLUMNS
from pages.widgets.shared import run_filters
from pages.widgets.shared.url_state import LinkedState, Parameter

LISTS = ("Runs", "Trash")
VIEWS = (*LISTS, "Import", "Cluster")
TABS = ("Settings", "Environment", "Tags and notes", "Reproduce")
NO_GROUP = "no group"
PROFILED = {"any": None, "no": False, "yes": True}
PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter(VIEWS[0], VIEWS),
    "text": Parameter(""),
    **run_filters.PARAMETERS,
    "profiled": Parameter("any", tuple(PROFILED)),
    "runs": Parameter([], widget=False),
    "baseline": Parameter("", widget=False),
    "columns": Parameter([]),
    "group": Parameter(NO_GROUP, (NO_GROUP, *COLUMNS)),
    "tab": Parameter(TABS[0], TABS),
    "all": Parameter(False),
    "output": Parameter("", view="Cluster"),
}
FILTERS = ("text", "profiled", *run_filters.FILTERS)
STATE = LinkedState("runs", PARAMETERS)
key, value, put, write = STATE.key, STATE.value, STATE.put, STATE.write


def read() -> None:
    """Make every parameter have its value; another page may have asked for a view."""
    if (asked := STATE.read()) is not None:
        put("view", asked["view"])


def clear_filters() -> None:
    STATE.clear(*FILTERS)


def filtered() -> bool:
    return STATE.used(*FILTERS) > 0
