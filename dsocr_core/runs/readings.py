"""A page's reading as a row, and the row as the same `OcrResult` again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from itertools import zip_longest
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.base.bounded_json import InvalidFile, parse_json
from dsocr_core.base.sanitise import name_text, text_name
from dsocr_core.models.family import all_stages, inside_prefill
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import (
    BOXES_NOT_KNOWN,
    MAY_BE_UNKNOWN,
    UNLIMITED,
    FinishReason,
    ModelInputs,
    OcrRequest,
    OcrResult,
    PageFile,
    StageTiming,
    result_from_jsonable,
    to_jsonable,
    top_two_steps,
)
from dsocr_core.runs.schema import TABLES, SchemaError, encodable_value

Row = Mapping[str, Any]
Key = tuple[str, str | None]
"""(page, backend)"""

SCHEMA = TABLES["readings"]
_REQUEST = tuple(field.name for field in SCHEMA.field("request").type)
_INPUTS = tuple(field.name for field in SCHEMA.field("inputs").type)
_TUPLES = ("prompt_ids", "global_shape", "tiles_shape")


# --- to a row -------------------------------------------------------------------------------------


def reading_table(
    page: str,
    result: OcrResult,
    files: Sequence[PageFile | None],
    key: str | None = None,
    path: Path | None = None,
) -> pa.Table:
    """The row of a result. What a column cannot hold (half a surrogate pair, a number too large) is in
    `exact`, and replaced in the column. `files` are those of its images, `key` is a name for all that decided
    the result, `path` the page's file where that is not to be the request's.
    """
    row = result_row(page, result, files) | {"key": key}
    row |= {} if path is None else {"path": name_text(path)}
    columns, exact = [], False
    for field in SCHEMA:
        if field.name == "run_id":
            columns.append(pa.array([""], field.type))
        elif field.name == "exact":
            continue  # last, when it is known
        else:
            array, fits = _column(field, row[field.name])
            columns.append(array)
            exact = exact or not fits
    whole = pa.array([json.dumps(to_jsonable(result)) if exact else None], pa.string())
    columns.insert(SCHEMA.get_field_index("exact"), whole)
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def few_rows(table: pa.Table, about: Mapping[str, str]) -> bytes:
    """A few readings as a Parquet file, with what else there is to say: without what many rows gain by."""
    content = pa.BufferOutputStream()
    table = table.replace_schema_metadata(dict(about))
    pq.write_table(table, content, compression="zstd", use_dictionary=False, write_statistics=False)
    return content.getvalue().to_pybytes()  # type: ignore[no-any-return]


def timing_rows(readings: pa.Table) -> list[Row]:
    """The rows of the table `timings` that readings make."""
    names, inside = ("page", "backend", "times"), {*inside_prefill()}
    return [
        {"page": row["page"], "backend": row["backend"], **time, "aggregate": "page"}
        | {"inside_prefill": time["stage"] in inside}
        for row in readings.select(names).to_pylist()
        for time in row["times"] or ()
    ]


def with_run_id(readings: pa.Table, run_id: str) -> pa.Table:
    """Rows as those of a run."""
    ids = pa.repeat(pa.scalar(run_id, pa.string()), len(readings))
    return readings.set_column(0, SCHEMA.field(0), ids)


def rows_table(rows: Sequence[Row], run_id: str = "") -> pa.Table:
    """Rows of readings that are no results of ours. Raises SchemaError."""
    try:
        return pa.Table.from_pylist([{**row, "run_id": run_id} for row in rows], SCHEMA)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise SchemaError(f"table readings: {str(error)[:200]}") from error


def result_row(page: str, result: OcrResult, files: Sequence[PageFile | None]) -> dict[str, Any]:
    request, inputs, top = result.request, result.inputs, result.top_two
    file, *more_files = files
    known = {name: getattr(request, name) for name in _REQUEST if name not in ("image", "unknown")}
    limit = None if request.max_new_tokens == UNLIMITED else request.max_new_tokens
    environment = result.environment | ({} if result.boxes_known else {BOXES_NOT_KNOWN: "the text has none"})
    return {
        "page": page,
        "backend": result.backend,
        "source": request.name,
        "path": name_text(request.image),
        "width": result.image_size[0],
        "height": result.image_size[1],
        "bytes": file and file.bytes,
        "sha256": file and file.sha256,
        "preset": request.preset,
        "grid_columns": inputs and inputs.grid[0],
        "grid_rows": inputs and inputs.grid[1],
        "prompt_tokens": None if inputs is None else len(inputs.prompt_ids),
        "new_tokens": result.new_tokens,
        "finish_reason": result.finish_reason,
        "text_raw": result.text_raw,
        "error": None,
        "text_tokens": result.text_tokens,
        "request": {
            **known,
            "image": name_text(request.image),
            "more": [name_text(path) for path in request.more],
            "max_new_tokens": limit,
            "unknown": [name for name in MAY_BE_UNKNOWN if known[name] is None],
        },
        "token_ids": result.token_ids,
        "token_texts": result.token_texts or None,
        "top_ids": [token for step in top for token in step.ids] or None,
        "top_logits": [logit for step in top for logit in step.logits] or None,
        "inputs": None if inputs is None else _inputs_row(inputs),
        "boxes": [
            {"number": box.index, "label": box.label, "text": box.text, "page_index": box.page}
            | {name: float(getattr(box, name)) for name in ("x1", "y1", "x2", "y2")}
            for box in result.boxes
        ],
        "environment": [{"name": name, "value": value} for name, value in environment.items()],
        "times": [
            {"stage": timing.stage.value, "milliseconds": timing.milliseconds, "calls": timing.calls}
            for timing in result.timings
        ],
        "more_pages": [
            {"width": size and size[0], "height": size and size[1]}
            | {"bytes": each and each.bytes, "sha256": each and each.sha256}
            for size, each in zip_longest(result.more_sizes, more_files)
        ]
        or None,
    }


def _inputs_row(inputs: ModelInputs) -> dict[str, Any]:
    mask = [value for run in inputs.image_mask for value in run]
    return {name: getattr(inputs, name) for name in _INPUTS} | {"image_mask": mask}


def _column(field: pa.Field, value: Any) -> tuple[pa.Array, bool]:
    """One value as a column of one row, and whether it is whole."""
    try:
        return pa.array([value], field.type), True
    except (UnicodeEncodeError, pa.ArrowInvalid, OverflowError):
        try:
            return pa.array([encodable_value(value)], field.type), False
        except (pa.ArrowInvalid, OverflowError):
            return pa.nulls(1, field.type), False


# --- and back -------------------------------------------------------------------------------------


def result_of(row: Row) -> OcrResult | None:
    """The result of a row; None for a page that failed, or whose text nobody wrote down."""
    if row["exact"] is not None:
        try:
            return result_from_jsonable(parse_json(row["exact"], any_number=True))
        except (InvalidFile, ValueError, LookupError, TypeError, AttributeError):
            pass  # another program's: the columns count
    if row["error"] is not None or row["text_raw"] is None:
        return None
    ids = row["token_ids"]
    more = row.get("more_pages") or ()
    environment = {each["name"]: each["value"] for each in row["environment"] or ()}
    boxes_known = environment.pop(BOXES_NOT_KNOWN, None) is None
    return OcrResult(
        backend=row["backend"] or "",
        request=request_of(row),
        image_size=(row["width"] or 0, row["height"] or 0),
        text_raw=row["text_raw"],
        token_ids=None if ids is None else tuple(ids),
        token_texts=tuple(row.get("token_texts") or ()),
        finish_reason=row["finish_reason"] if row["finish_reason"] in get_args(FinishReason) else None,
        inputs=inputs_of(row),
        timings=timings_of(row),
        environment=environment,
        top_two=top_two_of(row),
        text_tokens=row["text_tokens"],
        more_sizes=tuple(
            (each["width"], each["height"]) for each in more if None not in (each["width"], each["height"])
        ),
        boxes_known=boxes_known,
    )


def request_of(row: Row) -> OcrRequest:
    """Return what was asked of the page of a row; what nobody told is not known."""
    told = dict(row["request"] or {})
    image = Path(text_name(told.pop("image", None) or row["path"] or row["source"] or row["page"]))
    size, sha256 = row["bytes"], row["sha256"]
    file = None if sha256 is None else PageFile(size or 0, sha256)
    unknown = told.pop("unknown", None)
    if unknown is None:
        return OcrRequest.imported(
            image, row["source"] or "", prompt=told.get("prompt"), preset=row["preset"], file=file
        )
    values = {name: value for name, value in told.items() if value is not None}
    values.setdefault("max_new_tokens", UNLIMITED)
    values |= dict.fromkeys(unknown)
    if "ngram_whitelist" in values:
        values["ngram_whitelist"] = tuple(values["ngram_whitelist"])
    if "more" in values:
        values["more"] = tuple(Path(text_name(path)) for path in values["more"])
    more_files = [
        PageFile(each["bytes"] or 0, each["sha256"]) for each in row.get("more_pages") or () if each["sha256"]
    ]
    if len(more_files) == len(values.get("more", ())):
        values["more_files"] = tuple(more_files)
    return OcrRequest(image, **values, file=file)


def inputs_of(row: Row) -> ModelInputs | None:
    """The model's inputs, where all of them are known."""
    inputs = dict(row["inputs"] or {})
    if not inputs or any(value is None for name, value in inputs.items() if name in _NEEDED):
        return None
    mask = inputs["image_mask"]
    if len(mask) % 2 or row["grid_columns"] is None or row["grid_rows"] is None:
        return None
    inputs = {name: value for name, value in inputs.items() if value is not None}
    return ModelInputs(
        **inputs
        | {name: tuple(inputs[name]) for name in _TUPLES}
        | {
            "image_mask": tuple(zip(mask[::2], mask[1::2], strict=True)),
            "grid": (row["grid_columns"], row["grid_rows"]),
            "ngram_whitelist": tuple(inputs.get("ngram_whitelist", ())),
        }
    )


_NEEDED = {field.name for field in fields(ModelInputs)} - {"grid", "ngram_window", "ngram_whitelist"}


def timings_of(row: Row) -> tuple[StageTiming, ...]:
    """Return the times of a row as they were written; stages of other programs are left out."""
    known = {*all_stages()}
    return tuple(
        StageTiming(Stage(each["stage"]), each["milliseconds"], 1 if each["calls"] is None else each["calls"])
        for each in row["times"] or ()
        if each["stage"] in known and each["milliseconds"] is not None
    )


def top_two_of(row: Row) -> Any:
    """Empty for what is not recorded, and for what no backend of this project wrote."""
    try:
        return top_two_steps(row.get("top_ids") or (), row.get("top_logits") or ())
    except (TypeError, ValueError):  # another number of logits than of ids, or nulls among them
        return ()
