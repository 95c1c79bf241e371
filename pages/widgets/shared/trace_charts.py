"""A trace as a figure, pure: the error of every block at every step, and its curves along both.

Amounts have one scale of colours, from pale to dark red; blocks that are equal are grey.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dsocr_core.base.formatting import share, significant
from dsocr_core.reading.trace_curve import BlockError, block_errors, block_of
from dsocr_core.reading.trace_records import TensorDifference, TraceSummary
from pages.widgets.shared import plots

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SCALE = ((0.0, "#FEE3AE"), (0.35, "#F19A3E"), (0.7, "#C8372D"), (1.0, "#6B0F1A"))
EQUAL = "rgba(128, 140, 153, 0.28)"
FIRST = "#0072B2"
LINES = ("#0072B2", "#D55E00")
ROW_PX = 15
_BESIDE = {"xaxis": "x2", "yaxis": "y2"}
_HOVER = {"hovertemplate": "%{customdata}<extra></extra>"}
LEAST = 1e-8
"""Errors below are drawn as this one: the scale is logarithmic."""

Curve = dict[str, dict[int, BlockError]]


def trace_figure(summary: TraceSummary) -> Figure:
    """Heat map block x step, the first difference marked; beside it the error by block, below by step."""
    curve = block_errors(summary)
    blocks, calls = list(curve), sorted({call for cells in curve.values() for call in cells})
    equal = _BESIDE | {
        "type": "scatter", "x": [None], "y": [None], "mode": "markers", "name": "equal",
        "hoverinfo": "skip", "marker": {"color": EQUAL, "symbol": "square", "size": 11},
    }  # fmt: skip
    traces = [
        *_cells(curve, blocks, calls), *_by_block(curve, blocks, calls), equal, _by_step(curve, blocks, calls)
    ]  # fmt: skip
    first = {} if summary.first is None else _first(blocks, calls, summary.first)
    return plots.figure(traces, _layout(blocks, calls) | first)


def _cells(curve: Curve, blocks: list[str], calls: list[int]) -> list[dict[str, Any]]:
    """Two heat maps in one place: cells that are equal, cells that are not."""
    rows = [[curve[block].get(call) for call in calls] for block in blocks]
    equal = [[None if cell is None or cell.differing else 0.0 for cell in row] for row in rows]
    amounts = [[_amount(cell) for cell in row] for row in rows]
    map_ = {
        "type": "heatmap", "x": list(range(len(calls))), "y": list(range(len(blocks))), "xgap": 1, "ygap": 1,
        "customdata": [[_hover(cell) for cell in row] for row in rows], "hoverongaps": False, **_HOVER,
    }  # fmt: skip
    found = [value for row in amounts for value in row if value is not None]
    low, high = math.floor(min(found, default=-3)), math.ceil(max(found, default=0))
    high = max(high, low + 1)
    ticks = list(range(low, high + 1, max(1, (high - low) // 4)))
    return [
        map_ | {"z": equal, "colorscale": [(0, EQUAL), (1, EQUAL)], "showscale": False},
        map_ | {
            "z": amounts, "zmin": low, "zmax": high, "colorscale": SCALE, "showscale": bool(found),
            "colorbar": {"title": {"text": "error / std", "side": "top"}, "orientation": "h", "thickness": 10,
                         "len": 0.3, "x": 1.0, "xanchor": "right", "y": 0.0, "yanchor": "bottom",
                         "tickvals": ticks, "ticktext": [f"10<sup>{tick}</sup>" for tick in ticks]},
        },
    ]  # fmt: skip


def _amount(cell: BlockError | None) -> float | None:
    """The logarithm of what a block gives; of a block that differs inside and gives the same, the least."""
    if cell is None or not cell.differing:
        return None
    return math.log10(max(cell.error or 0.0, LEAST))


def _hover(cell: BlockError | None) -> str:
    if cell is None:
        return ""
    at = "prefill" if cell.call == 0 else f"decode step {cell.call}"
    head = f"<b>{cell.block}</b>, {at}"
    if not cell.differing:
        return f"{head}<br>all {cell.outputs} outputs equal"
    ulp = "" if cell.max_ulp is None else f", at most {cell.max_ulp:,} ULP"
    return (
        f"{head}<br>takes error {_error(cell.carried)}, gives {_error(cell.error)} of A's std"
        f"<br>{share(cell.share)} of what it gives differs{ulp}"
        f"<br>{cell.differing} of {cell.outputs} outputs differ"
    )


def _error(value: float | None) -> str:
    if value is None:
        return "not known"
    return "0" if value == 0 else significant(value) if value >= 1e-3 else f"{value:.2e}"


def _by_block(curve: Curve, blocks: list[str], calls: list[int]) -> list[dict[str, Any]]:
    shown = list(dict.fromkeys([calls[0], calls[-1]])) if calls else []
    return [
        _line([curve[block].get(call) for block in blocks], colour) | _BESIDE | {
            "y": list(range(len(blocks))), "x": [_drawn(curve[block].get(call)) for block in blocks],
            "name": "prefill" if call == 0 else f"step {call}", "marker": {"size": 5, "symbol": symbol},
        }
        for call, colour, symbol in zip(shown, LINES, ("circle", "diamond"), strict=False)
    ]  # fmt: skip


def _by_step(curve: Curve, blocks: list[str], calls: list[int]) -> dict[str, Any]:
    """The error of the last block that every step has: the logits, where they were compared."""
    whole = [block for block in blocks if len(curve[block]) == len(calls)] or blocks
    last = whole[-1] if whole else ""
    cells = [curve[last].get(call) for call in calls] if last else []
    below = {"xaxis": "x3", "yaxis": "y3", "showlegend": False, "marker": {"size": 5}, "name": last}
    return _line(cells, plots.NEUTRAL) | below | {
        "x": list(range(len(calls))), "y": [_drawn(cell) for cell in cells]
    }  # fmt: skip


def _line(cells: list[BlockError | None], colour: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "lines+markers", "line": {"color": colour, "width": 1.5},
        "customdata": [_hover(cell) for cell in cells], **_HOVER,
    }  # fmt: skip


def _drawn(cell: BlockError | None) -> float | None:
    """An error on a logarithmic axis: nothing where it is 0."""
    return cell.error if cell is not None and cell.error else None


def _layout(blocks: list[str], calls: list[int]) -> dict[str, Any]:
    every = max(1, len(calls) // 16)
    steps = [number for number, call in enumerate(calls) if call == 0 or number % every == 0]
    logarithmic = {"type": "log", "exponentformat": "power", "dtick": 1}
    left, right, upper, lower = [0, 0.666], [0.686, 1], [0.23, 1], [0, 0.17]
    across = {"range": [-0.5, len(calls) - 0.5], "zeroline": False, "domain": left}
    down = {"range": [len(blocks) - 0.5, -0.5], "zeroline": False, "domain": upper}
    named = ["prefill" if calls[number] == 0 else str(calls[number]) for number in steps]
    return {
        "height": 170 + ROW_PX * max(8, len(blocks)) + 90, "margin": {"l": 8, "r": 8, "t": 34, "b": 44},
        "legend": {"orientation": "h", "x": 0.69, "y": 1.0, "yanchor": "bottom", "itemclick": False,
                   "itemdoubleclick": False},
        "hovermode": "closest",
        "xaxis": across | {"anchor": "y", "matches": "x3", "showgrid": False, "showticklabels": False,
                           "ticks": ""},
        "yaxis": down | {"anchor": "x", "tickvals": list(range(len(blocks))), "ticktext": blocks,
                         "showgrid": False},
        "xaxis2": {"anchor": "y2", "domain": right, "title": {"text": "error by block / std"}} | logarithmic,
        "yaxis2": down | {"anchor": "x2", "matches": "y", "showticklabels": False},
        "xaxis3": across | {"anchor": "y3", "tickvals": steps, "ticktext": named,
                            "title": {"text": "decode step"}},
        "yaxis3": {"anchor": "x3", "domain": lower, "title": {"text": "logits / std"}} | logarithmic,
    }  # fmt: skip


def _first(blocks: list[str], calls: list[int], first: TensorDifference) -> dict[str, Any]:
    """The mark on the first difference."""
    block = block_of(first.name)
    x, y = calls.index(first.call), blocks.index(block)
    part = first.name.removeprefix(f"{block}.")
    return {
        "shapes": [
            {"type": "rect", "x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5,
             "xref": "x", "yref": "y", "line": {"color": FIRST, "width": 3}, "fillcolor": "rgba(0,0,0,0)",
             "name": "first difference"}
        ],
        "annotations": [
            {"x": x, "y": y, "text": f"first: {block if part == first.name else f'{block} {part}'}",
             "showarrow": True, "arrowcolor": FIRST, "arrowwidth": 2, "arrowhead": 0, "ax": 70,
             "ay": -26 if y > 1 else 30, "bgcolor": FIRST, "font": {"color": "#FFFFFF", "size": 12},
             "borderpad": 3}
        ],
    }  # fmt: skip
