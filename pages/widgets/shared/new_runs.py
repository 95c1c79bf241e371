"""New runs wait until they are asked for: a page shows the runs it began with until its reader refreshes."""

from __future__ import annotations

import streamlit as st

from dsocr_core.errors import DsocrError
from dsocr_core.history.store import History
from pages.widgets.shared.formats import plural
from pages.widgets.shared.messages import show_error

_SEEN = "history seen"
_LOOK_S = 5
"""How often the button looks for new runs: one listing of a folder, nothing else is drawn again."""


def seen(history: History) -> set[str]:
    """The runs that this session shows: those that were there at its first look or its last refresh."""
    if _SEEN not in st.session_state:
        look_again(history)
    known: set[str] = st.session_state[_SEEN]
    return known


def look_again(history: History) -> None:
    """Show everything there is from now on. Raises DsocrError when the history cannot be listed."""
    history.refresh()
    st.session_state[_SEEN] = set(history.run_ids())


def unseen(history: History, known: set[str]) -> int:
    """How many runs are there that `known` lacks, by listing the place they lie in."""
    unread = {name.removeprefix("runs/") for name in history.problems}
    return len((history.storage.names("runs") | set(history.run_ids())) - known - unread)


@st.fragment(run_every=_LOOK_S)
def refresh_button(history: History) -> None:
    try:
        count = unseen(history, seen(history))
        if st.button(
            plural(count, "new run") if count else "Refresh",
            icon=":material/refresh:", key="history refresh", type="primary" if count else "secondary",
            help="Show what was added, removed or noted since, by others too.",
        ):  # fmt: skip
            look_again(history)
            st.rerun()
    except DsocrError as error:
        show_error(error)
