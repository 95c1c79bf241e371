"""Units of tables: one for all times of a table, in the heads, whatever the numbers."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from pages.widgets.shared import table
from pages.widgets.shared.table import Column, in_one_unit

COLUMNS = {
    "stage": Column("stage"), "a_ms": Column("A", "ms"), "b_s": Column("B", "s"),
    "gap": Column("B − A", "+ms"), "bytes": Column("read", "B"), "weights": Column("weights", "number"),
    "share": Column("share", "share"),
}  # fmt: skip
FRAME = pd.DataFrame(
    {
        "stage": ["tokenizer", "decode"], "a_ms": [0.036, 8420.0], "b_s": [5e-5, None], "gap": [0.014, -20.0],
        "bytes": [2.28e12, 3.4e9], "weights": [2.6e6, 3.3e9], "share": [0.1, 0.9],
    }
)  # fmt: skip


def test_a_table_has_one_unit_for_all_its_times_and_says_it_in_the_heads() -> None:
    columns = in_one_unit(COLUMNS, FRAME)
    assert [column.head for column in columns.values()] == [
        "stage", "A (ms)", "B (ms)", "B − A (ms)", "read (GB)", "weights (M)", "share",
    ]  # fmt: skip
    written = {name: [column.write(value) for value in FRAME[name]] for name, column in columns.items()}
    assert written == {
        "stage": ["tokenizer", "decode"], "a_ms": ["0.0360", "8,420"], "b_s": ["0.0500", ""],
        "gap": ["+0.0140", "−20.0"], "bytes": ["2,280", "3.40"], "weights": ["2.60", "3,300"],
        "share": ["10.0 %", "90.0 %"],
    }  # fmt: skip


def test_a_table_without_numbers_has_units_all_the_same() -> None:
    empty = in_one_unit(COLUMNS, FRAME.assign(a_ms=None, b_s=float("nan"), gap=0.0))
    assert [empty[name].head for name in ("a_ms", "b_s", "gap")] == ["A (s)", "B (s)", "B − A (s)"]
    assert empty["gap"].write(0.0) == "0"


@pytest.mark.parametrize("kind", ["float64", "int64", "Int64"])
def test_numbers_that_no_browser_has_are_written_and_sort_as_such(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    monkeypatch.setattr(table.st, "dataframe", lambda style, **_: drawn.append(style))
    speeds = [2**53, 4_555_000_000_000_000_000, 3_440_000_000_000_000]
    frame = pd.DataFrame({"speed": pd.Series(speeds, dtype=kind)})
    table.draw(frame, {"speed": Column("speed", "FLOP/s")})
    (style,) = drawn
    assert re.findall(r">([\d.,]+)</td>", style.to_html()) == ["9.01", "4,555", "3.44"]
    assert style.data["speed"].sort_values().index.tolist() == [2, 0, 1]
    assert all(isinstance(text, str) for text in style.data["speed"])
