"""Address of the Runs page: the filters, the chosen groups and runs, and what is shown of them."""

from __future__ import annotations

from collections.abc import Mapping

from pages.widgets.shared import shown_runs
from pages.widgets.shared.url_state import LinkedState, Parameter

VIEWS = ("", "Busy machine", "Profiled", "Compared", "Trash")
"""Runs that alone are listed; "" for all but those in the trash."""
GROUPS = ("setting", "commit")
TABS = ("Settings", "Tags and notes", "Reproduce")
PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter("", VIEWS, widget=False),
    **shown_runs.PARAMETERS,
    "by": Parameter(GROUPS[0], GROUPS),
    "group": Parameter([], widget=False),
    "price": Parameter(0.0, (), 0, 1e6),
    "runs": Parameter([], widget=False),
    "tab": Parameter(TABS[0], TABS, widget=False),
    # whether another page asks for the import
    "importing": Parameter(False, widget=False, linked=False),
}
NARROWING = (*shown_runs.FILTERS, "view", "group")
"""Parameters that leave runs out of the list."""
STATE = LinkedState("runs", PARAMETERS)
bound, value, put = STATE.bound, STATE.value, STATE.put
