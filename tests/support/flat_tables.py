"""A run's rows by the names that people ask: readings as images, boxes, tokens, inputs and steps."""

from __future__ import annotations

import pyarrow as pa

from dsocr_core.runs.exporters import flat
from dsocr_core.runs.store import History


def flat_tables(history: History, run_id: str) -> dict[str, pa.Table]:
    """The views over a run's readings and times, and its other tables."""
    return flat(history.tables(run_id))
