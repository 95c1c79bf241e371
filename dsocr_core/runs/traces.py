"""The traces of a history: summaries that `trace --save` and the app record, found again by page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.reading.jsonable import from_jsonable
from dsocr_core.reading.trace_records import TensorDifference, TraceSummary
from dsocr_core.runs.history import History, HistoryError


def traces_of(history: History, page: str, sha256: str | None = None) -> list[dict[str, Any]]:
    """Rows of the table `traces` of a page, newest first; by its digest, or by name where none is known."""
    trashed = {*history.trashed()}
    runs = [run_id for run_id in reversed(history.runs_with("traces")) if run_id not in trashed]
    rows = history.query("traces", run_ids=runs)[0].to_dict("records")
    return [
        row for row in rows if (row["sha256"] == sha256 if sha256 and row["sha256"] else row["page"] == page)
    ]


def summary_of(history: History, row: Mapping[str, Any]) -> TraceSummary:
    """The whole summary of such a row. Raises HistoryError when its run does not hold it."""
    try:
        table = history.rows(row["run_id"], "trace_tensors")
        tensors = table.select([item.name for item in fields(TensorDifference)]).to_pylist()
        first = next((each for each in tensors if each["differing_share"] > 0), None)
        facts = {name: row[name] for name in ("page", "a", "b", "steps", "sentence")}
        details = parse_json(row["details"], any_number=True)
        return from_jsonable(TraceSummary, {**facts, "tensors": tensors, "first": first, **details})
    except (InvalidFile, KeyError, ValueError, TypeError) as error:
        raise HistoryError(f"run {row['run_id']}: its trace cannot be read ({str(error)[:80]})") from error
