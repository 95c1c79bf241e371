"""Results of recorded runs, read back as they were: a page's facts are its own, nothing is merged per run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from dsocr_core.errors import DsocrError
from dsocr_core.history.older_runs import (
    environment_of,
    known_inputs,
    limit_of,
    ngram_size_of,
    policy_of,
    prompt_of,
)
from dsocr_core.history.readings import Key, request_of, result_of
from dsocr_core.history.record import RunRecord, tolerance_of
from dsocr_core.history.store import History
from dsocr_core.outputs.artifacts import RESULT_MMD
from dsocr_core.outputs.comparison import Comparison
from dsocr_core.parity_records import Tolerance
from dsocr_core.records import (
    BOXES_NOT_KNOWN,
    SIDES,
    OcrRequest,
    OcrResult,
    PageFile,
    Side,
    StageTiming,
)
from dsocr_core.stages import Stage

RunSide = tuple[str, str | None]
"""(run id, backend)"""
Row = dict[str, Any]

NO_TEXT = "no text is recorded"
"""The failure of a page that was read, and whose text nobody wrote down."""
_MMD_LIMIT = 16 * 1024 * 1024


@dataclass
class Readings:
    """What a run holds of its pages: results, and for the others why there is none."""

    results: dict[Key, OcrResult] = field(default_factory=dict)
    failures: dict[Key, str] = field(default_factory=dict)
    requests: dict[Key, OcrRequest] = field(default_factory=dict)
    """What is known of every page, read or not."""


def results(history: History, run_id: str, pages: Sequence[str] | None = None) -> dict[Key, OcrResult]:
    """Every result of a run, or of those pages of it. Raises HistoryError where there is no such run."""
    return readings(history, run_id, pages).results


def readings(
    history: History,
    run_id: str,
    pages: Sequence[str] | None = None,
    with_steps: bool = True,
    with_times: bool = True,
) -> Readings:
    """Results and failures of a run, or of those pages of it, in the order of the pages.

    Steps, the new tokens one by one, are most of a run's bytes. Raises HistoryError where there is no such
    run.
    """
    record = history.record(run_id)
    timed = times(history, run_id, pages) if with_times else {}
    question = "readings" if with_steps else "readings_without_steps"
    asked = {"run_ids": [run_id], "pages": None if pages is None else [*pages]}
    found = Readings()
    for given in rows(history.query(question, **asked)[0]):
        row: Row = {**dict.fromkeys(_STEPS), **given, **_whole_numbers(given)}
        key: Key = (row["page"], row["backend"])
        result = _result(history, record, row)
        if result is None:
            found.requests[key] = _of_record(request_of(row), record, row)
            found.failures[key] = NO_TEXT if row["error"] is None else row["error"]
            continue
        if not with_steps:  # an exact row has them
            result = replace(result, token_texts=(), top_two=())
        found.results[key] = replace(result, timings=timed.get(key, ()))
        found.requests[key] = result.request
    return found


_STEPS = ("token_texts", "top_ids", "top_logits")


def pair(
    history: History,
    side_a: RunSide,
    side_b: RunSide,
    page: str | tuple[str | None, str | None],
    tolerance: Tolerance | None = None,
) -> Comparison:
    """A and B of a page; two names where the sides call it differently, None for a side that lacks it.

    Without a `tolerance` that of A's run counts. Raises HistoryError, DsocrError where no side has the page.
    """
    names = page if isinstance(page, tuple) else (page, page)
    wanted: dict[str, list[str]] = {}
    for (run, _), name in zip((side_a, side_b), names, strict=True):
        wanted.setdefault(run, []).extend([name] if name is not None else [])
    found = {run: readings(history, run, list(dict.fromkeys(of))) for run, of in wanted.items()}
    (run_a, backend_a), (run_b, backend_b) = side_a, side_b
    a, b = names
    return compared(
        (found[run_a], None if a is None else (a, backend_a)),
        (found[run_b], None if b is None else (b, backend_b)),
        tolerance or tolerance_of(history.record(run_a)),
    )


def compared(
    a: tuple[Readings, Key | None], b: tuple[Readings, Key | None], tolerance: Tolerance
) -> Comparison:
    """The comparison of two readings; a key that is None, or that is not there, is a side without the page.

    Raises DsocrError where no side has it.
    """
    found: dict[Side, tuple[Readings, Key]] = {
        side: (of, key)
        for side, (of, key) in zip(SIDES, (a, b), strict=True)
        if key is not None and key in of.requests
    }
    if not found:
        raise DsocrError(f"no side has the page '{str((a[1] or b[1] or '?')[0])[:100]}'")
    of, key = next(iter(found.values()))
    results = {side: of.results.get(key) for side, (of, key) in found.items()}
    errors = {side: of.failures[key] for side, (of, key) in found.items() if key in of.failures}
    return Comparison(of.requests[key], results.get("a"), results.get("b"), errors, tolerance=tolerance)


def rows(frame: pd.DataFrame) -> list[Row]:
    """Rows as dictionaries; what is not there is None."""
    columns = [[_value(value) for value in frame[name].tolist()] for name in frame.columns]
    return [dict(zip(frame.columns, values, strict=True)) for values in zip(*columns, strict=True)]


def _value(value: Any) -> Any:
    """A value as Python has it: None for what pandas puts where there is nothing, lists for arrays."""
    if isinstance(value, np.ndarray):
        return [_value(item) for item in value.tolist()] if value.dtype == object else value.tolist()
    if isinstance(value, dict):
        return {name: _value(item) for name, item in value.items()}
    missing = (
        value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)
    )
    return None if missing else value


def _whole_numbers(row: Row) -> Row:
    """The columns of whole numbers, which pandas has as floats where one is missing."""
    return {name: None if row[name] is None else int(row[name]) for name in _WHOLE}


_WHOLE = ("width", "height", "bytes", "grid_columns", "grid_rows", "prompt_tokens", "text_tokens")


def times(
    history: History, run_id: str, pages: Sequence[str] | None = None
) -> dict[Key, tuple[StageTiming, ...]]:
    """Times in the order of the stages; stages of other programs are left out."""
    stages = {stage.value: stage for stage in Stage}
    one = pages[0] if pages is not None and len(pages) == 1 else None
    found: dict[Key, dict[Stage, StageTiming]] = {}
    for row in rows(history.query("page_timings", run_ids=[run_id], page=one)[0]):
        if (stage := stages.get(row["stage"])) is not None:
            calls = 1 if row["calls"] is None else int(row["calls"])
            found.setdefault((row["page"], row["backend"]), {})[stage] = StageTiming(
                stage, float(row["milliseconds"]), calls
            )
    return {key: tuple(of[stage] for stage in Stage if stage in of) for key, of in found.items()}


# --- runs from before the facts of a page were recorded, and those of other programs -----------------


def _result(history: History, record: RunRecord, row: Row) -> OcrResult | None:
    """The result of a row, None where the page failed or nobody wrote its text down.

    What an older run's row lacks, and its whole run is known to have, is its record's; what only some of its
    pages have is not known.
    """
    folder = _folder_text(history, record) if row["text_raw"] is None and row["error"] is None else None
    result = result_of(row | ({"text_raw": folder} if folder is not None else {}))
    if result is None:
        return None
    result = replace(result, request=_of_record(result.request, record, row))
    if row["environment"] is not None or row["exact"] is not None:
        return result
    backend = row["backend"]
    environment = environment_of(record, backend, result.text_raw)
    if folder is not None:
        environment[BOXES_NOT_KNOWN] = "the text has none"
    policy = {name: value for name, value in policy_of(record, backend).items() if name in _OF_INPUTS}
    return replace(
        result,
        backend=backend or record.engine or record.source,
        inputs=result.inputs and replace(result.inputs, **policy),
        environment=environment if result.inputs else environment | known_inputs(record, backend, row),
    )


_OF_INPUTS = ("ngram_window", "ngram_whitelist")


def _of_record(request: OcrRequest, record: RunRecord, row: Row) -> OcrRequest:
    """A request with the page's file; of an older run with what its settings say of all pages."""
    file = None if row["sha256"] is None else PageFile(row["bytes"] or 0, row["sha256"])
    if row["environment"] is not None or row["exact"] is not None:
        return replace(request, file=file)
    backend, inputs = row["backend"], row["inputs"] or {}
    limit, size = inputs.get("max_new_tokens"), inputs.get("no_repeat_ngram_size")
    prompt = request.told("prompt")
    made = OcrRequest.of_others(
        request.image,
        request.source,
        preset=request.told("preset"),
        prompt=prompt_of(record) if prompt is None else prompt,
        max_new_tokens=limit_of(record, backend) if limit is None else limit,
        no_repeat_ngram_size=ngram_size_of(record, backend) if size is None else size,
        **policy_of(record, backend),
    )
    return replace(made, file=file)


def _folder_text(history: History, record: RunRecord) -> str | None:
    """The `result.mmd` of a run that is one output folder of the vendor; None for any other run."""
    if record.source != "vendor":
        return None
    try:
        names = [name for name in history.file_names(record.id) if name.endswith(f"/{RESULT_MMD}")]
        if len(names) != 1:
            return None
        file = history.file(record.id, names[0])
        if file.stat().st_size > _MMD_LIMIT:
            return None
        return file.read_text(encoding="utf-8", errors="replace")
    except (DsocrError, OSError):
        return None
