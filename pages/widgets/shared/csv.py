"""Tables as CSV: one writer, one guard against formulas."""

from __future__ import annotations

import io
from typing import Any

import pandas as pd

from dsocr_core.history.exporters import csv_cell


def box_csv(table: pd.DataFrame) -> bytes:
    """CSV for a spreadsheet. A cell of model text that would start a formula is quoted with an apostrophe."""
    safe = table.copy()
    for column in safe.select_dtypes(include=["object", "str"]).columns:
        safe[column] = safe[column].map(
            lambda cell: f"'{cell}" if isinstance(cell, str) and cell[:1] in "=+-@\t\r" and cell else cell
        )
    return str(safe.to_csv(index=False)).encode("utf-8")


def known(value: Any) -> bool:
    """Whether the history has a value there: a missing one comes as None, NaN or NA."""
    return hasattr(value, "__len__") or not pd.isna(value)


def csv_of(table: pd.DataFrame) -> bytes:
    """CSV for a spreadsheet, which shows every cell and runs none."""
    safe = pd.DataFrame(
        {
            column: [csv_cell(_plain(value)) if known(value) else "" for value in table[column]]
            for column in table.columns
        },
        columns=table.columns,
    )
    buffer = io.StringIO()
    safe.to_csv(buffer, index=False)
    return buffer.getvalue().encode(errors="replace")


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else list(value) if hasattr(value, "__len__") else value
