"""All runs on the FLOPs page: one sentence, a map of stages and runs, and the stages of the chosen run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd
import streamlit as st

from dsocr_core.base.formatting import amount, percent, plural, significant
from dsocr_core.models.stages import COMPUTED, Stage
from dsocr_core.runs.flop_gaps import NOT_COUNTED, exact_sentence, lost_sentence
from dsocr_core.runs.history import History
from dsocr_core.runs.labels import has_value, short
from pages.widgets.flops.address import PARAMETERS, STATE, TIME, bound, put, value
from pages.widgets.shared import figure, plots, resources, table
from pages.widgets.shared.labels import colour, stage_name
from pages.widgets.shared.messages import plain
from pages.widgets.shared.table import Column

MOST_COLUMNS = 60
"""Runs of the map, the newest first; Runs opens any other one here."""
_LOST, _MORE, _LESS = "213 94 0", "192 54 44", "29 95 168"
"""Colours of lost time, and of more and fewer FLOPs than were counted."""
_STAGES = {
    "stage": Column("stage", lambda stage: row_name(stage), left=True),
    "milliseconds": Column("measured", "ms", "The median time; prefill's is what vision leaves of it."),
    "lower_bound_ms": Column(
        "bound", "ms",
        "The least time: the longer of the needed FLOPs at the device's peak, and of the bytes to move.",
    ),
    "lost_ms": Column("lost", "ms"),
    "times_bound": Column("x", "", "Measured over the lower bound."),
    "bound_by": Column("bound by", about="And the share of bandwidth or peak that is reached.", left=True),
    "analytic": Column("FLOPs", "FLOP", "By arithmetic, a multiply-add as two."),
    "gap_flops": Column("gap", "FLOP", "FLOPs by arithmetic less those counted."),
    "counted": Column("counted", "FLOP", "As torch's counter, or the importer's source, counted them."),
    "published": Column(
        "published", "FLOP",
        "As torch's counter counted them in the published modules, which compute logits at every position.",
    ),
}  # fmt: skip


Side = tuple[str, str]
"""A run and one of its backends."""
Cell = tuple[str | None, str]
"""Words and style."""


def row_name(stage: str) -> str:
    """A stage as a row: prefill's own is the language model, as vision stands with it and not in it."""
    return "prefill › language model" if stage == Stage.PREFILL else stage_name(stage)


@dataclass(frozen=True)
class _AllRuns:
    """Figures of all runs from the history, made once for all browser tabs."""

    rows: pd.DataFrame
    """Rows of the query gap_stages, the newest run first."""
    sql: str
    names: dict[Side, str]
    bounded: frozenset[Side]
    """Sides with a lower bound."""
    exact: str
    """Sentence on the exactness of all runs."""
    notes: dict[str, str]
    """Notes on runs without FLOPs, or without a bound."""
    stages: list[str]
    cells: dict[tuple[str, str, str], dict[str, Any]]
    """Rows by stage, run and backend."""


def draw(history: History) -> None:
    """The sentence, the map and the chosen run."""
    found = resources.cached("flop gaps", history.state, None, lambda: _asked(history))
    STATE.settle("run", {run for run, _ in found.names})
    # The run and backend of the link, else the newest with a lower bound, else the newest.
    fitting = [each for each in found.names if each[0] == value("run") and value("backend") in ("", each[1])]
    chosen = next(
        iter([*fitting, *(each for each in found.names if each in found.bounded), *found.names]), None
    )
    stages = found.rows
    if chosen:
        of = (stages["run_id"] == chosen[0]) & (stages["backend"] == chosen[1])
        stages = stages[of]
    lost = f"{lost_sentence(stages)} " if len(stages) else ""
    st.markdown(f"**{plain(lost + found.exact)}**")
    if found.notes:
        st.caption(f"{', '.join(found.notes)}.", help=plain(" ".join(found.notes.values())))
    if chosen:
        _map(found, chosen)
        _run(history, stages, found.names[chosen], chosen[0])


