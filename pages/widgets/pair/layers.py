"""The first layer whose output differs between A and B, and the error after it, as a heat map."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import duckdb
import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import moment, plural, shortened, significant
from dsocr_core.reading.fingerprints import files_of
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import SIDES
from dsocr_core.reading.trace_records import BlockError, TraceSummary, block_errors, block_of
from dsocr_core.runs.traces import summary_of, traces_of
from pages.widgets.shared import plots, resources
from pages.widgets.shared.messages import plain, show_error

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

_SCALE = ((0.0, "#FEE3AE"), (0.35, "#F19A3E"), (0.7, "#C8372D"), (1.0, "#6B0F1A"))
_EQUAL, _FIRST = "rgba(128, 140, 153, 0.28)", "#0072B2"
_LEAST = 1e-8
"""Smaller errors have this one's colour: the scale is logarithmic."""


def draw(comparison: Comparison, key: str) -> None:
    """The newest recorded trace of a page."""
    try:
        history = resources.history()
        history.refresh()
        request = comparison.request
        file = files_of(request)[0] if request.image.is_file() else None
        found = traces_of(history, request.name, file.sha256 if file else None)
        if not found:
            st.caption("No trace of this page is recorded. `dsocr trace PAGE --save` records one.")
            return
        record, preset = history.record(found[0]["run_id"]), found[0]["preset"]
        # A page's trace may be of other settings than these readings.
        settings = ", ".join(filter(None, (preset and f"preset {preset}", record.dtype, record.device)))
        show(summary_of(history, found[0]), f"recorded {moment(record.created)} with {settings}", key)
    except (DsocrError, duckdb.Error) as error:
        show_error(error)


# --- one trace ------------------------------------------------------------------------------------


def show(summary: TraceSummary, when: str, key: str) -> None:
    """The sentence and the heat map."""
    st.markdown(f"**{plain(summary.sentence)}**")
    counts = f"{summary.differing:,} of {plural(summary.compared, 'output')} differ"
    steps = plural(summary.steps, "decode step")
    st.caption(plain(f"A {summary.a}, B {summary.b}, {steps}, {counts}, {when}."))
    for cause in summary.causes[1:]:
        st.caption(plain(f"Also: {cause.words}"))
    if not summary.tensors:
        return
    st.plotly_chart(
        heat_map(summary), key=f"{key} chart", width="stretch", config={"displayModeBar": False},
        alt=f"Error of every block at every step. {summary.sentence}",
    )  # fmt: skip
    if summary.routers:
        changed, ties = sum(one.changed for one in summary.routers), sum(one.ties for one in summary.routers)
        st.caption(f"{plural(changed, 'token')} were routed to other experts, {ties:,} of them near ties.")
    for side, names in zip(SIDES, (summary.only_a, summary.only_b), strict=True):
        if names:
            st.caption(plain(f"Only in {side.upper()}, not compared: {shortened(', '.join(names), 200)}."))


# --- heat map -------------------------------------------------------------------------------------


def heat_map(summary: TraceSummary) -> Figure:
    """The error of every block at every step: grey where equal, then from pale to dark red."""
    curve = block_errors(summary)
    blocks, calls = list(curve), sorted({call for cells in curve.values() for call in cells})
    cells = [[curve[block].get(call) for call in calls] for block in blocks]
    # Logarithms of the errors; of a block that differs inside alone, the least.
    amounts = [
        [math.log10(max(cell.error or 0.0, _LEAST)) if cell and cell.differing else None for cell in row]
        for row in cells
    ]
    known = [amount for row in amounts for amount in row if amount is not None]
    low, high = math.floor(min(known, default=-3)), math.ceil(max(known, default=0))
    ticks = list(range(low, max(high, low + 1) + 1, max(1, (high - low) // 4)))
    cells_of = {
        "type": "heatmap", "x": list(range(len(calls))), "y": list(range(len(blocks))), "xgap": 1, "ygap": 1,
        "customdata": [[_hover(cell) for cell in row] for row in cells], "hoverongaps": False,
        "hovertemplate": "%{customdata}<extra></extra>",
    }  # fmt: skip
    equal = [[0.0 if cell is not None and not cell.differing else None for cell in row] for row in cells]
    traces = [
        cells_of | {"z": equal, "colorscale": [(0, _EQUAL), (1, _EQUAL)], "showscale": False},
        cells_of | {
            "z": amounts, "zmin": low, "zmax": max(high, low + 1), "colorscale": _SCALE,
            "showscale": bool(known),
            "colorbar": {"title": {"text": "error / std"}, "thickness": 12, "tickvals": ticks,
                         "ticktext": [f"10<sup>{tick}</sup>" for tick in ticks]},
        },
    ]  # fmt: skip
    shapes = []
    if summary.first is not None:
        x, y = calls.index(summary.first.call), blocks.index(block_of(summary.first.name))
        shapes = [
            {"type": "rect", "x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5,
             "line": {"color": _FIRST, "width": 3}, "name": "first difference"}
        ]  # fmt: skip
    every = max(1, len(calls) // 12)
    return plots.figure(
        traces, 15 * max(12, len(blocks)) + 60, margin={"l": 8, "r": 8, "t": 12, "b": 44}, shapes=shapes,
        xaxis={"title": {"text": "step"}, "tickvals": list(range(len(calls)))[::every],
               "ticktext": [str(call or "prefill") for call in calls][::every]},
        yaxis={"autorange": "reversed", "tickvals": list(range(len(blocks))), "ticktext": blocks},
    )  # fmt: skip


def _hover(cell: BlockError | None) -> str:
    if cell is None:
        return ""
    at = "prefill" if cell.call == 0 else f"decode step {cell.call}"
    if not cell.differing:
        return f"<b>{cell.block}</b>, {at}<br>all {cell.outputs} outputs equal"
    error = "not known" if cell.error is None else significant(cell.error)
    ulp = "" if cell.max_ulp is None else f", at most {cell.max_ulp:,} ULP"
    return (
        f"<b>{cell.block}</b>, {at}<br>error {error} of A's std{ulp}"
        f"<br>{cell.differing} of {cell.outputs} outputs differ"
    )
