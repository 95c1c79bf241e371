"""All runs on the FLOPs page: one sentence, a map of stages and runs, and the stages of the chosen run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from dsocr_core.base.formatting import amount, percent, plural, significant
from dsocr_core.models.family import computed_stages
from dsocr_core.models.stages import Stage
from dsocr_core.runs.flop_gaps import by_loss, exact_sentence, lost_sentence
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import short
from pages.widgets.flops.address import PARAMETERS, STATE, TIME, bound, put, value
from pages.widgets.shared import figure, plots, resources, table
from pages.widgets.shared.messages import plain
from pages.widgets.shared.new_runs import shown
from pages.widgets.shared.stages import colour, stage_name
from pages.widgets.shared.table import Column

COLUMNS_AT_ONCE = 30
"""Runs of the map, the newest first; the older ones are a click away."""
_LOST, _MORE, _LESS = "213 94 0", "192 54 44", "29 95 168"
"""Colours of lost time, and of more and fewer FLOPs than were counted."""
_STAGES = {
    "stage": Column("stage", lambda stage: row_name(stage), left=True),
    "milliseconds": Column("measured", "ms", "The median time; prefill's is what vision leaves of it."),
    "lower_bound_ms": Column(
        "lower bound", "ms",
        "The longer of the needed FLOPs at the device's peak, and of the bytes that have to move.",
    ),
    "lost_ms": Column("lost", "ms"),
    "times_bound": Column("x", "", "Measured over the lower bound."),
    "bound_by": Column("bound by"),
    "bandwidth_share": Column("of bandwidth", "share"),
    "peak_share": Column("of peak", "share"),
    "analytic": Column("FLOPs analytic", "FLOP", "By arithmetic, a multiply-add as two."),
    "counted": Column("counted", "FLOP", "As torch's counter, or the importer's source, counted them."),
    "gap_flops": Column("gap", "FLOP"),
    "published": Column(
        "published", "FLOP",
        "As torch's counter counted them in the published modules, which compute logits at every position.",
    ),
}  # fmt: skip


Side = tuple[str, str]
"""A run and one of its backends."""
Cells = dict[tuple[str, str, str], dict[str, Any]]
"""Rows by stage, run and backend."""


def row_name(stage: str) -> str:
    """A stage as a row: prefill's own is the language model, as vision stands with it and not in it."""
    return "prefill › language model" if stage == Stage.PREFILL else stage_name(stage)


@dataclass(frozen=True)
class _AllRuns:
    """Figures of all runs from the history, made once for all browser tabs."""

    rows: pd.DataFrame
    """Rows of the query gap_stages, the newest run first."""
    sql: str
    missing: pd.DataFrame
    names: dict[Side, str]
    bounded: frozenset[Side]
    """Those with a lower bound."""
    sentence: str
    unbounded: str
    """Reasons of runs without a lower bound, with their numbers."""
    stages: list[str]
    cells: Cells


def draw(history: History) -> None:
    """The sentence, the map and the chosen run."""
    there = frozenset(shown(history))
    found = resources.held("flop gaps", history.state, there, lambda: _asked(history, there))
    STATE.settle("run", {run for run, _ in found.names})
    chosen = _chosen(found)
    stages = by_loss(_of(found.rows, *chosen)) if chosen else found.rows
    _sentence(found, stages)
    if chosen:
        _map(found, chosen)
        _run(history, stages, found.names[chosen], chosen)


def _asked(history: History, there: frozenset[str]) -> _AllRuns:
    rows, sql = history.query("gap_stages")
    missing, _ = history.query("gap_missing")
    rows = rows[rows["run_id"].isin(there)].assign(backend=rows["backend"].fillna(""))
    rows = rows.sort_values("created", ascending=False, kind="stable")
    known = rows[rows["lower_bound_ms"].notna()]
    bounded = frozenset(zip(known["run_id"], known["backend"], strict=True))
    firsts = rows.drop_duplicates(["run_id", "backend"])
    sides = zip(firsts["run_id"], firsts["backend"], strict=True)
    reasons = firsts.loc[[side not in bounded for side in sides], "no_bound"].value_counts()
    unbounded = ", ".join(f"{why} ({count})" for why, count in reasons.items())
    there_are = list(dict.fromkeys(rows["stage"]))
    order = [stage.value for stage in computed_stages() if stage.value in there_are]
    order += [stage for stage in there_are if stage not in order]
    cells = {(row["stage"], row["run_id"], row["backend"]): row for row in rows.to_dict("records")}
    return _AllRuns(
        rows, sql, missing, _names(firsts), bounded, exact_sentence(rows), unbounded, order, cells
    )


def _names(firsts: pd.DataFrame) -> dict[Side, str]:
    """Words of each run and backend, the newest first."""
    return {
        (row.run_id, row.backend): " · ".join(
            each for each in (
                row.backend or "sweep", row.device if isinstance(row.device, str) else "",
                (row.git_commit or "")[:7], f"{row.created:%Y-%m-%d %H:%M}", short(str(row.shape or ""), 40),
            ) if each
        )
        for row in firsts.itertuples()
    }  # fmt: skip


