"""Results of recorded runs, read back as they were: a page's facts are its own, nothing is merged per run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

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
from dsocr_core.history.record import RunRecord, tolerance_of
from dsocr_core.history.store import History
from dsocr_core.outputs.artifacts import RESULT_MMD
from dsocr_core.outputs.comparison import Comparison
from dsocr_core.outside.visible import text_name
from dsocr_core.parity_records import Tolerance
from dsocr_core.records import (
    BOXES_NOT_KNOWN,
    SIDES,
    FinishReason,
    ModelInputs,
    OcrRequest,
    OcrResult,
    PageFile,
    Side,
    StageTiming,
    result_from_jsonable,
    top_two_steps,
)
from dsocr_core.stages import Stage

Key = tuple[str, str | None]
"""(page, backend)"""
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

    def table(query: str) -> dict[Key, Row]:
        found = rows(history.query(query, run_ids=[run_id], pages=None if pages is None else [*pages])[0])
        return {(row["page"], row["backend"]): row for row in found}

    images, facts, inputs = table("whole_pages"), table("page_facts"), table("inputs")
    tokens, steps = table("tokens"), table("steps") if with_steps else {}
    timed = times(history, run_id, pages) if with_times else {}
    found = Readings()
    for key, image in images.items():
        exact = _exact(facts.get(key))
        made = exact or _of_older(history, record, image, inputs.get(key))
        found.requests[key] = _with_file(made.request, image)
        if image["error"] is not None or (image["text_raw"] is None and not made.text_raw):
            found.failures[key] = NO_TEXT if image["error"] is None else image["error"]
            continue
        of_step = steps.get(key, {})
        ids = tokens.get(key, {}).get("token_ids")
        found.results[key] = replace(
            made,
            request=found.requests[key],
            text_raw=made.text_raw or image["text_raw"],
            token_ids=None if ids is None else _numbers(ids),
            token_texts=(made.token_texts or _texts(of_step.get("token_texts"))) if with_steps else (),
            top_two=_top_two(of_step.get("top_ids"), of_step.get("top_logits")),
            timings=timed.get(key, ()),
        )
    return found


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
    """None for what pandas puts where there is nothing."""
    missing = (
        value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and value != value)
    )
    return None if missing else value


def _exact(row: Row | None) -> OcrResult | None:
    """The result as it was written, without what other tables hold; None where a run has none or another."""
    if row is None or row["facts"] is None:
        return None
    try:
        return result_from_jsonable(json.loads(row["facts"]))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def _with_file(request: OcrRequest, image: Row) -> OcrRequest:
    size, sha256 = image["bytes"], image["sha256"]
    file = None if sha256 is None else PageFile(0 if size is None else int(size), sha256)
    return replace(request, file=file)


def _numbers(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(map(int, values))


def _texts(values: Any) -> tuple[str, ...]:
    return () if values is None else tuple(map(str, values))


def _top_two(ids: Any, logits: Any) -> Any:
    """Empty for what is not recorded, and for what no backend of this project wrote."""
    try:
        return top_two_steps(ids.tolist(), logits.tolist()) if ids is not None and logits is not None else ()
    except (TypeError, ValueError):  # another number of logits than of ids, or nulls among them
        return ()


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


def _of_older(history: History, record: RunRecord, image: Row, inputs: Row | None) -> OcrResult:
    """A page of a run whose tables hold less. What they lack, and the whole run is known to have, is its
    record's; what only some of its pages have is not known."""
    backend, page = image["backend"], image["page"]
    given = _model_inputs(inputs, image, policy_of(record, backend)) if inputs else None
    prompt = (inputs or {}).get("prompt")
    size = given.no_repeat_ngram_size if given else ngram_size_of(record, backend)
    text = image["text_raw"]
    plain = None
    if text is None and image["error"] is None:
        text = plain = _folder_text(history, record)
    environment = environment_of(record, backend, text or "")
    if plain is not None:
        environment[BOXES_NOT_KNOWN] = "the text has none"
    if given is None:
        environment |= known_inputs(record, backend, image)
    request = OcrRequest.of_others(
        Path(text_name(image["path"] or page)),
        image["source"] or page,
        preset=image["preset"],
        prompt=prompt_of(record) if prompt is None else prompt,
        max_new_tokens=given.max_new_tokens if given else limit_of(record, backend),
        no_repeat_ngram_size=size,
        **policy_of(record, backend),
    )
    finish = image["finish_reason"]
    width, height = image["width"], image["height"]
    return OcrResult(
        backend=backend or record.engine or record.source,
        request=request,
        image_size=(int(width), int(height)) if width and height else (0, 0),
        text_raw=text or "",
        token_ids=None,
        token_texts=(),
        finish_reason=finish if finish in get_args(FinishReason) else None,
        inputs=given,
        timings=(),
        environment=environment,
    )


def _model_inputs(row: Row, image: Row, policy: Mapping[str, Any]) -> ModelInputs | None:
    """None when a value is missing: half of the inputs are none. Older runs have no window and whitelist."""
    columns, lines = image["grid_columns"], image["grid_rows"]
    if columns is None or lines is None or any(value is None for value in row.values()):
        return None
    mask = _numbers(row["image_mask"])
    return ModelInputs(
        prompt_ids=_numbers(row["prompt_ids"]),
        image_mask=tuple(zip(mask[::2], mask[1::2], strict=False)),
        grid=(int(columns), int(lines)),
        global_shape=_numbers(row["global_shape"]),
        global_sha256=row["global_sha256"],
        tiles_shape=_numbers(row["tiles_shape"]),
        tiles_sha256=row["tiles_sha256"],
        no_repeat_ngram_size=int(row["no_repeat_ngram_size"]),
        max_new_tokens=int(row["max_new_tokens"]),
        attention=row["attention"],
        dtype=row["dtype"],
        rotary_dtype=row["rotary_dtype"],
        **{name: policy[name] for name in ("ngram_window", "ngram_whitelist") if name in policy},
    )


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
