"""The list of runs and what can be done with those that are chosen in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import plural
from dsocr_core.review.keys import review_key
from dsocr_core.review.verdicts import verdict_counts
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import BRIEF
from dsocr_core.runs.record import flattened
from pages.widgets.runs import address, baseline, export, selection
from pages.widgets.runs.address import value
from pages.widgets.runs.tables import USUAL, run_table
from pages.widgets.shared import figure, navigation, resources, sources
from pages.widgets.shared.messages import show_error

_ROW = 24
"""Pixels of a row: as high as a target of the pointer has to be."""
_SHORT = 10
"""Rows of a table that is as high as they are."""
_SIDES = 2
"""Runs that a review can be about."""
_DONE, _FAILED = "runs done", "runs failed"
_ROUND = "runs round"
"""Counts the tables whose choice was taken back: the browser keeps a table's choice as long as the table."""
_WIDTHS: dict[str, int] = {
    "run": 152, "tags": 70, "kind": 50, "model": 104, "device": 60, "engine": 76, "dtype": 50,
    "attention": 62, "preset": 62, "draft": 60, "parity": 84, "commit": 64, "note": 220, "settings": 160,
}  # fmt: skip
_FIGURES = {
    "s/page": "Latency: median seconds a page, of our engine where it read.",
    "pages/s": "Throughput: of pages read together as the bench measured it, else of their own times.",
    "tokens/s": "New tokens a second of decode; of pages read together of all, as the bench measured it.",
    "prefill ms": "Median prefill of a page, vision included.",
}


def draw(history: History, runs: pd.DataFrame, total: int, sql: str, head: DeltaGenerator) -> None:
    """`runs` are those that pass the filters, of `total`; in the trash when that is shown. Their sum stands
    in `head`, beside the choice of the view: each line above the table costs it rows.
    """
    trash = value("view") == "Trash"
    _show_last_move(history)
    if not len(runs):
        _nothing(trash, total)
        return
    run_ids = list(runs["run_id"])
    of = (tuple(run_ids), value("baseline"))
    found, table = resources.held("runs table", history.state, of, lambda: _listed(history, runs, total))
    of_all = f" of {total:,}" if len(runs) < total else ""
    where = " in the trash" if trash else ", newest first"
    pages = int(runs["pages"].fillna(0).sum())
    with head:
        figure.head(
            f"{plural(len(runs), 'run')}{of_all}{where}; {plural(pages, 'page')} read"
            + (f"; baseline {found}" if found else ""),
            sql=[sql], runs=table,
        )  # fmt: skip
    tall = len(table) > _SHORT and not set(run_ids) & set(value("runs"))
    with st.container(key="runs list" if tall else None):
        picked = _table(table, run_ids)
    if not len(picked):
        return
    of_choice = runs[runs["run_id"].isin(picked)].sort_values("created", kind="stable")
    _actions(history, picked, trash, found)
    selection.draw(history, of_choice)


def _listed(history: History, runs: pd.DataFrame, total: int) -> tuple[str, pd.DataFrame]:
    """The baseline, and the table of the runs beside it."""
    run_ids = None if len(runs) == total else list(runs["run_id"])
    pace, _ = history.query("pace", run_ids=run_ids)
    found = baseline.pinned(history.runs())
    against = baseline.against(history, found, pace)
    return found, run_table(runs, verdict_counts(history), pace, against)


def _table(table: pd.DataFrame, run_ids: list[str]) -> list[str]:
    """The runs; returns the chosen ones in the table's order."""
    wanted = set(value("runs"))
    # Rows are identified by their number: another list is another table, with the same runs chosen.
    name = f"runs table {hash(tuple(run_ids)):x} {st.session_state.get(_ROUND, 0)}"
    rows = [row for row, run_id in enumerate(run_ids) if run_id in wanted]
    table = table.assign(
        tags=table["tags"].str.join(", "),
        engine=table["engine"].str.replace(" pages together", "").str.replace(", ", " ×"),
        **{name: table[name].replace(BRIEF) for name in ("dtype", "attention")},
        # The only figure with thousands: they are told apart, and no format does both.
        **{"tokens/s": table["tokens/s"].map(lambda rate: float(f"{rate:.3g}"))},
    )
    st.dataframe(
        table,
        key=name,
        hide_index=True, placeholder="–",
        selection_mode="multi-row",
        height="content" if len(table) <= _SHORT else 400 if rows else "stretch", row_height=_ROW,
        on_select=lambda: selection.take_rows(name, run_ids),
        selection_default={"selection": {"rows": rows}},
        column_config={
            "pages": st.column_config.NumberColumn(width=48),
            "x baseline": st.column_config.NumberColumn(
                width=80, format="%.2fx",
                help="Speed of its pages beside the baseline's, over the runs like it and like the baseline; "
                "above 1 it is faster. Empty where the interval says neither.",
            ),
            **{
                column: st.column_config.NumberColumn(
                    width=60, format="localized" if column == "tokens/s" else "%.3g", help=words
                )
                for column, words in _FIGURES.items()
            },
            **{
                column: st.column_config.TextColumn(width=width, pinned=column == "run")
                for column, width in _WIDTHS.items()
            },
            # The table's own menu shows them.
            **{column: None for column in table if column not in USUAL or table[column].isna().all()},
        },
    )  # fmt: skip
    return [run_ids[row] for row in rows]


