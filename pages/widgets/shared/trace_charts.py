"""A trace as a figure, pure: the error of every block at every step, and its curves along both.

Amounts have one scale of colours, from pale to dark red; blocks that are equal are grey.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dsocr_core.outputs.trace_curve import BlockError, block_errors, block_of, percent
from dsocr_core.outputs.trace_records import TraceSummary
from dsocr_core.words import significant

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

SCALE = ((0.0, "#FEE3AE"), (0.35, "#F19A3E"), (0.7, "#C8372D"), (1.0, "#6B0F1A"))
EQUAL = "rgba(128, 140, 153, 0.28)"
FIRST = "#0072B2"
LINES = ("#0072B2", "#D55E00")
ROW_PX = 15
_GAPS = {"xgap": 1, "ygap": 1}
LEAST = 1e-8
"""Errors below are drawn as this one: the scale is logarithmic."""

Curve = dict[str, dict[int, BlockError]]


def trace_figure(summary: TraceSummary) -> Figure:
    """Heat map block x step, the first difference marked; beside it the error by block, below by step."""
    from plotly.subplots import make_subplots

    curve = block_errors(summary)
    blocks, calls = list(curve), sorted({call for cells in curve.values() for call in cells})
    figure = make_subplots(
        rows=2, cols=2, shared_xaxes="columns", shared_yaxes="rows", horizontal_spacing=0.02,
        vertical_spacing=0.06, column_widths=[0.68, 0.32], row_heights=[0.82, 0.18],
        specs=[[{}, {}], [{}, None]],
    )  # fmt: skip
    for trace in _cells(curve, blocks, calls):
        figure.add_trace(trace, row=1, col=1)
    for trace in _by_block(curve, blocks, calls):
        figure.add_trace(trace, row=1, col=2)
    figure.add_trace(_equal_in_legend(), row=1, col=2)
    figure.add_trace(_by_step(curve, blocks, calls), row=2, col=1)
    _lay_out(figure, blocks, calls)
    if summary.first is not None:
        _mark_first(figure, blocks, calls, summary)
    return figure


def _cells(curve: Curve, blocks: list[str], calls: list[int]) -> list[Any]:
    """Two heat maps in one place: cells that are equal, cells that are not."""
    from plotly.graph_objects import Heatmap

    equal: list[list[float | None]] = []
    amounts: list[list[float | None]] = []
    words: list[list[str]] = []
    for block in blocks:
        row = [curve[block].get(call) for call in calls]
        equal.append([None if cell is None or cell.differing else 0.0 for cell in row])
        amounts.append([_amount(cell) for cell in row])
        words.append([_hover(cell) for cell in row])
    place: dict[str, Any] = {"x": list(range(len(calls))), "y": list(range(len(blocks)))} | _GAPS
    hover = {"customdata": words, "hovertemplate": "%{customdata}<extra></extra>", "hoverongaps": False}
    found = [value for row in amounts for value in row if value is not None]
    low, high = math.floor(min(found, default=-3)), math.ceil(max(found, default=0))
    high = max(high, low + 1)
    ticks = list(range(low, high + 1, max(1, (high - low) // 4)))
    return [
        Heatmap(z=equal, colorscale=[(0, EQUAL), (1, EQUAL)], showscale=False, **place, **hover),
        Heatmap(
            z=amounts, zmin=low, zmax=high, colorscale=[list(stop) for stop in SCALE],
            showscale=bool(found), **place, **hover,
            colorbar={"title": {"text": "error / std", "side": "top"}, "orientation": "h", "thickness": 10,
                      "len": 0.3, "x": 1.0, "xanchor": "right", "y": 0.0, "yanchor": "bottom",
                      "tickvals": ticks, "ticktext": [f"10<sup>{tick}</sup>" for tick in ticks]},
        ),
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
        f"<br>{percent(cell.share)} of what it gives differs{ulp}"
        f"<br>{cell.differing} of {cell.outputs} outputs differ"
    )


def _error(value: float | None) -> str:
    if value is None:
        return "not known"
    return "0" if value == 0 else significant(value) if value >= 1e-3 else f"{value:.2e}"


def _by_block(curve: Curve, blocks: list[str], calls: list[int]) -> list[Any]:
    from plotly.graph_objects import Scatter

    shown = list(dict.fromkeys([calls[0], calls[-1]])) if calls else []
    lines = []
    for call, colour, symbol in zip(shown, LINES, ("circle", "diamond"), strict=False):
        cells = [curve[block].get(call) for block in blocks]
        name = "prefill" if call == 0 else f"step {call}"
        lines.append(
            Scatter(
                x=[_drawn(cell) for cell in cells], y=list(range(len(blocks))), name=name,
                mode="lines+markers",
                line={"color": colour, "width": 1.5}, marker={"size": 5, "symbol": symbol},
                customdata=[_hover(cell) for cell in cells],
                hovertemplate="%{customdata}<extra></extra>",
            )
        )  # fmt: skip
    return lines


def _by_step(curve: Curve, blocks: list[str], calls: list[int]) -> Any:
    """The error of the last block that every step has: the logits, where they were compared."""
    from plotly.graph_objects import Scatter

    whole = [block for block in blocks if len(curve[block]) == len(calls)] or blocks
    last = whole[-1] if whole else ""
    cells = [curve[last].get(call) for call in calls] if last else []
    return Scatter(
        x=list(range(len(calls))), y=[_drawn(cell) for cell in cells], mode="lines+markers", showlegend=False,
        line={"color": "#8A94A0", "width": 1.5}, marker={"size": 5}, name=last,
        customdata=[_hover(cell) for cell in cells], hovertemplate="%{customdata}<extra></extra>",
    )  # fmt: skip


def _equal_in_legend() -> Any:
    from plotly.graph_objects import Scatter

    marker = {"color": EQUAL, "symbol": "square", "size": 11}
    return Scatter(x=[None], y=[None], mode="markers", marker=marker, name="equal", hoverinfo="skip")


def _drawn(cell: BlockError | None) -> float | None:
    """An error on a logarithmic axis: nothing where it is 0."""
    return cell.error if cell is not None and cell.error else None


def _lay_out(figure: Figure, blocks: list[str], calls: list[int]) -> None:
    every = max(1, len(calls) // 16)
    steps = [number for number, call in enumerate(calls) if call == 0 or number % every == 0]
    logarithmic: dict[str, Any] = {"type": "log", "exponentformat": "power", "dtick": 1}
    figure.update_layout(
        height=170 + ROW_PX * max(8, len(blocks)) + 90, margin={"l": 8, "r": 8, "t": 34, "b": 44},
        legend={"orientation": "h", "x": 0.69, "y": 1.0, "yanchor": "bottom", "itemclick": False,
                "itemdoubleclick": False},
        hovermode="closest",
    )  # fmt: skip
    figure.update_yaxes(
        tickvals=list(range(len(blocks))), ticktext=blocks, range=[len(blocks) - 0.5, -0.5], row=1, col=1,
        showgrid=False, zeroline=False,
    )  # fmt: skip
    figure.update_yaxes(range=[len(blocks) - 0.5, -0.5], zeroline=False, row=1, col=2)
    figure.update_xaxes(
        range=[-0.5, len(calls) - 0.5], showgrid=False, zeroline=False, showticklabels=False, ticks="",
        row=1, col=1,
    )  # fmt: skip
    figure.update_xaxes(
        range=[-0.5, len(calls) - 0.5], tickvals=steps, row=2, col=1, zeroline=False,
        ticktext=["prefill" if calls[number] == 0 else str(calls[number]) for number in steps],
        title={"text": "decode step"},
    )  # fmt: skip
    figure.update_xaxes(title={"text": "error by block / std"}, row=1, col=2, side="bottom", **logarithmic)
    figure.update_yaxes(title={"text": "logits / std"}, row=2, col=1, **logarithmic)


def _mark_first(figure: Figure, blocks: list[str], calls: list[int], summary: TraceSummary) -> None:
    first = summary.first
    assert first is not None
    block = block_of(first.name)
    x, y = calls.index(first.call), blocks.index(block)
    figure.add_shape(
        type="rect", x0=x - 0.5, x1=x + 0.5, y0=y - 0.5, y1=y + 0.5, row=1, col=1,
        line={"color": FIRST, "width": 3}, fillcolor="rgba(0,0,0,0)", name="first difference",
    )  # fmt: skip
    part = first.name.removeprefix(f"{block}.")
    figure.add_annotation(
        x=x, y=y, row=1, col=1, text=f"first: {block if part == first.name else f'{block} {part}'}",
        showarrow=True, arrowcolor=FIRST, arrowwidth=2, arrowhead=0, ax=70, ay=-26 if y > 1 else 30,
        bgcolor=FIRST, font={"color": "#FFFFFF", "size": 12}, borderpad=3,
    )  # fmt: skip
