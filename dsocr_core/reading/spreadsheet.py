"""Tables as CSV for spreadsheets: the only guard against cells that a spreadsheet would run.

Page texts, file names and notes come from strangers. A text that begins like a formula gets an apostrophe in
front, which spreadsheets show as text.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = re.compile(
    # What a spreadsheet skips before a formula: blanks, control characters, zero-width marks.
    r"[\s\x00-\x1f\u200b-\u200f\u2060\ufeff]*"
    # = + - @ and their full-width forms.
    r"[=+\-@\uff1d\uff0b\uff0d\uff20]"
    # These alone make a cell begin anew.
    r"|[\t\r\n]"
)


def starts_formula(text: str) -> bool:
    """Tell whether a spreadsheet may take the text for a formula, or for more than one cell."""
    return _FORMULA.match(text) is not None


def csv_cell(value: Any) -> str:
    """A value as a cell that a spreadsheet shows and does not run; empty for None, lists as JSON.

    Numbers stay numbers: only texts can begin like a formula.
    """
    if value is None:
        return ""
    if isinstance(value, (list, tuple)):
        return json.dumps(value, ensure_ascii=False, default=str)
    if not isinstance(value, str):
        return str(value)
    return f"'{value}" if starts_formula(value) else value


def frame_csv(frame: pd.DataFrame, header: bool = True) -> str:
    """A table as CSV text, its header guarded like its cells; missing values are empty."""
    safe = frame.set_axis(range(frame.shape[1]), axis="columns")
    for number, dtype in enumerate(safe.dtypes):
        if dtype.kind not in _NUMBERS:
            safe[number] = [_frame_cell(value) for value in safe[number]]
    names = [csv_cell(str(column)) for column in frame.columns]
    text: str = safe.to_csv(index=False, header=names if header else False, lineterminator="\n")
    return text


_NUMBERS = "biufcmM"
"""Kinds of dtype without texts: flags, numbers, times."""


def _frame_cell(value: Any) -> Any:
    if isinstance(value, str):
        return csv_cell(value)
    if not hasattr(value, "__len__"):
        return value
    return csv_cell(value.tolist() if hasattr(value, "tolist") else list(value))
