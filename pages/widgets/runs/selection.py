"""The chosen runs: settings, environment, tags and notes, how to make them again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from html import escape

import pandas as pd
import streamlit as st

from dsocr_core.base.formatting import moment
from dsocr_core.runs.commands import command_of
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import checkout_words, has_value
from dsocr_core.runs.settings_diff import record_facts, side_by_side
from pages.widgets.runs import address, tags
from pages.widgets.runs.address import key, value
from pages.widgets.shared import figure, table
from pages.widgets.shared.messages import plain

MOST = 12
"""Runs side by side; more do not fit a screen."""
_ENVIRONMENT = ("environment", "versions")


def draw(history: History, runs: pd.DataFrame) -> None:
    """Tabs about the chosen runs, the oldest first. Only the open one is computed."""

    def of_shown(drawer: Callable[[History, pd.DataFrame], None]) -> None:
        if len(runs) > MOST:
            st.caption(f"The first {MOST} of {len(runs)} chosen runs.")
        drawer(history, runs.head(MOST))

    figure.tabs(
        {
            "Settings": partial(of_shown, _settings),
            "Environment": partial(of_shown, _environment),
            "Tags and notes": partial(tags.draw, history, runs),
            "Reproduce": partial(of_shown, _reproduce),
        },
        key("tab"),
    )


def _settings(history: History, runs: pd.DataFrame) -> None:
    facts, sql = history.query("facts", run_ids=list(runs["run_id"]), section="settings")
    _compared("settings", facts, runs, [sql])


def _environment(history: History, runs: pd.DataFrame) -> None:
    run_ids = list(runs["run_id"])
    answers = [history.query("facts", run_ids=run_ids, section=section) for section in _ENVIRONMENT]
    facts = pd.concat([record_facts(runs, run_ids), *(facts for facts, _ in answers)])
    _compared("environment", facts, runs, [sql for _, sql in answers])


def _compared(what: str, facts: pd.DataFrame, runs: pd.DataFrame, sql: list[str]) -> None:
    run_ids = list(runs["run_id"])
    alone = len(run_ids) == 1
    if not alone:
        st.toggle("Show what is the same, too", key=key("all"))
    found = side_by_side(facts, run_ids, differing=not alone and not value("all"))
    every = facts[["section", "name"]].drop_duplicates()
    if what == "settings":
        found = found.drop(columns="section")
    if not len(every):
        st.markdown(f"No {what} were recorded with {'this run' if alone else 'these runs'}.")
    elif not len(found):
        st.markdown(f"The {len(run_ids)} runs have the same {what} ({len(every)} values).")
    else:
        whole = alone or value("all")
        words = f"{len(every)} values" if whole else f"{len(found)} of {len(every)} values differ"
        figure.head(words, sql=sql, **{what: found})
        table.draw(found, missing="not recorded")


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