def _asked(history: History) -> _AllRuns:
    rows, sql = history.query("gap_stages")
    missing, _ = history.query("gap_missing")
    rows = rows.sort_values("created", ascending=False, kind="stable")
    known = rows[rows["lower_bound_ms"].notna()]
    bounded = frozenset(zip(known["run_id"], known["backend"], strict=True))
    firsts = rows.drop_duplicates(["run_id", "backend"])
    names = {
        (row.run_id, row.backend): " · ".join(filter(None, (
            row.backend or "sweep", row.device if isinstance(row.device, str) else "",
            (row.git_commit or "")[:7], f"{row.created:%Y-%m-%d %H:%M}", short(str(row.shape or ""), 40),
        ))) for row in firsts.itertuples()
    }  # fmt: skip
    notes = {}
    if len(missing):
        counts = missing["reason"].value_counts()
        way_out = " `dsocr flops report --run RUN` counts them." if NOT_COUNTED in counts else ""
        notes[f"{plural(len(missing), 'run')} without FLOPs"] = f"No FLOPs: {_counted(counts)}.{way_out}"
    if without := len(names) - len(bounded):
        why = firsts.loc[[side not in bounded for side in names], "no_bound"].value_counts()
        notes[f"{without:,} without a lower bound"] = f"No bound: {_counted(why)}."
    there_are = list(dict.fromkeys(rows["stage"]))
    order = [stage.value for stage in COMPUTED if stage.value in there_are]
    order += [stage for stage in there_are if stage not in order]
    cells = {(row["stage"], row["run_id"], row["backend"]): row for row in rows.to_dict("records")}
    return _AllRuns(rows, sql, names, bounded, exact_sentence(rows), notes, order, cells)


def _counted(reasons: pd.Series) -> str:
    return ", ".join(f"{why} ({count})" for why, count in reasons.items())


# --- the map ----------------------------------------------------------------------------------------------


def _map(found: _AllRuns, chosen: Side) -> None:
    st.segmented_control(
        "Map", PARAMETERS["reading"].choices, required=True, label_visibility="collapsed", **bound("reading")
    )
    of_time, order = value("reading") == TIME, found.stages
    drawn = [side for side in found.names if not of_time or side in found.bounded]
    columns = list(dict.fromkeys([*drawn[:MOST_COLUMNS], chosen]))
    words = (
        "Time above the lower bound, a page."
        if of_time
        else "FLOPs by arithmetic against FLOPs counted: red above, blue below, no colour where equal."
    )
    words += f" The newest {MOST_COLUMNS} of {len(drawn):,} runs." if len(drawn) > MOST_COLUMNS else ""
    figure.head(f"{words} A click opens a run.", sql=[found.sql], gaps=found.rows)
    config: dict[str, Any] = {"stage": st.column_config.TextColumn("stage", pinned=True, width=150)}
    names = [*map(row_name, order), *["page, over its bound"] * of_time]
    text, style = {"stage": names}, {"stage": [""] * len(names)}
    for number, side in enumerate(columns):
        rows = [found.cells.get((stage, *side)) for stage in order]
        cells = _times(rows) if of_time else [_flops(row) for row in rows]
        text[f"{number}"], style[f"{number}"] = (list(part) for part in zip(*cells, strict=True))
        first = next(row for row in rows if row)
        commit = first["git_commit"]
        when = commit[:7] if isinstance(commit, str) else f"{first['created']:%d %b}"
        head = f"{'▸ ' * (side == chosen)}{short(first['backend'], 8)} {when}"
        config[f"{number}"] = st.column_config.TextColumn(head, help=plain(found.names[side]), width=100)
    shades = pd.DataFrame(style)
    st.dataframe(
        pd.DataFrame(text).style.apply(lambda _: shades, axis=None), hide_index=True, column_config=config,
        key="flops map", height=table.height_of(len(names)), selection_mode="single-cell",
        on_select=lambda: _take(order, columns), placeholder="–",
    )  # fmt: skip


