"""The sidebar of the Runs page: which runs are listed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import streamlit as st

from dsocr_core.history.store import History
from pages.widgets.runs import address
from pages.widgets.runs.address import MANY, PROFILED, key, value

_LABELS = {
    "backend": "Backend", "engine": "Engine", "gpu": "GPU", "dtype": "Number type", "preset": "Preset",
    "commit": "Commit", "tag": "Tag", "source": "Made by",
}  # fmt: skip
_PROFILED_WORDS = {"any": "All", "no": "Unprofiled", "yes": "Profiled"}


def draw(history: History) -> Mapping[str, Any]:
    """Draw the filters; returns them as parameters of the query `runs`."""
    st.text_input("Search", key=key("text"), placeholder="id, command, note or tag")
    there = history.query("filter_values")[0]
    for name in MANY:
        options = list(there.loc[there["name"] == f"{name}s", "value"])
        # A link may name what is not there (any longer).
        options += [chosen for chosen in value(name) if chosen not in options]
        if options:
            st.multiselect(
                _LABELS[name], options, key=key(name), placeholder="any", format_func=_option_words
            )
    left, right = st.columns(2)
    left.date_input("From", value=None, key=key("since"), format="YYYY-MM-DD")
    right.date_input("To", value=None, key=key("until"), format="YYYY-MM-DD")
    st.segmented_control(
        "Profiler", list(PROFILED), required=True, key=key("profiled"), width="stretch",
        format_func=_PROFILED_WORDS.__getitem__, help="A profiler's overhead is in the times of such runs.",
    )  # fmt: skip
    if address.filtered():
        st.button("Clear the filters", on_click=address.clear_filters, key="runs clear", width="stretch")
    return parameters()


def _option_words(option: str) -> str:
    """A commit by its first eight digits."""
    return option[:8] if len(option) == 40 and set(option) <= set("0123456789abcdef") else option


def parameters() -> dict[str, Any]:
    """What the filters say, as parameters of the query `runs`."""
    chosen: dict[str, Any] = {f"{name}s": list(value(name)) or None for name in MANY}
    until: date | None = value("until")
    return chosen | {
        "text": value("text").strip() or None,
        "profiled": PROFILED[value("profiled")],
        "since": _midnight(value("since")),
        "until": _midnight(until + timedelta(days=1)) if until else None,
    }


def _midnight(day: date | None) -> datetime | None:
    """Days are UTC's, as the times of runs are."""
    return datetime.combine(day, datetime.min.time(), UTC).replace(tzinfo=None) if day else None