def _of(rows: pd.DataFrame, run: str, backend: str) -> pd.DataFrame:
    return rows[(rows["run_id"] == run) & (rows["backend"] == backend)]


def _chosen(found: _AllRuns) -> Side | None:
    """The run and backend of the link, else the newest with a lower bound, else the newest."""
    run, backend = value("run"), value("backend")
    fitting = [each for each in found.names if each[0] == run and backend in ("", each[1])]
    bounded = (each for each in found.names if each in found.bounded)
    return next(iter(fitting), None) or next(bounded, None) or next(iter(found.names), None)


def _sentence(found: _AllRuns, stages: pd.DataFrame) -> None:
    """Say what the chosen run loses and where, and how exact the arithmetic of all runs is."""
    lost = f"{lost_sentence(stages)} " if len(stages) else ""
    st.markdown(f"**{plain(lost + found.sentence)}**")
    notes = []
    if len(found.missing):
        counts = found.missing["reason"].value_counts()
        several = len(counts) > 1
        reasons = ", ".join(
            f"{reason} ({count})" if several else str(reason) for reason, count in counts.items()
        )
        way_out = "; dsocr history count RUN counts them" if "recorded without FLOPs" in counts else ""
        notes.append(f"{plural(len(found.missing), 'run')} without FLOPs: {reasons}{way_out}.")
    if len(found.bounded) < len(found.names):
        notes.append(f"Without a lower bound: {found.unbounded}.")
    if notes:
        st.caption(plain(" ".join(notes)))


# --- the map ----------------------------------------------------------------------------------------------


def _map(found: _AllRuns, chosen: Side) -> None:
    st.segmented_control(
        "Map",
        PARAMETERS["reading"].choices,
        required=True,
        label_visibility="collapsed",
        **bound("reading"),
    )
    of_time, order = value("reading") == TIME, found.stages
    drawn = [side for side in found.names if not of_time or side in found.bounded]
    older = min(int(value("older")), max(len(drawn) - 1, 0))
    columns = drawn[older : older + COLUMNS_AT_ONCE]
    words = (
        "Time above the lower bound, a page."
        if of_time
        else "FLOPs by arithmetic against FLOPs counted: red above, blue below, no colour where equal."
    )
    figure.head(f"{words} A click opens a run.", sql=[found.sql], gaps=found.rows)
    config: dict[str, Any] = {"stage": st.column_config.TextColumn("stage", pinned=True, width=150)}
    for number, column in enumerate(columns):
        head = _head(next(found.cells[stage, *column] for stage in order if (stage, *column) in found.cells))
        head = f"▸ {head}" if column == chosen else head
        config[f"{number}"] = st.column_config.TextColumn(head, help=plain(found.names[column]), width=100)
    st.dataframe(
        _styled(found.cells, order, columns, of_time), hide_index=True, column_config=config, key="flops map",
        height=table.height_of(len(order) + of_time), selection_mode="single-cell",
        on_select=lambda: _take(order, columns), placeholder="–",
    )  # fmt: skip
    _pager(len(drawn), older)


def _styled(cells: Cells, order: list[str], columns: list[Side], of_time: bool) -> Any:
    """The map as a frame of words with the colours of its cells."""
    sums = ["page, over its bound"] if of_time else []
    words: dict[str, list[str | None]] = {"stage": [*(row_name(stage) for stage in order), *sums]}
    colours: dict[str, list[str]] = {"stage": [""] * len(words["stage"])}
    for number, (run, backend) in enumerate(columns):
        column = [cells.get((stage, run, backend)) for stage in order]
        whole = sum(_number(cell, "milliseconds") for cell in column if cell)
        made = [_time(cell, whole) if of_time else _flops(cell) for cell in column]
        if of_time:
            bound = sum(_number(cell, "lower_bound_ms") for cell in column if cell)
            timed = [cell for cell in column if cell and cell["lower_bound_ms"] == cell["lower_bound_ms"]]
            page = sum(_number(cell, "milliseconds") for cell in timed)
            made.append((f"{significant(page / bound)}x" if bound else None, ""))
        words[f"{number}"] = [each[0] for each in made]
        colours[f"{number}"] = [each[1] for each in made]
    shades = pd.DataFrame(colours)
    return pd.DataFrame(words).style.apply(lambda _: shades, axis=None)


def _number(cell: dict[str, Any], name: str) -> float:
    found = cell[name]
    return float(found) if found == found and found is not None else 0.0


def _time(cell: dict[str, Any] | None, whole: float) -> tuple[str | None, str]:
    if cell is None or pd.isna(lost := cell["milliseconds"] - cell["lower_bound_ms"]):
        return None, ""
    share = min(abs(lost) / whole, 1.0) if whole else 0.0
    return amount(lost / 1e3, "s"), _shade(_LOST if lost >= 0 else _LESS, share)


