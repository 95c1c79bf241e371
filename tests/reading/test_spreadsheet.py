"""The one guard against cells that a spreadsheet would run: app, verdicts and sweeps share it."""

from __future__ import annotations

import csv
import io

import pandas as pd
import pytest

from dsocr_core.reading.spreadsheet import csv_cell, frame_csv

BEFORE = ("", " ", "   ", "\t", "\r", "\n", "\r\n ", "\u00a0", "\u3000", "\ufeff", "\u200b", "\x00", "\u2060")


@pytest.mark.parametrize("sign", "=+-@＝＋－＠")
def test_a_text_that_begins_like_a_formula_gets_an_apostrophe(sign: str) -> None:
    for text in (*(f"{before}{sign}cmd|' /C calc'!A0" for before in BEFORE), "\tharmless", "\rx", "\nx"):
        assert csv_cell(text) == f"'{text}"
    for text in ("", " ", "a=b", "x-1", "(=1)", "#5", "'=1", "−5", "a\t=b", "100 %"):
        assert csv_cell(text) == text


def test_a_table_is_guarded_in_its_cells_and_in_its_header() -> None:
    columns = {
        "=evil": ["=1+1", None, "fine"],
        "number": [-1.5, float("nan"), 2.0],
        "whole": pd.array([-1, None, 3], "Int64"),
        "many": [["=x", 1], [], None],
    }
    frame = pd.DataFrame(columns)
    rows = list(csv.reader(io.StringIO(frame_csv(frame))))
    assert rows[0] == ["'=evil", "number", "whole", "many"]
    assert rows[1] == ["'=1+1", "-1.5", "-1", '["=x", 1]']
    assert rows[2] == ["", "", "", "[]"]
    assert rows[3][:3] == ["fine", "2.0", "3"]
    twice = pd.DataFrame([["=1", "b"]], columns=["x", "x"])
    assert list(csv.reader(io.StringIO(frame_csv(twice)))) == [["x", "x"], ["'=1", "b"]]
