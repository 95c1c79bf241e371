"""Shares of the floor as an SVG: a group of bars a stage, a bar a commit, in light and dark."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Protocol

_LEFT, _BARS, _RIGHT = 180, 440, 180
_BAR, _GAP, _TOP, _BOTTOM = 15, 12, 64, 30
_COLOURS = ("before", "between", "after")
# The background is part of the picture: text is readable where page and system differ in their theme.
STYLE = """
.page{fill:#ffffff} .text{fill:#1c2733} .soft{fill:#56657a;font-size:12px} .line{stroke:#d5dbe3}
.before{fill:#9aa7b8} .between{fill:#56b4e9} .after{fill:#0072b2}
@media (prefers-color-scheme: dark) {
.page{fill:#0d1117} .text{fill:#e6edf3} .soft{fill:#9aa7b8} .line{stroke:#30363d}
.before{fill:#6b778a} .between{fill:#2f81b7} .after{fill:#56b4e9} }
"""


class Share(Protocol):
    @property
    def stage(self) -> str: ...
    @property
    def commit(self) -> str: ...
    @property
    def floor_ms(self) -> float: ...
    @property
    def measured_ms(self) -> float: ...
    @property
    def share(self) -> float: ...


def draw(shares: Sequence[Share], commits: Sequence[str]) -> str:
    """The SVG. Stages and commits stand in the order given; a commit without a stage has no bar there."""
    stages = list(dict.fromkeys(share.stage for share in shares))
    of = {(share.stage, share.commit): share for share in shares}
    group = len(commits) * _BAR + _GAP
    width, height = _LEFT + _BARS + _RIGHT, _TOP + len(stages) * group + _BOTTOM
    title = "Share of the floor per stage: the least time over the measured time"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-size="13" '
        f'font-family="system-ui, sans-serif" role="img" aria-label="{title}">',
        f"<style>{STYLE}</style>",
        f'<rect class="page" width="{width}" height="{height}"/>',
        text(16, 24, title, "text"),
    ]
    for number, commit in enumerate(commits):
        x = _LEFT + 110 * number
        parts += [_bar(x, 36, 12, 12, _colour(number, len(commits))), text(x + 18, 47, commit[:12], "soft")]
    for percent in range(0, 101, 25):
        at, end = _LEFT + _BARS * percent / 100, height - _BOTTOM
        parts.append(f'<line class="line" x1="{at:g}" x2="{at:g}" y1="{_TOP - 6}" y2="{end}"/>')
        parts.append(text(at, end + 16, f"{percent}%", "soft", "middle"))
    for row, stage in enumerate(stages):
        top = _TOP + row * group
        parts.append(text(_LEFT - 12, top + (group - _GAP) / 2 + 4.5, stage, "text", "end"))
        for number, commit in enumerate(commits):
            share, y = of.get((stage, commit)), top + number * _BAR
            if share is None:
                parts.append(text(_LEFT + 6, y + 11.5, "not measured", "soft"))
                continue
            length = _BARS * min(1.0, max(0.0, share.share))
            parts.append(_bar(_LEFT, y, length, _BAR - 2, _colour(number, len(commits))))
            words = f"{share.share:.0%}: {_ms(share.floor_ms)} of {_ms(share.measured_ms)} ms"
            parts.append(text(_LEFT + length + 6, y + 11.5, words, "soft"))
    return "\n".join([*parts, "</svg>", ""])


def _colour(number: int, count: int) -> str:
    """The first is the oldest, the last the newest."""
    return _COLOURS[0] if number == 0 else _COLOURS[2] if number == count - 1 else _COLOURS[1]


def _ms(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def text(x: float, y: float, words: str, style: str, anchor: str = "start") -> str:
    return f'<text class="{style}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{escape(words)}</text>'


def _bar(x: float, y: float, width: float, height: float, style: str) -> str:
    return f'<rect class="{style}" x="{x:g}" y="{y:g}" width="{width:.1f}" height="{height:g}"/>'
