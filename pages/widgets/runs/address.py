"""What the address of the Runs page holds: the filters, the chosen runs and what is shown of them."""

from __future__ import annotations

from collections.abc import Mapping

from pages.widgets.shared import navigation
from pages.widgets.shared.url_state import LinkedState, Parameter

VIEWS = ("Runs", "Trash", "Import")
TABS = ("Settings", "Environment", "Tags and notes", "Reproduce")
PROFILED = {"any": None, "no": False, "yes": True}
MANY = ("backend", "engine", "gpu", "dtype", "preset", "commit", "tag", "source")
"""Filters of which several values may be chosen; the history's own names for them end in s."""
PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter(VIEWS[0], VIEWS),
    "text": Parameter(""),
    **{name: Parameter([]) for name in MANY},
    "profiled": Parameter("any", tuple(PROFILED)),
    "since": Parameter(None),
    "until": Parameter(None),
    "runs": Parameter([]),
    "tab": Parameter(TABS[0], TABS),
    "all": Parameter(False),
}
FILTERS = ("text", *MANY, "profiled", "since", "until")
_STATE = LinkedState("runs", PARAMETERS)
key, value, put = _STATE.key, _STATE.value, _STATE.put
write = _STATE.write


def read() -> None:
    """Make every parameter have its value; another page may have asked for a view."""
    _STATE.read()
    if (asked := navigation.taken_request("runs")) is not None:
        put("view", asked["view"])


def clear_filters() -> None:
    for name in FILTERS:
        put(name, PARAMETERS[name].default)


def filtered() -> bool:
    return any(value(name) != PARAMETERS[name].default for name in FILTERS)
