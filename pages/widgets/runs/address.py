"""What the address of the Runs page holds: the filters, the chosen runs and what is shown of them."""

from __future__ import annotations

from collections.abc import Mapping

from pages.widgets.shared import navigation, run_filters
from pages.widgets.shared.url_state import LinkedState, Parameter

VIEWS = ("Runs", "Trash", "Import", "Cluster")
TABS = ("Settings", "Environment", "Tags and notes", "Reproduce")
PROFILED = {"any": None, "no": False, "yes": True}
PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter(VIEWS[0], VIEWS),
    "text": Parameter(""),
    **{name: Parameter([]) for name in run_filters.NAMES},
    "profiled": Parameter("any", tuple(PROFILED)),
    "since": Parameter(None),
    "until": Parameter(None),
    "runs": Parameter([]),
    "baseline": Parameter(""),
    "columns": Parameter([]),
    "tab": Parameter(TABS[0], TABS),
    "all": Parameter(False),
    "output": Parameter("", view="Cluster"),
}
FILTERS = ("text", *run_filters.NAMES, "profiled", "since", "until")
STATE = LinkedState("runs", PARAMETERS)
key, value, put = STATE.key, STATE.value, STATE.put
write = STATE.write


def read() -> None:
    """Make every parameter have its value; another page may have asked for a view."""
    STATE.read()
    if (asked := navigation.taken_request("runs")) is not None:
        put("view", asked["view"])


def clear_filters() -> None:
    for name in FILTERS:
        put(name, PARAMETERS[name].default)


def filtered() -> bool:
    return any(value(name) != PARAMETERS[name].default for name in FILTERS)