def _times(rows: list[dict[str, Any] | None]) -> list[Cell]:
    """Time that each stage of a run loses, and the page's time over its bound."""
    whole = sum(row["milliseconds"] for row in rows if row and has_value(row["milliseconds"]))
    timed = [row for row in rows if row and has_value(row["lower_bound_ms"])]
    bound_ms = sum(row["lower_bound_ms"] for row in timed)
    page = sum(row["milliseconds"] for row in timed if has_value(row["milliseconds"]))
    cells: list[Cell] = []
    for row in rows:
        lost = row["milliseconds"] - row["lower_bound_ms"] if row else float("nan")
        if lost != lost:
            cells.append((None, ""))
            continue
        share = min(abs(lost) / whole, 1.0) if whole else 0.0
        cells.append((amount(lost / 1e3, "s"), _shade(_LOST if lost >= 0 else _LESS, share)))
    return [*cells, (f"{significant(page / bound_ms)}x" if bound_ms else None, "")]


def _flops(row: dict[str, Any] | None) -> Cell:
    """The gap of a stage; 5 % and more is the deepest colour."""
    if row is None or not has_value(row["gap_flops"]):
        return None, ""
    if row["gap_flops"] == 0:
        return "0", ""
    gap, known = row["gap_percent"], bool(has_value(row["gap_percent"]))
    shade = _shade(_MORE if not known or gap > 0 else _LESS, min(abs(gap) / 5, 1.0) if known else 1.0)
    return f"{'+' if known and gap > 0 else ''}{percent(gap)}", shade


def _shade(colour: str, part: float) -> str:
    return f"background-color: rgb({colour} / {0.08 + 0.52 * part:.2f})"


def _take(order: list[str], columns: list[Side]) -> None:
    """Open the run and stage of the cell that was clicked."""
    for row, column in st.session_state["flops map"]["selection"]["cells"]:
        stage = order[row] if row < len(order) else ""
        put("stage", stage if stage in PARAMETERS["stage"].choices else "")
        if column.isdecimal():
            run, backend = columns[int(column)]
            STATE.values.update(run=run, backend=backend)


# --- the chosen run ---------------------------------------------------------------------------------------


def _run(history: History, stages: pd.DataFrame, name: str, run: str) -> None:
    shapes = int(stages["shapes"].iloc[0])
    words = f"{name} ({shapes} shapes of page)" if shapes > 1 else name
    if reasons := stages.loc[stages["lower_bound_ms"].isna(), "no_bound"].dropna().unique().tolist():
        words += f". Without a bound: {', '.join(reasons)}."
    sql = resources.cached(
        "flop gaps of a run", history.state, run, lambda: history.query("flop_gaps", run_ids=[run])[1]
    )
    figure.head(words, sql=[sql], reproduce=f"dsocr flops report --run {run}", stages=stages)
    columns = {name: column for name, column in _STAGES.items() if stages[name].notna().any()}
    shares = stages["bandwidth_share"].where(stages["bound_by"] == "memory", stages["peak_share"])
    reached = [
        f"{by}, {percent(100 * of)}" if has_value(of) else by
        for by, of in zip(stages["bound_by"], shares, strict=True)
    ]
    table.draw(
        stages.assign(bound_by=reached),
        columns,
        marked=[stage == value("stage") for stage in stages["stage"]],
    )
    # A chart's library is two thirds of what the page costs the browser.
    figure.opened("Roofline", "flops roof", lambda: _roofline(stages))


def _roofline(stages: pd.DataFrame) -> None:
    """Draw what each stage reaches under the roof of the run's device."""
    known = stages[
        (stages["intensity"] > 0) & (stages["milliseconds"] > 0) & stages["lower_bound_ms"].notna()
    ]
    if known.empty:
        return
    peak, bandwidth = float(known["peak_flops_per_s"].iloc[0]), float(known["bandwidth"].iloc[0])
    names = [row_name(stage).removeprefix("prefill › ") for stage in known["stage"]]
    points = known.assign(group=names, flops_per_s=known["peak_share"] * peak, size=14, words=names)
    marks = {
        name: {"color": colour(stage), "symbol": "circle"}
        for name, stage in zip(names, known["stage"], strict=True)
    }
    device = str(known["device"].iloc[0])
    words = f"Roofline of {device}: {amount(peak, 'FLOP/s')}, {amount(bandwidth, 'B/s')}"
    chart = plots.roofline(
        points, [(device, peak, "solid")], bandwidth, marks, "FLOP per byte that has to move"
    )
    figure.plot(chart, "flops roofline", words)