def _nothing(trash: bool, total: int) -> None:
    if total and address.filtered():
        st.markdown(f"None of the {plural(total, 'run')} {'in the trash ' if trash else ''}pass the filters.")
        st.button("Clear the filters", type="primary", key="runs clear all", on_click=address.clear_filters)
    elif trash:
        st.markdown("The trash is empty.")
    else:
        st.markdown("No runs yet. Read a page on Compare, or import runs that were made elsewhere.")
        with st.container(horizontal=True):
            if st.button("Go to Compare", type="primary", key="runs to compare"):
                navigation.to_compare()
            st.button("Import runs", key="runs to import", on_click=address.put, args=("view", "Import"))


# --- what can be done -----------------------------------------------------------------------------


def _actions(history: History, run_ids: list[str], trash: bool, pinned: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{plural(len(run_ids), 'run')} chosen**")
        if not trash:
            _open(history, run_ids)
        export.button(history, run_ids)
        if len(run_ids) == 1 and not trash:
            baseline.pin_button(history, run_ids[0], pinned, _failed)
        if trash:
            st.button(
                "Restore", icon=":material/restore_from_trash:", key="runs restore",
                on_click=_do, args=(history.restore, run_ids, "restored"),
            )  # fmt: skip
        else:
            st.button(
                "Move to trash", icon=":material/delete:", key="runs trash",
                on_click=_do, args=(history.trash, run_ids, "moved to the trash"),
            )  # fmt: skip
        st.button("Clear selection", key="runs none", type="tertiary", on_click=_choose_none, args=(run_ids,))
    if trash:
        st.caption("Empty the trash: `python -m dsocr_core history trash --empty`")


def _open(history: History, run_ids: list[str]) -> None:
    """The chosen runs on the other pages, where these can show as many."""
    if st.button("Timing", icon=":material/timer:", key="runs timing"):
        navigation.to_timing(run_ids)
    if len(run_ids) > _SIDES:
        return
    # The backends of one run, or two runs, the older as A.
    if st.button("Review", icon=":material/fact_check:", key="runs review"):
        navigation.to_review(review_key(*sorted(run_ids, key=lambda run_id: history.record(run_id).created)))
    if len(run_ids) > 1:
        return
    if st.button("FLOPs", icon=":material/functions:", key="runs flops"):
        navigation.to_flops(run_ids[0])
    if st.button("Compare", icon=":material/compare:", key="runs compare", help="Its first page"):
        _compare(history, run_ids[0])


def _compare(history: History, run_id: str) -> None:
    """A run's first page on Compare under the run's settings: the sample of that name, else its file."""
    images = history.tables(run_id).get("readings")
    rows = images.select(["path", "page", "preset"]).slice(0, 1).to_pylist() if images is not None else []
    if not rows:
        show_error(f"run {run_id} has no page on record")
        return
    record = history.record(run_id)
    page, settings = rows[0], dict(flattened(record.settings))
    # "auto" means another dtype on another machine: what the run was read in is on its record.
    dtype = record.dtype if settings.get("dtype") in (None, "auto") else settings["dtype"]
    asked = {
        "preset": page["preset"] or record.preset, "dtype": settings.get("a.dtype") or dtype,
        "attention": settings.get("attention"),
        "dtype_b": settings.get("b.dtype") or (dtype if settings.get("a.dtype") else None),
    }  # fmt: skip
    known = {name: str(text) for name, text in asked.items() if text}
    sample = str(page.get("page") or "").rpartition(".")[0]
    if sample in sources.samples().keys:
        navigation.to_compare(sample, **known)
    navigation.to_compare(path=str(page.get("path") or ""), **known)


def _choose_none(run_ids: list[str]) -> None:
    address.put("runs", [run_id for run_id in value("runs") if run_id not in run_ids])
    st.session_state[_ROUND] = st.session_state.get(_ROUND, 0) + 1


def _failed(words: str) -> None:
    st.session_state[_FAILED] = words


def _do(action: Callable[[Sequence[str]], None], run_ids: list[str], words: str) -> None:
    """A callback: the page is drawn after it, with what went wrong."""
    st.session_state.pop(_DONE, None)
    try:
        action(run_ids)
        st.session_state[_DONE] = (words, run_ids)
    except DsocrError as error:
        st.session_state[_FAILED] = str(error)


def _show_last_move(history: History) -> None:
    """The last move to the trash or back, with its undo, until the next one or until it is dismissed."""
    if failed := st.session_state.pop(_FAILED, None):
        show_error(failed)
    if done := st.session_state.get(_DONE):
        words, run_ids = done
        undo, back = (
            (history.restore, "restored")
            if words == "moved to the trash"
            else (history.trash, "moved to the trash")
        )
        with st.container(horizontal=True, vertical_alignment="center", key="runs moved"):
            st.markdown(f"{plural(len(run_ids), 'run')} {words}.")
            st.button(
                "Undo", icon=":material/undo:", key="runs undo", on_click=_do, args=(undo, run_ids, back)
            )
            st.button(
                "", icon=":material/close:", type="tertiary", key="runs moved away",
                help="Dismiss", on_click=st.session_state.pop, args=(_DONE, None),
            )  # fmt: skip
