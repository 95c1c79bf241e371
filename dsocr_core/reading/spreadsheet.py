"""CSV for spreadsheets, which run a cell that begins like a formula: such a text gets an apostrophe."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = re.compile(
    # Blanks, control characters and zero-width marks are skipped; then a sign, or its full-width form.
    r"[\s\x00-\x1f\u200b-\u200f\u2060\ufeff]*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r\n]"
)


def csv_cell(value: Any) -> Any:
    """A value that a spreadsheet shows and does not run; lists as JSON."""
    if isinstance(value, (list, tuple)) or getattr(value, "shape", None):
        return json.dumps(getattr(value, "tolist", lambda: value)(), ensure_ascii=False, default=str)
    return f"'{value}" if isinstance(value, str) and _FORMULA.match(value) else value


def frame_csv(frame: pd.DataFrame) -> str:
    """A table as CSV text, its header guarded like its cells; missing values are empty."""
    safe = frame.set_axis(range(frame.shape[1]), axis="columns").map(csv_cell)  # two may have one name
    names = [csv_cell(str(column)) for column in frame.columns]
    text: str = safe.to_csv(index=False, header=names, lineterminator="\n")
    return text
