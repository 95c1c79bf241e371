"""Verdicts of a run by the rule of today, where another rule gave them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.records import VENDOR, OcrResult
from dsocr_core.runs.parquet import read_rows
from dsocr_core.runs.record import RunRecord, tolerance_of
from dsocr_core.runs.rows import result_of

_AGAIN = ("within_tolerance", "differs")
"""Verdicts that are given anew: identical stays identical, and what could not be compared stays so."""


def judged_anew(directory: Path, record: RunRecord) -> Counter[str]:
    """Count the pages of each verdict of a run's `parity.parquet`; a page that is not whole keeps its own.

    Raises pyarrow's errors, OSError, DsocrError.
    """
    rows = read_rows(directory / "parity.parquet", columns=["page", "verdict"]).to_pylist()
    verdicts = {row["page"]: row["verdict"] for row in rows}
    again = [page for page, verdict in verdicts.items() if verdict in _AGAIN]
    sides = sorted(record.backends, key=lambda name: name == VENDOR)[:2]
    if again and len(sides) == 2 and (directory / "readings.parquet").exists():
        results: dict[tuple[str, str], OcrResult] = {}
        for row in read_rows(directory / "readings.parquet").to_pylist():
            if row["page"] in again and (result := result_of(row)) is not None:
                results[row["page"], row["backend"]] = result
        for page in again:
            a, b = (results.get((page, side)) for side in sides)
            if a is not None and b is not None:
                verdicts[page] = compare_results(a, b, tolerance_of(record)).verdict
    return Counter(verdicts.values())
