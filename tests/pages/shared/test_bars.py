"""Bars as plain HTML: lengths, axis, words of others."""

from __future__ import annotations

import re

import pytest

from pages.widgets.shared.bars import Bar, BarRow, legend_html, panel_html


def test_a_bar_is_as_long_as_its_share_of_the_longest_row() -> None:
    rows = [
        BarRow("a", [Bar(0, 50, "#111", "x"), Bar(50, 150, "#222", "y")]),
        BarRow("b", [Bar(0, 100, "#111", "x")]),
    ]
    found = re.findall(r"left:([\d.]+)%;width:([\d.]+)%;background", panel_html(rows, "ms"))
    assert [(float(left), float(wide)) for left, wide in found] == [(0, 25), (25, 75), (0, 50)]


@pytest.mark.parametrize("longest", [0.0013, 0.99, 1.0, 4.2, 7.6, 9.99, 88.0, 123456.0])
def test_the_axis_has_round_numbers_from_zero(longest: float) -> None:
    html = panel_html([BarRow("a", [Bar(0, longest, "#111", "x")])], "ms")
    ticks = [
        float(text.split()[0]) for text in re.findall(r"<span style='left:[\d.]+%'>([^<]+)</span>", html)
    ]
    assert ticks[0] == 0 and 3 <= len(ticks) <= 8 and ticks[-1] <= longest


def test_inner_bars_lie_on_outer_ones_and_words_of_others_are_escaped() -> None:
    rows = [
        BarRow("<b>row</b>", [Bar(0, 1, "#111", "<i>", inside=True), Bar(0, 2, "#222", "'\"&")], "<u>", "<s>")
    ]
    html = panel_html(rows, "ms")
    assert html.index("#222") < html.index("#111")
    assert not re.search(r"<(b|u|s)>", html) and "title='&lt;i&gt;'" in html and "&#x27;&quot;&amp;" in html
    assert "&lt;script" in legend_html({"<script>": "#fff"})


def test_nothing_measured_draws_no_bar() -> None:
    assert "background-color" not in panel_html([BarRow("a", [Bar(0, 0, "#111", "x")])], "ms")
