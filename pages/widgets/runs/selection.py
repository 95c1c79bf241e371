"""The chosen runs: settings, environment, tags and notes, how to make them again."""

from __future__ import annotations

from functools import partial
from html import escape

import pandas as pd
import streamlit as st

from dsocr_core.base.formatting import moment
from dsocr_core.runs.commands import command_of
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import checkout_words, has_value
from dsocr_core.runs.settings_diff import record_facts, side_by_side
from dsocr_core.runs.speed import compare_speed, sentence
from pages.widgets.runs import address, tags
from pages.widgets.runs.address import STATE, bound, value
from pages.widgets.runs.tables import figures, own_pace
from pages.widgets.shared import figure, resources, table
from pages.widgets.shared.messages import plain
from pages.widgets.shared.table import Column

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
            "Tags and notes": partial(tags.draw, history, runs),
            "Reproduce": partial(_reproduce, history, runs.head(MOST)),
        },
        STATE,
    )


def _figures(history: History, runs: pd.DataFrame, table_of_runs: pd.DataFrame) -> None:
    rows = table_of_runs.set_index("run_id").loc[runs["run_id"]].reset_index()
    letters = {run: chr(ord("A") + place) for place, run in enumerate(rows["run_id"])}
    names = ", ".join(
        f"{letter} {name} at {commit}" for letter, name, commit in
        zip(letters.values(), rows["run"], rows["commit"], strict=True)
    )  # fmt: skip
    if len(runs) == 2:
        st.markdown(f"**{plain(_speed(history, runs))}**")
    st.caption(plain(names))
    found = figures(rows)
    columns = {name: Column(name, "") for name in letters.values()}
    table.draw(
        found, {"figure": Column("figure", left=True), **columns, "ratio": Column("B/A", "%.2f")}, "not known"
    )


def _speed(history: History, runs: pd.DataFrame) -> str:
    """Say how B stands to A: faster or slower with an interval, else why it is inconclusive."""
    pace = own_pace(history.query("pace", run_ids=list(runs["run_id"]))[0]).set_index("run_id")["backend"]
    if len(pace) < len(runs):
        return "Not both runs have times."
    a, b = ((run, pace[run]) for run in runs["run_id"])
    found = resources.held(
        "runs speed", history.state, (a, b), lambda: compare_speed(history, a, b, contended=True)
    )
    return sentence(found)


def _settings(history: History, runs: pd.DataFrame) -> None:
    """Settings as used, environment and versions: those that differ, of one run all."""
    run_ids, alone = list(runs["run_id"]), len(runs) == 1
    facts, sql = history.query("facts", run_ids=run_ids)
    facts = pd.concat([record_facts(runs, run_ids), facts])
    if not alone:
        st.toggle("Show what is the same, too", **bound("all"))
    whole = alone or value("all")
    found = side_by_side(facts, run_ids, differing=not whole)
    every = facts[["section", "name"]].drop_duplicates()
    letters = {run: chr(ord("A") + place) for place, run in enumerate(run_ids)}
    if not len(found):
        st.markdown(f"The {len(run_ids)} runs have the same settings and environment ({len(every)} values).")
        return
    words = f"{len(every)} values" if whole else f"{len(found)} of {len(every)} values differ"
    figure.head(f"{words}, as used.", sql=[sql], settings=found)
    table.draw(found.rename(columns={} if alone else letters), missing="not known")


def _reproduce(history: History, runs: pd.DataFrame) -> None:
    for run_id in runs["run_id"]:
        record = history.record(run_id)
        command = command_of(record, _images(history, run_id) if record.source == "dsocr" else [])
        st.markdown(f"**{plain(run_id)}**, {moment(record.created)}")
        if command is None:
            st.markdown(f"Imported from {record.source}; no command recorded.")
            continue
        st.code(command, language=None, wrap_lines=True)
        made_up = "" if record.command else " The command is made from the run's settings."
        # As HTML: Markdown makes a link of an address, however it is escaped.
        st.html(f"<div class='dsocr-reasons'>{escape(checkout_words(record) + made_up)}</div>")


def _images(history: History, run_id: str) -> list[str]:
    """The files that a run read, in its order."""
    readings = history.tables(run_id).get("readings")
    if readings is None:
        return []
    rows = readings.select(["path", "page"]).to_pylist()
    return list(dict.fromkeys(row["path"] if has_value(row["path"]) else row["page"] for row in rows))


def take_rows(name: str, run_ids: list[str]) -> None:
    """Choose the runs whose rows are selected in a table of them."""
    rows = st.session_state[name]["selection"]["rows"]
    address.put("runs", [run_ids[row] for row in rows if row < len(run_ids)])
