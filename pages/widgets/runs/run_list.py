"""The list of runs and what can be done with those that are chosen in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.words import plural
from dsocr_core.review.keys import review_key
from dsocr_core.review.verdicts import verdict_counts
from dsocr_core.runs.labels import BRIEF
from dsocr_core.runs.statistics import Ratio
from dsocr_core.runs.store import History
from pages.widgets.runs import address, baseline, export, selection
from pages.widgets.runs.address import value
from pages.widgets.runs.tables import PINNED, USUAL, baseline_colour, on_top, run_table, sortable
from pages.widgets.shared import figure, navigation, resources, sources
from pages.widgets.shared.messages import show_error

_ROW = 13
"""Pixels of a row, as high as its letters: 60 rows are on a screen of 900."""
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
    of = (tuple(run_ids), value("baseline"), value("group"))
    found, against, table = resources.held(
        "runs table", history.state, of, lambda: _listed(history, runs, total)
    )
    run_ids = list(table["run"])
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
        picked = _table(table, run_ids, against)
    if not len(picked):
        return
    of_choice = runs[runs["run_id"].isin(picked)].sort_values("created", kind="stable")
    _actions(history, picked, trash, found)
    selection.draw(history, of_choice)


def _listed(history: History, runs: pd.DataFrame, total: int) -> tuple[str, dict[str, Ratio], pd.DataFrame]:
    """The baseline, what the runs are beside it, and their table."""
    run_ids = None if len(runs) == total else list(runs["run_id"])
    pace, _ = history.query("pace", run_ids=run_ids)
    found = baseline.pinned(history.runs())
    against = baseline.against(history, found, pace)
    table = run_table(runs, verdict_counts(history), pace, against)
    return found, against, on_top(table, value("group"), found)


def _table(table: pd.DataFrame, run_ids: list[str], against: Mapping[str, Ratio]) -> list[str]:
    """The runs; returns the chosen ones in the table's order."""
    wanted = set(value("runs"))
    # Rows are identified by their number: another list is another table, with the same runs chosen.
    name = f"runs table {hash(tuple(run_ids)):x} {st.session_state.get(_ROUND, 0)}"
    rows = [row for row, run_id in enumerate(run_ids) if run_id in wanted]
    pinned = bool(table["to baseline"].notna().any())
    group = value("group")
    shown = value("columns") or [column for column in USUAL if table[column].notna().any()]
    if group != address.NO_GROUP:
        shown = [group, *(column for column in shown if column != group)]
    table = table.assign(
        tags=table["tags"].str.join(", "),
        engine=table["engine"].str.replace(" pages together", "").str.replace(", ", " ×"),
        **{name: table[name].replace(BRIEF) for name in ("dtype", "attention")},
        # The only figure with thousands: they are told apart, and no format does both.
        **{"tokens/s": table["tokens/s"].map(lambda rate: float(f"{rate:.3g}"))},
    )
    told: dict[float, str] = {}
    if pinned:
        table, told = sortable(table, against)
    st.dataframe(
        # A styled table costs a hundred milliseconds a thousand runs: only where colours say something.
        table.style.format(lambda number: told.get(number, "–"), subset=["to baseline"])
        .map(lambda ratio: baseline_colour(told.get(ratio)), subset=["to baseline"])
        if pinned
        else table,
        key=name,
        column_order=shown, hide_index=True, placeholder="–",
        selection_mode="multi-row",
        height="content" if len(table) <= _SHORT else 400 if rows else "stretch", row_height=_ROW,
        on_select=lambda: selection.take_rows(name, run_ids),
        selection_default={"selection": {"rows": rows}},
        column_config={
            "created (UTC)": st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm", width=120),
            "pages": st.column_config.NumberColumn(width=48),
            "to baseline": st.column_config.Column(
                width=104, alignment="right",
                help="Its pages beside the baseline's, over the runs like it and like the baseline.",
            ),
            **{
                column: st.column_config.NumberColumn(
                    width=60, format="localized" if column == "tokens/s" else "%.3g", help=words
                )
                for column, words in _FIGURES.items()
            },
            **{
                column: st.column_config.TextColumn(width=width, pinned=column in ("run", group))
                for column, width in _WIDTHS.items()
            },
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
        export.menu(history, run_ids)
        if not trash:
            _pin_button(history, run_ids)
        if len(run_ids) == 1 and not trash:
            baseline.pin_button(history, run_ids[0], pinned, _failed)
        if trash:
            st.button(
                "Take out of the trash", icon=":material/restore_from_trash:", key="runs restore",
                on_click=_do, args=(history.restore, run_ids, "taken out of the trash"),
            )  # fmt: skip
        else:
            st.button(
                "Move to trash", icon=":material/delete:", key="runs trash",
                on_click=_do, args=(history.trash, run_ids, "moved to the trash"),
            )  # fmt: skip
        st.button("Choose none", key="runs none", type="tertiary", on_click=_choose_none, args=(run_ids,))
    if trash:
        st.caption("For good, all that is in the trash: `python -m dsocr_core history trash --empty`")


def _pin_button(history: History, run_ids: list[str]) -> None:
    every = history.runs()
    tags = every[every["run_id"].isin(run_ids)]["tags"]
    on = not all(PINNED in of_run for of_run in tags)
    st.button(
        "Keep on top" if on else "Not on top", icon=":material/vertical_align_top:", key="runs on top",
        on_click=_tag, args=(history, run_ids, on), help=f"The tag {PINNED}: such runs lead the table.",
    )  # fmt: skip


def _tag(history: History, run_ids: list[str], on: bool) -> None:
    try:
        for run_id in run_ids:
            history.tag(run_id, PINNED, on=on)
    except DsocrError as error:
        _failed(str(error))


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
    """A run's first page on Compare: the sample of that name, else the file that was read."""
    images = history.tables(run_id).get("readings")
    rows = images.select(["path", "page", "preset"]).slice(0, 1).to_pylist() if images is not None else []
    if not rows:
        show_error(f"run {run_id} has no page on record")
        return
    page = rows[0]
    path, preset = str(page.get("path") or ""), str(page.get("preset") or "")
    sample = str(page.get("page") or "").rpartition(".")[0]
    if sample in sources.samples().keys:
        navigation.to_compare(sample, preset)
    navigation.to_compare(preset=preset, path=path)


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
    """The last move to the trash or back, with its undo, until the next one or until it is put away."""
    if failed := st.session_state.pop(_FAILED, None):
        show_error(failed)
    if done := st.session_state.get(_DONE):
        words, run_ids = done
        undo, back = (
            (history.restore, "taken out of the trash")
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
                help="Put this line away", on_click=st.session_state.pop, args=(_DONE, None),
            )  # fmt: skip
