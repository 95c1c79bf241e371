"""The traces of a history: summaries that `trace --save` and the app record, found again by page."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.models.family import MODELS
from dsocr_core.reading.jsonable import from_jsonable
from dsocr_core.reading.records import OcrResult
from dsocr_core.reading.trace_records import TensorDifference, TraceSummary
from dsocr_core.runs.history import History, HistoryError
from dsocr_core.runs.labels import short
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


def other_settings(trace: RecordedTrace, results: Iterable[OcrResult]) -> list[str]:
    """Settings in which a trace of a page is not like these readings of it: "preset tiny, here small".

    What is not known of either is left out.
    """
    read, record, row = list(results), trace.record, trace.row
    inputs = [one.inputs for one in read if one.inputs is not None]
    attention, prompt = (record.settings.get(name) for name in ("attention", "prompt"))
    names = sorted({one.backend for one in read})
    sides: dict[str, tuple[Any, Iterable[str | None]]] = {
        "backends": (" and ".join(sorted({row["a"], row["b"]})), [" and ".join(names)] if names[1:] else []),
        "preset": (row["preset"], [one.request.preset for one in read]),
        "dtype": (record.dtype, [one.dtype for one in inputs]),
        "attention": (None if attention == "auto" else attention, [one.attention for one in inputs]),
        "prompt": (_prompt(read, prompt), [_prompt([one], one.request.prompt) for one in read]),
    }
    found = []
    for name, (traced, values) in sides.items():
        known = sorted({value for value in values if value is not None})
        if traced and known and traced not in known:
            found.append(f"{name} {short(str(traced))}, here {' and '.join(map(short, known))}")
    return found


def _prompt(results: Iterable[OcrResult], given: str | None) -> str | None:
    """Name a prompt of the results' model, which is given by its text or its name; another is its text."""
    named = {
        text: name
        for one in results
        for name, text in MODELS[one.request.model].decoding.prompts.items()
    }  # fmt: skip
    return named.get(given, given) if given else given


def summary_of(history: History, trace: RecordedTrace) -> TraceSummary:
    """The whole summary. Raises HistoryError when the run does not hold it."""
    names = ("page", "a", "b", "steps", "sentence")
    try:
        table = history.tables(trace.record.id)["trace_tensors"]
        rows = table.select([item.name for item in fields(TensorDifference)]).to_pylist()
        first = next((row for row in rows if row["differing_share"] > 0), None)
        details = parse_json(trace.row["details"], any_number=True)
        facts = {name: trace.row[name] for name in names}
        return from_jsonable(TraceSummary, {**facts, "tensors": rows, "first": first, **details})
    except (InvalidFile, KeyError, ValueError, TypeError) as error:
        raise HistoryError(f"run {trace.record.id}: its trace cannot be read ({str(error)[:80]})") from error
