"""Above the list of runs: one sentence, speed against fidelity, and the groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import streamlit as st

from dsocr_core.base.formatting import amount, percent, plural, significant
from pages.widgets.runs import address
from pages.widgets.runs.address import GROUPS, STATE, bound, put, value
from pages.widgets.runs.tables import Listed
from pages.widgets.shared import figure, plots
from pages.widgets.shared.labels import mark
from pages.widgets.shared.messages import plain

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

ROW = 24
"""Pixels of a row: as high as a target of the pointer has to be."""
_HEIGHT = 300
_COLUMNS = {
    "group": st.column_config.TextColumn(width=250),
    "runs": st.column_config.NumberColumn(width=44),
    "pages/s": st.column_config.NumberColumn(
        "best pages/s", width=84, format="%.3g", help="Of runs on a quiet machine without a profiler."
    ),
    "trend": st.column_config.LineChartColumn("pages/s so far", width=100, y_min=0),
    "same text": st.column_config.NumberColumn(
        width=76, format="percent", help="Share of compared pages that are identical or within tolerance."
    ),
    "newest": st.column_config.DatetimeColumn(width=110, format="YYYY-MM-DD HH:mm"),
}


def draw(found: Listed, total: int, sql: list[str]) -> None:
    st.markdown(f"**{plain(sentence(found, total))}**")
    left, right = st.columns([4, 6])
    with left:
        _fidelity(found, sql)
    with right:
        _groups(found)


def sentence(found: Listed, total: int) -> str:
    """Count runs and groups, name the fastest, and how many are marked."""
    table, groups = found.table, found.groups
    of_all = f" of {total:,}" if len(table) < total else ""
    words = f"{plural(len(table), 'run')}{of_all} in {plural(len(groups), 'group')}"
    quiet = table[~table["busy"] & table["pages/s"].notna()]
    if len(quiet):
        best = quiet.loc[quiet["pages/s"].idxmax()]
        words += f"; fastest: {best['run']}, {amount(best['pages/s'], 'pages/s')}"
    busy = int(table["busy"].sum())
    are = "is" if busy == 1 else "are"
    return f"{words}. {busy:,} {are} profiled or of a busy machine: marked." if busy else f"{words}."


def _groups(found: Listed) -> None:
    names = list(found.groups["group"])
    wanted = [place for place, name in enumerate(names) if name in value("group")]
    box = f"runs groups {hash(tuple(names)):x} {st.session_state.get('runs groups round', 0)}"

    def take() -> None:
        rows = st.session_state[box]["selection"]["rows"]
        put("group", [names[row] for row in rows if row < len(names)])

    st.selectbox(
        "Group by", GROUPS, **bound("by"), label_visibility="collapsed", on_change=STATE.clear,
        args=("group",), format_func=lambda name: f"Group by {name}",
    )  # fmt: skip
    st.dataframe(
        found.groups, key=box, hide_index=True, row_height=ROW, height=_HEIGHT, placeholder="–",
        selection_mode="multi-row", on_select=take, selection_default={"selection": {"rows": wanted}},
        column_config=_COLUMNS,
    )  # fmt: skip


def _fidelity(found: Listed, sql: list[str]) -> None:
    points = found.fidelity
    own = points[~points["reference"]]
    missing = len(found.groups) - len(own)
    words = "What each engine buys at what fidelity: a point a compared group."
    words += f" {plural(missing, 'group')} without a comparison." if missing else ""
    figure.head(words, sql=sql, runs=found.table, groups=found.groups)
    if points.empty:
        st.caption("No run was compared with another backend: `dsocr compare PAGES --save` records one.")
        return
    with st.popover("Cost", key="runs cost"):
        st.number_input(
            "Price of the machine an hour", 0.0, 1e6, format="%g", help="Shows cost a page for pages/s.",
            **bound("price"),
        )  # fmt: skip
    figure.plot(fidelity(points, float(value("price"))), "fidelity", words)


def fidelity(points: pd.DataFrame, price: float = 0.0) -> Figure:
    """Pages a second, or what 1,000 pages cost, against the share of pages with the same text."""
    y = price / 3.6 / points["pages_per_s"] if price else points["pages_per_s"]
    unit = "cost of 1,000 pages" if price else "pages/s"
    rows = points.assign(y=y)
    traces = []
    for reference, words, symbol, shade in (
        (False, "compared with published code or B", "circle", "#3B6FB6"),
        (True, "published code itself", "diamond-open", plots.NEUTRAL),
    ):
        part = rows[rows["reference"] == reference]
        marker = {"size": 11, "symbol": symbol, "line": {"width": 2 if reference else 1},
                  "color": [plots.NEUTRAL if busy else shade for busy in part["busy"]]}  # fmt: skip
        said = [
            f"{mark(row['name'])}: {significant(row['y'])} {unit}, {percent(100 * row['share'])} of "
            f"{row['pages']} pages"
            for row in part.to_dict("records")
        ]
        traces.append(plots.points(words, 100 * part["share"], part["y"], marker, said))
    low = min(95.0, 100 * float(points["share"].min()) - 2)
    return plots.figure(
        traces, 250, margin=plots.MARGIN | {"t": 4}, legend=plots.below(-0.28),
        xaxis={"title": {"text": "% of pages identical or within tolerance"}, "range": [low, 100.4]},
        yaxis=plots.log_axis(y, unit),
    )  # fmt: skip


def chips(counts: dict[str, int]) -> None:
    """Chips with their counts: runs that alone are listed."""
    options = [name for name in address.VIEWS if name and (counts[name] or value("view") == name)]
    if not options:
        return
    box = "runs view chips"
    st.session_state[box] = value("view") or None
    st.pills(
        "Show only", options, key=box, format_func=lambda name: f"{name} {counts[name]:,}",
        on_change=lambda: put("view", st.session_state[box] or ""), label_visibility="collapsed",
    )  # fmt: skip
