"""The traces of a history: summaries kept by `trace --save` and the app, found again by page."""

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


@dataclass(frozen=True)
class KeptTrace:
    """A trace as its run records it; the tensors' figures are read when they are asked for."""

    run_id: str
    created: str
    page: str
    a: str
    b: str
    steps: int
    sentence: str
    row: Mapping[str, Any]


def traces_of(history: History, page: str, sha256: str | None = None) -> list[KeptTrace]:
    """Traces of a page, newest first: of the same bytes where they are known, else of the same name."""
    runs = history.runs_with("traces")
    if not runs:
        return []
    frame = history.query("traces", run_ids=runs)[0]
    kept = [
        KeptTrace(
            str(row["run_id"]), history.record(str(row["run_id"])).created, str(row["page"]),
            str(row["a"]), str(row["b"]), int(row["steps"]), str(row["sentence"]), row,
        )
        for row in frame.to_dict("records")
    ]  # fmt: skip
    hidden = set(history.trashed())
    found = [
        one for one in kept
        if one.run_id not in hidden
        and (one.row.get("sha256") == sha256 if sha256 and one.row.get("sha256") else one.page == page)
    ]  # fmt: skip
    return sorted(found, key=lambda one: one.created, reverse=True)


def other_settings(history: History, kept: KeptTrace, results: Iterable[OcrResult]) -> list[str]:
    """Settings in which a trace of a page is not like these readings of it: "preset tiny, here small".

    What is not known of either is left out.
    """
    read, record = list(results), history.record(kept.run_id)
    prompt, attention = (str(record.settings.get(name, "")) for name in ("prompt", "attention"))
    here: dict[str, set[str | None]] = {
        "backends": {" and ".join(sorted({one.backend for one in read}))} if len(read) > 1 else set(),
        "preset": {one.request.preset for one in read},
        "prompt": {_prompt(one, one.request.prompt) for one in read},
        **{name: {getattr(one.inputs, name, None) for one in read} for name in ("dtype", "attention")},
    }
    traced = {
        "backends": " and ".join(sorted({kept.a, kept.b})),
        "preset": kept.row.get("preset"),
        "dtype": record.dtype,
        "attention": "" if attention == "auto" else attention,
        "prompt": next((_prompt(one, prompt) for one in read), None),
    }
    return [
        f"{name} {short(of_trace)}, here {' and '.join(map(short, sorted(known)))}"
        for name, of_trace in traced.items()
        if of_trace
        and (known := {value for value in here[name] if value is not None})
        and of_trace not in known
    ]


def _prompt(result: OcrResult, given: str | None) -> str | None:
    """Name a prompt of the result's model, which is given by its text or its name; another is its text."""
    named = MODELS[result.request.model].decoding.prompts
    return next((name for name, text in named.items() if text == given), given)


def summary_of(history: History, kept: KeptTrace) -> TraceSummary:
    """The whole summary. Raises HistoryError when the run does not hold it."""
    try:
        table = history.tables(kept.run_id)["trace_tensors"]
        rows = table.select([item.name for item in fields(TensorDifference)]).to_pylist()
        first = next((row for row in rows if row["differing_share"] > 0), None)
        details = parse_json(kept.row["details"], any_number=True)
        return from_jsonable(
            TraceSummary,
            {
                "page": kept.page, "a": kept.a, "b": kept.b, "steps": kept.steps, "sentence": kept.sentence,
                "tensors": rows, "first": first, **details,
            },
        )  # fmt: skip
    except (InvalidFile, KeyError, ValueError, TypeError) as error:
        raise HistoryError(f"run {kept.run_id}: its trace cannot be read ({str(error)[:80]})") from error
