"""The chosen runs: settings, environment, tags and notes, how to make them again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import pandas as pd
import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import significant
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import has_value
from dsocr_core.runs.settings_diff import side_by_side
from dsocr_core.runs.speed import compare_speed, sentence
from pages.widgets.runs.address import STATE
from pages.widgets.runs.overview import figures, own_pace
from pages.widgets.shared import figure, resources, shown_runs, table
from pages.widgets.shared.messages import plain, show_error
from pages.widgets.shared.table import Column

MOST_TAG, MOST_NOTE = 200, 20_000
"""Characters."""
_FAILED = "runs marks failed"
MOST = 12
"""Runs side by side; more do not fit a screen."""


def draw(history: History, runs: pd.DataFrame, table_of_runs: pd.DataFrame) -> None:
    """Figures of several chosen runs, the oldest first, then tabs. Only the open one is computed."""
    if len(runs) > 1:
        _figures(history, runs.head(MOST), table_of_runs)
    if len(runs) > MOST:
        st.caption(f"The first {MOST} of {len(runs)} chosen runs.")
    figure.tabs(
        {
            "Settings": partial(_settings, history, runs.head(MOST)),
            "Tags and notes": partial(_tags, history, runs),
            "Reproduce": partial(_reproduce, history, runs.head(MOST)),
        },
        STATE,
    )


def _figures(history: History, runs: pd.DataFrame, table_of_runs: pd.DataFrame) -> None:
    rows = table_of_runs.set_index("run_id").loc[runs["run_id"]].reset_index()
    letters = _letters(runs)
    if len(runs) == 2:
        st.markdown(f"**{plain(_speed(history, runs))}**")
    commits = [f" at {commit}" if has_value(commit) else "" for commit in rows["commit"]]
    names = zip(letters.values(), rows["run"], commits, strict=True)
    st.caption(plain(", ".join(f"{letter} {name}{commit}" for letter, name, commit in names)))
    columns = {name: Column(name, _number) for name in letters.values()}
    columns = {"figure": Column("figure", left=True), **columns, "ratio": Column("B/A", "%.2f")}
    table.draw(figures(rows), columns, "not known")


def _number(value: float) -> str:
    """A count as it is, a measure with three digits."""
    return f"{value:,.0f}" if value == int(value) else significant(value)


def _letters(runs: pd.DataFrame) -> dict[str, str]:
    return {run: chr(ord("A") + place) for place, run in enumerate(runs["run_id"])}


def _speed(history: History, runs: pd.DataFrame) -> str:
    """Say how B stands to A: faster or slower with an interval, else why it is inconclusive."""
    pace = own_pace(history.query("pace", run_ids=list(runs["run_id"]))[0]).set_index("run_id")["backend"]
    if len(pace) < len(runs):
        return "Not both runs have times."
    a, b = ((run, pace[run]) for run in runs["run_id"])
    found = resources.cached(
        "runs speed", history.state, (a, b), lambda: compare_speed(history, a, b, contended=True)
    )
    return sentence(found)


def _settings(history: History, runs: pd.DataFrame) -> None:
    """Settings as used, environment and versions: those that differ, of one run all."""
    run_ids, alone = list(runs["run_id"]), len(runs) == 1
    facts, sql = history.query("facts", run_ids=run_ids)
    every = side_by_side(runs, facts, run_ids)
    found = every[alone | every["differs"].astype(bool)].drop(columns="differs")
    if not len(found):
        st.markdown(f"The {len(run_ids)} runs have the same settings and environment ({len(every)} values).")
        return
    words = f"{len(every)} values" if alone else f"{len(found)} of {len(every)} values differ"
    figure.head(f"{words}, as used.", sql=[sql], settings=found)
    table.draw(found.rename(columns={} if alone else _letters(runs)), missing="not known")


def _reproduce(history: History, runs: pd.DataFrame) -> None:
    created = zip(runs["run_id"], runs["created"], strict=True)
    shown_runs.commands(history, {run: f"{run}, {when:%Y-%m-%d %H:%M}" for run, when in created})


# --- tags and notes -------------------------------------------------------------------------------


def _tags(history: History, runs: pd.DataFrame) -> None:
    """The form, and for a single run what was noted before."""
    run_ids = list(runs["run_id"])
    common = sorted(set.intersection(*map(set, runs["tags"])))
    note = runs["note"].iloc[0]
    note = note if len(runs) == 1 and has_value(note) else ""
    # A form of its own for each state of the runs: it shows what others wrote meanwhile.
    state = f"{hash((*run_ids, *common, note)):x}"
    with st.form(f"runs marks {state}", border=False):
        words = "Tags" if len(runs) == 1 else f"Tags that all {len(runs)} runs have"
        there = history.query("filter_values")[0]
        options = sorted({*common, *there.loc[there["name"] == "tags", "value"]})
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
