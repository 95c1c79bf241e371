"""Tables as CSV files to download: one writer for all pages, over the core's one guard against formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dsocr_core.outputs.spreadsheet import frame_csv

if TYPE_CHECKING:
    import pandas as pd


def csv_of(table: pd.DataFrame) -> bytes:
    """CSV in UTF-8, which a spreadsheet shows and does not run."""
    return frame_csv(table).encode(errors="replace")
