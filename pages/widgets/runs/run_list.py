"""The list of runs and what can be done with those that are chosen in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pandas as pd
import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import plural
from dsocr_core.base.paths import Temporary
from dsocr_core.review.keys import review_key
from dsocr_core.runs.export import export_runs
from dsocr_core.runs.history import History
from pages.widgets.runs import selection
from pages.widgets.runs.address import NARROWING, STATE, put, value
from pages.widgets.runs.overview import FIGURES, ROW, USUAL, Listed
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.url_state import go

_SHORT = 12
"""Rows of a table that is as high as they are."""
_SIDES = 2
"""Runs that a review, or Timing, can be about."""
_DONE, _FAILED = "runs done", "runs failed"
_ROUND = "runs round"
"""Counts the tables whose choice was taken back: the browser keeps a table's choice as long as the table."""
_WIDTHS = {"run": 154, "commit": 62, "marks": 104, "note": 184}
_MOVES = {"moved to the trash": "restored", "restored": "moved to the trash"}
"""Moves of runs, and the moves that undo them."""


def draw(history: History, runs: pd.DataFrame, found: Listed) -> None:
    """The runs of the chosen groups as a table, and what can be done with those chosen in it."""
    table = found.table
    groups = [name for name in value("group") if name in set(table["group"])]
    if groups:
        table = table[table["group"].isin(groups)]
    picked = _table(table.reset_index(drop=True))
    if not picked:
        return
    _actions(history, picked)
    of_choice = runs[runs["run_id"].isin(picked)].sort_values("created", kind="stable")
    selection.draw(history, of_choice, found.table)


def _table(table: pd.DataFrame) -> list[str]:
    """Draw the runs. Returns the chosen ones, as ordered."""
    run_ids, wanted = list(table["run_id"]), set(value("runs"))
    # Rows are identified by their number: another list is another table, with the same runs chosen.
    name = f"runs table {hash(tuple(run_ids)):x} {st.session_state.get(_ROUND, 0)}"
    rows = [row for row, run_id in enumerate(run_ids) if run_id in wanted]
    # The only figure with thousands: they are told apart, and no format does both.
    rates = table["tokens/s"].map(lambda rate: float(f"{rate:.3g}"))
    shown = table.drop(columns=["compared", "busy"]).assign(**{"tokens/s": rates})
    number, text = st.column_config.NumberColumn, st.column_config.TextColumn

    def take() -> None:
        chosen = st.session_state[name]["selection"]["rows"]
        put("runs", [run_ids[row] for row in chosen if row < len(run_ids)])

    st.dataframe(
        shown[[*USUAL, *(column for column in shown if column not in USUAL)]], key=name, hide_index=True,
        placeholder="–", selection_mode="multi-row", row_height=ROW, on_select=take,
        height="content" if len(table) <= _SHORT else 330, selection_default={"selection": {"rows": rows}},
        column_config={
            "created": st.column_config.DatetimeColumn("created (UTC)", width=104, format="YY-MM-DD HH:mm"),
            "pages": number(width=44),
            "passed": number(width=58, format="percent", help="Pages identical or within tolerance."),
            **{column: number(width=57, format="localized" if column == "tokens/s" else "%.3g", help=words)
               for column, words in FIGURES.items()},
            **{column: text(width=width, pinned=column == "run") for column, width in _WIDTHS.items()},
            # The table's own menu shows them.
            **{column: None for column in shown if column not in USUAL or shown[column].isna().all()},
        },
    )  # fmt: skip
    return [run_ids[row] for row in rows]


def nothing(view: str, total: int) -> None:
    """Say what to do where no run is listed."""
    if view == "Trash" and STATE.used(*NARROWING) == 1:
        st.markdown("The trash is empty.")
    elif total and STATE.used(*NARROWING):
        st.markdown(f"None of the {plural(total, 'run')} pass the filters.")
        clear = partial(STATE.clear, *NARROWING)
        st.button("Clear the filters", type="primary", key="runs clear all", on_click=clear)
    else:
        st.markdown("No runs yet. Read a page on Compare, or import runs that were made elsewhere.")
        if st.button("Go to Compare", type="primary", key="runs to compare"):
            go("compare")


# --- what can be done -----------------------------------------------------------------------------


def _actions(history: History, run_ids: list[str]) -> None:
    trash = value("view") == "Trash"

    def clear() -> None:
        put("runs", [run_id for run_id in value("runs") if run_id not in run_ids])
        st.session_state[_ROUND] = st.session_state.get(_ROUND, 0) + 1

    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{plural(len(run_ids), 'run')} chosen**")
        if not trash and len(run_ids) <= _SIDES:
            _open(history, run_ids)
        st.download_button(
            "Export", partial(exported, history, run_ids), "runs.zip", "application/zip", on_click="ignore",
            icon=":material/download:", key="runs export", help="A zip that imports elsewhere.",
        )  # fmt: skip
        label, icon, key = ("Restore", "restore_from_trash", "runs restore")
        if not trash:
            label, icon, key = ("Move to trash", "delete", "runs trash")
        st.button(
            label, icon=f":material/{icon}:", key=key, on_click=_do,
            args=(history, run_ids, "restored" if trash else "moved to the trash"),
        )  # fmt: skip
        st.button("Clear selection", key="runs none", type="tertiary", on_click=clear)
    if trash:
        st.caption("Empty the trash: `python -m dsocr_core history trash --empty`")


def exported(history: History, run_ids: Sequence[str]) -> bytes:
    """The runs as a zip. Raises DsocrError."""
    with Temporary("export") as name:
        target = Path(name) / "runs.zip"
        export_runs(history, run_ids, target)
        return target.read_bytes()


def _open(history: History, run_ids: list[str]) -> None:
    """The backends of one run, or two runs, the older as A, on the other pages."""
    ordered = sorted(run_ids, key=lambda run_id: history.record(run_id).created)
    if st.button("Timing", icon=":material/timer:", key="runs timing"):
        before, after = ["", *ordered][-2:]
        go("timing", a=before, b=after)
    if st.button("Review", icon=":material/fact_check:", key="runs review"):
        go("review", review=review_key(*ordered))
    if len(run_ids) == 1 and st.button("FLOPs", icon=":material/functions:", key="runs flops"):
        go("flops", run=run_ids[0])


def _do(history: History, run_ids: list[str], words: str) -> None:
    """A callback: the page is drawn after it, with what went wrong."""
    st.session_state.pop(_DONE, None)
    action: Callable[[Sequence[str]], None] = history.restore if words == "restored" else history.trash
    try:
        action(run_ids)
        st.session_state[_DONE] = (words, run_ids)
    except DsocrError as error:
        st.session_state[_FAILED] = str(error)


def last_move(history: History) -> None:
    """The last move to the trash or back, with its undo, until the next one or until it is dismissed."""
    if failed := st.session_state.pop(_FAILED, None):
        show_error(failed)
    if done := st.session_state.get(_DONE):
        words, run_ids = done
        with st.container(horizontal=True, vertical_alignment="center", key="runs moved"):
            st.markdown(f"{plural(len(run_ids), 'run')} {words}.")
            st.button(
                "Undo", icon=":material/undo:", key="runs undo", on_click=_do,
                args=(history, run_ids, _MOVES[words]),
            )  # fmt: skip
            st.button(
                "", icon=":material/close:", type="tertiary", key="runs moved away",
                help="Dismiss", on_click=st.session_state.pop, args=(_DONE, None),
            )  # fmt: skip
