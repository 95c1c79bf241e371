"""Tables of pages in a terminal of 80 columns."""

from __future__ import annotations

import io

import pytest

from dsocr_core.base.console import Name, PageTable, SafeConsole


@pytest.mark.parametrize("width", [80, 140])
def test_figures_stay_whole_and_sentences_go_below_a_narrow_table(width: int) -> None:
    table = PageTable("Page", "Verdict", "CER", "Tokens", "Why", words="Why")
    for number in range(2):
        name = f"a folder/with a long name that goes on and on/page-{number}.png"
        table.add_row(Name(name), "within tolerance", "12.5%", "not known", "a box is 3% off; " * 4)
    file = io.StringIO()
    SafeConsole(file=file, width=width).print(table)
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    assert sum("within tolerance" in line and "12.5%" in line for line in lines) == 2
    assert "Tokens" not in lines[0] + lines[1] and "not known or not measured: Tokens" in lines
    assert ("Why" in "".join(lines[:2])) == (width == 140)
    if width == 80:
        assert " ".join(file.getvalue().split()).count("a box is 3% off") == 8