def _flops(cell: dict[str, Any] | None) -> tuple[str | None, str]:
    if cell is None or cell["gap_flops"] != cell["gap_flops"]:
        return None, ""
    if cell["gap_flops"] == 0:
        return "0", ""
    gap = cell["gap_percent"]
    known = gap == gap and gap is not None
    # 5 % and more is the deepest colour.
    shade = _shade(_MORE if not known or gap > 0 else _LESS, min(abs(gap) / 5, 1.0) if known else 1.0)
    return f"{'+' if known and gap > 0 else ''}{percent(gap)}", shade


def _shade(colour: str, part: float) -> str:
    return f"background-color: rgb({colour} / {0.08 + 0.52 * part:.2f})"


def _head(row: dict[str, Any]) -> str:
    commit = row["git_commit"]
    when = commit[:7] if isinstance(commit, str) else f"{row['created']:%d %b}"
    return f"{short(row['backend'], 8)} {when}".strip()


def _take(order: list[str], columns: list[Side]) -> None:
    """Open the run and stage of the cell that was clicked."""
    for row, column in st.session_state["flops map"]["selection"]["cells"]:
        if column.isdecimal():
            put("run", columns[int(column)][0])
            put("backend", columns[int(column)][1])
        stage = order[row] if row < len(order) else ""
        put("stage", stage if stage in PARAMETERS["stage"].choices else "")


def _pager(count: int, older: int) -> None:
    if count <= COLUMNS_AT_ONCE:
        return
    last = min(older + COLUMNS_AT_ONCE, count)
    left, middle, right = st.columns([1, 3, 1], vertical_alignment="center")
    left.button(
        "Newer", on_click=put, args=("older", max(older - COLUMNS_AT_ONCE, 0)), disabled=older == 0,
        icon=":material/chevron_left:", key="flops newer",
    )  # fmt: skip
    middle.caption(f"{older + 1:,} to {last:,} of {count:,}, newest first")
    right.button(
        "Older", on_click=put, args=("older", older + COLUMNS_AT_ONCE), disabled=last >= count,
        icon=":material/chevron_right:", key="flops older",
    )  # fmt: skip


# --- the chosen run ---------------------------------------------------------------------------------------


def _run(history: History, stages: pd.DataFrame, name: str, chosen: Side) -> None:
    run, _ = chosen
    first = stages.iloc[0]
    several = f" ({int(first['shapes'])} shapes of page)" if first["shapes"] > 1 else ""
    words = f"{name}{several}"
    if reasons := stages.loc[stages["lower_bound_ms"].isna(), "no_bound"].dropna().unique().tolist():
        words += f". Without a bound: {', '.join(reasons)}."
    sql = resources.held(
        "flop gaps of a run", history.state, run, lambda: history.query("flop_gaps", run_ids=[run])[1]
    )
    figure.head(words, sql=[sql], reproduce=f"dsocr flops report --run {run}", stages=stages)
    columns = {name: column for name, column in _STAGES.items() if stages[name].notna().any()}
    table.draw(stages, columns, marked=[stage == value("stage") for stage in stages["stage"]])
    drawn = st.expander("Roofline", key="flops roof", on_change="rerun")
    if drawn.open:  # a chart's library is two thirds of what the page costs the browser
        with drawn:
            _roofline(stages)


def _roofline(stages: pd.DataFrame) -> None:
    """Draw what each stage reaches under the roof of the run's device."""
    known = stages[
        (stages["intensity"] > 0) & (stages["milliseconds"] > 0) & stages["lower_bound_ms"].notna()
    ]
    if known.empty:
        return
    peak, bandwidth = float(known["peak_flops_per_s"].iloc[0]), float(known["bandwidth"].iloc[0])
    names = [row_name(stage).removeprefix("prefill › ") for stage in known["stage"]]
    points = known.assign(
        group=names, flops_per_s=known["peak_share"] * peak, symbol="circle", size=14, edge=1,
        words=[
            f"{name}: {amount(row.peak_share * peak, 'FLOP/s')}, {significant(row.intensity)} FLOP a byte"
            for name, row in zip(names, known.itertuples(), strict=True)
        ],
    )  # fmt: skip
    marks = {
        name: {"color": colour(stage), "symbol": "circle"}
        for name, stage in zip(names, known["stage"], strict=True)
    }
    words = f"Roofline of {known['device'].iloc[0]}: {amount(peak, 'FLOP/s')}, {amount(bandwidth, 'B/s')}"
    roof = [(str(known["device"].iloc[0]), peak, "solid")]
    chart = plots.roofline(points, roof, bandwidth, marks, "FLOP per byte that has to move", {"height": 360})
    figure.plot(chart, "flops roofline", words)
