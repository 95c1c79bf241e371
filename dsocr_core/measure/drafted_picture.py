"""Tokens a second over the share of a draft that is right, measured and predicted, as an SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dsocr_core.engine.drafts.pace import tokens_a_pass
from dsocr_core.measure.floor_picture import STYLE, text

_LEFT, _WIDE, _HIGH, _TOP, _BOTTOM, _BETWEEN = 60, 250, 200, 64, 40, 70
_TITLE = "Tokens a second over the share of the draft that is right"
_POINTS = 50


def predicted(costs_ms: Mapping[int, float], right: float, streams: int = 1) -> float:
    """Tokens a second of `streams` pages with the best number of rows, by what passes cost alone."""
    return max(streams * tokens_a_pass(rows, right) / ms * 1e3 for rows, ms in costs_ms.items())


def draw(document: Mapping[str, Any]) -> str:
    """Draw the document of `measure drafted`: one page, and the batch where there is one."""
    parts = [("one page", document["single"], document["costs_ms"], 1)]
    if document.get("batch"):
        streams = int(document["streams"])
        parts.append((f"{streams} pages together", document["batch"], document["batch_costs_ms"], streams))
    width = _LEFT + len(parts) * (_WIDE + _BETWEEN)
    height = _TOP + _HIGH + _BOTTOM
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="13" '
        f'font-family="system-ui, sans-serif" role="img" aria-label="{_TITLE}">',
        f"<style>{STYLE} path.soft{{fill:none;stroke:#9aa7b8;stroke-width:2}}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        text(16, 24, f"{_TITLE}: points measured, line predicted", "text"),
    ]
    for number, (title, gains, costs, streams) in enumerate(parts):
        left = _LEFT + number * (_WIDE + _BETWEEN)
        drawn += _panel(left, title, gains, {int(rows): ms for rows, ms in costs.items()}, streams)
    return "\n".join([*drawn, "</svg>", ""])


def _panel(
    left: float, title: str, gains: Sequence[Mapping[str, Any]], costs: Mapping[int, float], streams: int
) -> list[str]:
    points = [(gain["right"], gain["tokens_per_s"]) for gain in gains if gain["right"] is not None]
    line = [(n / _POINTS, predicted(costs, n / _POINTS, streams)) for n in range(_POINTS + 1)]
    plain = next(gain["tokens_per_s"] for gain in gains if gain["right"] is None)
    top = max(rate for _, rate in (*points, *line))
    step = next(unit for unit in _units() if top / unit <= 8)

    def at(right: float, rate: float) -> tuple[float, float]:
        return left + right * _WIDE, _TOP + _HIGH - rate / top * _HIGH

    drawn = [text(left, _TOP - 14, title, "text")]
    for rate in range(0, int(top) + 1, step):
        _, y = at(0, rate)
        drawn.append(f'<line class="line" x1="{left}" x2="{left + _WIDE}" y1="{y:.1f}" y2="{y:.1f}"/>')
        drawn.append(text(left - 6, y + 4, f"{rate:,}", "soft", "end"))
    for percent in range(0, 101, 25):
        drawn.append(text(left + _WIDE * percent / 100, _TOP + _HIGH + 18, f"{percent}%", "soft", "middle"))
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in (at(*point) for point in line))
    (x, y), (end, _) = at(0, plain), at(1, plain)
    drawn.append(f'<path class="soft" stroke="#9aa7b8" d="M{path}"/>')
    drawn.append(f'<line class="line" stroke-dasharray="4" x1="{x}" x2="{end}" y1="{y:.1f}" y2="{y:.1f}"/>')
    drawn.append(text(left + 4, y - 5, f"no draft: {plain:,.0f}", "soft"))
    for x, y in (at(*point) for point in points):
        drawn.append(f'<circle class="after" cx="{x:.1f}" cy="{y:.1f}" r="4"/>')
    return drawn


def _units() -> list[int]:
    return [digit * 10**power for power in range(12) for digit in (1, 2, 5)]
