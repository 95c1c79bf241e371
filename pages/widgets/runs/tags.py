"""Tags and notes of chosen runs: rows that are added to the history, nothing is written over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pandas as pd
import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import plural
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import has_value
from pages.widgets.shared import figure, table
from pages.widgets.shared.messages import show_error

MOST_TAG, MOST_NOTE = 200, 20_000
"""Characters."""
_FAILED = "runs marks failed"


def draw(history: History, runs: pd.DataFrame) -> None:
    """The form, and for a single run what was noted before."""
    run_ids = list(runs["run_id"])
    common = _common(runs["tags"])
    note = runs["note"].iloc[0]
    note = note if len(runs) == 1 and has_value(note) else ""
    # A form of its own for each state of the runs: it shows what others wrote meanwhile.
    state = f"{hash((*run_ids, *common, note)):x}"
    with st.form(f"runs marks {state}", border=False):
        words = "Tags" if len(runs) == 1 else f"Tags that all {len(runs)} runs have"
        options = sorted({*common, *_all_tags(history)})
        st.multiselect(
            words, options, default=common, accept_new_options=True, key=f"runs tags {state}",
            placeholder="choose or type",
        )  # fmt: skip
        if len(runs) == 1:
            st.text_area("Note", value=note, max_chars=MOST_NOTE, key=f"runs note {state}")
        st.form_submit_button(
            "Save", type="primary", key=f"runs save {state}", on_click=_take,
            args=(history, run_ids, common, note, state),
        )  # fmt: skip
    if failed := st.session_state.pop(_FAILED, None):
        show_error(failed)
    if len(runs) == 1:
        _noted(history, runs)


def _take(history: History, run_ids: list[str], tags: list[str], note: str, state: str) -> None:
    """A callback: of what others wrote while this form was filled, the page has another form."""
    text = st.session_state.get(f"runs note {state}", note)
    try:
        save(history, run_ids, tags, st.session_state[f"runs tags {state}"], None if text == note else text)
    except DsocrError as error:
        st.session_state[_FAILED] = str(error)


def save(
    history: History, run_ids: Sequence[str], before: Sequence[str], tags: Iterable[str], note: str | None
) -> None:
    """Write what differs from `before`; `note` None means as it was. Raises DsocrError."""
    wanted = list(dict.fromkeys(tag.strip() for tag in tags if tag.strip()))
    if long := next((tag for tag in wanted if len(tag) > MOST_TAG), None):
        raise DsocrError(f"tag '{long[:40]}…' has {len(long)} characters; give at most {MOST_TAG}")
    for run_id in run_ids:
        for tag in wanted:
            if tag not in before:
                history.tag(run_id, tag)
        for tag in before:
            if tag not in wanted:
                history.tag(run_id, tag, on=False)
        if note is not None:
            history.note(run_id, note)


def _common(tags: pd.Series) -> list[str]:
    sets = [set(of_run) for of_run in tags]
    return sorted(set.intersection(*sets))


def _all_tags(history: History) -> list[str]:
    there = history.query("filter_values")[0]
    return list(there.loc[there["name"] == "tags", "value"])


def _noted(history: History, runs: pd.DataFrame) -> None:
    first = runs["notes"].iloc[0]
    if has_value(first):
        st.caption("Note that the run was made with")
        st.code(first, language=None, wrap_lines=True)
    noted, sql = history.query("annotations", run_id=runs["run_id"].iloc[0])
    if len(noted):
        figure.head(
            f"{plural(len(noted), 'change')} noted since, the last one counts", sql=[sql], noted=noted
        )
        table.draw(noted.dropna(axis="columns", how="all"), missing="–")
