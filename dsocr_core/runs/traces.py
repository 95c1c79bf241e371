"""The traces of a history: summaries that `trace --save` and the app record, found again by page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.reading.jsonable import from_jsonable
from dsocr_core.reading.trace_records import TensorDifference, TraceSummary
from dsocr_core.runs.history import History, HistoryError
from dsocr_core.runs.record import RunRecord


@dataclass(frozen=True)
class RecordedTrace:
    """A trace as its run records it; the tensors' figures are read when they are asked for."""

    record: RunRecord
    row: Mapping[str, Any]
    """Row of the table `traces`."""


def traces_of(history: History, page: str, sha256: str | None = None) -> list[RecordedTrace]:
    """Traces of a page, newest first: of the same bytes where they are known, else of the same name."""
    runs = sorted({*history.runs_with("traces")} - {*history.trashed()})
    rows = history.query("traces", run_ids=runs)[0].to_dict("records") if runs else []
    found = [
        RecordedTrace(history.record(row["run_id"]), row)
        for row in rows
        if (row["sha256"] == sha256 if sha256 and row["sha256"] else row["page"] == page)
    ]
    return sorted(found, key=lambda one: one.record.created, reverse=True)


def summary_of(history: History, trace: RecordedTrace) -> TraceSummary:
    """The whole summary. Raises HistoryError when the run does not hold it."""
    names = ("page", "a", "b", "steps", "sentence")
    try:
        table = history.rows(trace.record.id, "trace_tensors")
        rows = table.select([item.name for item in fields(TensorDifference)]).to_pylist()
        first = next((row for row in rows if row["differing_share"] > 0), None)
        details = parse_json(trace.row["details"], any_number=True)
        facts = {name: trace.row[name] for name in names}
        return from_jsonable(TraceSummary, {**facts, "tensors": rows, "first": first, **details})
    except (InvalidFile, KeyError, ValueError, TypeError) as error:
        raise HistoryError(f"run {trace.record.id}: its trace cannot be read ({str(error)[:80]})") from error
