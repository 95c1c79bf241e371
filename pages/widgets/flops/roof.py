"""The roofline of one run as a small SVG: what each stage reaches under the roof of its device."""

from __future__ import annotations

from html import escape
from math import log10

import pandas as pd

from dsocr_core.base.formatting import amount, scale_of
from pages.widgets.shared.stages import colour, stage_name

WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 600, 260, 92, 36, 22
_LINE, _LETTER = 15, 7.5
"""Height of a line of words, and width of a letter."""


def svg(stages: pd.DataFrame, ink: str) -> str:
    """FLOP a byte against FLOP/s, both logarithmic; a line goes up from each stage to its bound.

    `ink` is the colour of lines and words.
    """
    known = stages[
        (stages["intensity"] > 0) & (stages["milliseconds"] > 0) & stages["lower_bound_ms"].notna()
    ]
    if known.empty:
        return ""
    peak, bandwidth = known["peak_flops_per_s"].iloc[0], known["bandwidth"].iloc[0]
    reached = known["peak_share"] * peak
    bounds = [min(peak, each * bandwidth) for each in known["intensity"]]
    x0, x1 = min(known["intensity"].min() / 3, 0.3), max(known["intensity"].max() * 3, 10 * peak / bandwidth)
    y0, y1 = reached.min() / 3, peak * 2

    def x(value: float) -> float:
        return _LEFT + (WIDTH - _LEFT - 12) * log10(value / x0) / log10(x1 / x0)

    def y(value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * log10(y1 / value) / log10(y1 / y0)

    low = max(x0, y0 / bandwidth)
    corners = (low, low * bandwidth), (peak / bandwidth, peak), (x1, peak)
    roof = " ".join(f"{x(across):.0f},{y(up):.0f}" for across, up in corners)
    parts = [f'<polyline points="{roof}" fill="none" stroke="currentColor" stroke-width="2" opacity=".55"/>']
    for exponent in range(int(log10(y0)) + 1, int(log10(y1)) + 1):
        parts.append(_line(_LEFT, y(10.0**exponent), WIDTH - 12, y(10.0**exponent)))
        parts.append(_text(_LEFT - 8, y(10.0**exponent) + 4, _power(10.0**exponent), "end"))
    for exponent in range(int(log10(x0)), int(log10(x1)) + 1):
        if x0 <= 10.0**exponent <= x1:
            parts.append(_text(x(10.0**exponent), _HEIGHT - 16, f"{10.0**exponent:g}", "middle"))
    parts.append(_text((_LEFT + WIDTH) / 2, _HEIGHT - 2, "FLOP per byte that has to move", "middle"))
    # No word lies on a dot.
    placed = [(x(at) - 6, x(at) + 6, y(up) + 4) for at, up in zip(known["intensity"], reached, strict=True)]
    for row, speed, bound in sorted(
        zip(known.itertuples(), reached, bounds, strict=True), key=lambda each: -each[1]
    ):
        name, shade, cx = (
            stage_name(row.stage).removeprefix("prefill › "),
            colour(row.stage),
            x(row.intensity),
        )
        parts.append(
            f'<line x1="{cx:.0f}" y1="{y(speed):.0f}" x2="{cx:.0f}" '
            f'y2="{y(bound):.0f}" stroke="{shade}" stroke-width="2" stroke-dasharray="3 3"/>'
            f'<circle cx="{cx:.0f}" cy="{y(speed):.0f}" r="6" fill="{shade}"/>'
        )
        left, right, line = cx + 10, cx + 10 + _LETTER * len(name), y(speed) + 4
        while any(a < right and left < b and abs(line - at) < _LINE for a, b, at in placed):
            line += _LINE
        placed.append((left, right, line))
        parts.append(_text(left, line, escape(name), "start"))
    label = escape(
        f"Roofline of {known['device'].iloc[0]}: {amount(peak, 'FLOP/s')}, {amount(bandwidth, 'B/s')}"
    )
    parts.append(_text(_LEFT, 12, label, "start"))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {_HEIGHT}" width="{WIDTH}" '
        f'height="{_HEIGHT}" color="{ink}" font-family="sans-serif">{"".join(parts)}</svg>'
    )


def _power(flops_per_s: float) -> str:
    size, unit = scale_of(flops_per_s, "FLOP/s")
    return f"{flops_per_s / size:g} {unit}"


def _line(x1: float, y1: float, x2: float, y2: float) -> str:
    return (
        f'<line x1="{x1:.0f}" y1="{y1:.0f}" x2="{x2:.0f}" y2="{y2:.0f}" stroke="currentColor" opacity=".12"/>'
    )


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-size="13" fill="currentColor" '
        f">{words}</text>"
    )
