"""A page's row of a shard: what was read of it, without anything that another worker would have otherwise.

Times lie in a table of their own: results of the same pages have the same bytes, whoever read them.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.cluster.shards import PageRef
from dsocr_core.errors import one_line
from dsocr_core.outside.visible import encodable
from dsocr_core.records import BOXES_NOT_KNOWN, OcrResult

Status = Literal["read", "failed", "quarantined"]
Row = Mapping[str, Any]

RESULTS = pa.schema([
    ("number", pa.int64()), ("source", pa.string()), ("path", pa.string()), ("page", pa.int64()),
    ("status", pa.string()), ("error", pa.string()), ("backend", pa.string()), ("text_raw", pa.string()),
    ("token_ids", pa.list_(pa.int32())), ("new_tokens", pa.int64()), ("prompt_tokens", pa.int64()),
    ("finish_reason", pa.string()), ("width", pa.int64()), ("height", pa.int64()), ("preset", pa.string()),
    ("grid_columns", pa.int64()), ("grid_rows", pa.int64()), ("global_sha256", pa.string()),
    ("tiles_sha256", pa.string()), ("boxes_known", pa.bool_()),
])  # fmt: skip
_LATER = ("global_sha256", "tiles_sha256", "boxes_known")
"""Columns that outputs of before do not have: null there."""
TIMES = pa.schema([
    ("number", pa.int64()), ("stage", pa.string()), ("milliseconds", pa.float64()), ("calls", pa.int64()),
])  # fmt: skip

MOST_OF_AN_ERROR = 1000
_MOST_OF_A_CAUSE = 80


def result_values(result: OcrResult) -> dict[str, Any]:
    """What a backend read, ready for JSON: columns of RESULTS, and `times`."""
    inputs = result.inputs
    return {
        "status": "read",
        "backend": result.backend,
        "text_raw": encodable(result.text_raw),
        "token_ids": None if result.token_ids is None else list(result.token_ids),
        "new_tokens": result.new_tokens,
        "prompt_tokens": len(inputs.prompt_ids) if inputs else None,
        "finish_reason": result.finish_reason,
        "width": result.image_size[0],
        "height": result.image_size[1],
        "preset": result.request.preset,
        "grid_columns": inputs.grid[0] if inputs else None,
        "grid_rows": inputs.grid[1] if inputs else None,
        "global_sha256": inputs.global_sha256 if inputs else None,
        "tiles_sha256": inputs.tiles_sha256 if inputs else None,
        "boxes_known": BOXES_NOT_KNOWN not in result.environment,
        "times": [[time.stage.value, time.milliseconds, time.calls] for time in result.timings],
    }


def failure_values(error: str, status: Status = "failed") -> dict[str, Any]:
    return {"status": status, "error": encodable(error)[:MOST_OF_AN_ERROR]}


def row_of(page: PageRef, values: Mapping[str, Any]) -> Row:
    """The row of a page with the values of `result_values` or `failure_values`."""
    own = {"number": page.number, "source": page.source, "path": page.path, "page": page.page}
    return {**values, **own}


def cause_of(row: Row) -> str:
    """Why a page failed, without its name: pages of one cause have the same."""
    error, path = str(row.get("error") or ""), str(row.get("path") or "")
    for name in (str(row.get("source") or ""), path, path.rpartition("/")[2]):
        error = error.removeprefix(f"{name}: ") if name else error
    head, mark, tail = error.partition(": ")
    if mark and "/" in head:  # the name of a temporary copy
        error = tail
    return error.partition(";")[0][:_MOST_OF_A_CAUSE] or "unknown"


def results_file(rows: Iterable[Row]) -> bytes:
    """Parquet of rows in the order of the pages; the same rows make the same bytes."""
    return _parquet(sorted(rows, key=lambda row: row["number"]), RESULTS)


def times_file(rows: Iterable[Row]) -> bytes:
    times = [
        {"number": row["number"], "stage": stage, "milliseconds": milliseconds, "calls": calls}
        for row in sorted(rows, key=lambda row: row["number"])
        for stage, milliseconds, calls in row.get("times", ())
    ]
    return _parquet(times, TIMES)


def _parquet(rows: Sequence[Row], schema: pa.Schema) -> bytes:
    columns = [pa.array([row.get(field.name) for row in rows], field.type) for field in schema]
    buffer = io.BytesIO()
    pq.write_table(
        pa.Table.from_arrays(columns, schema=schema), buffer, compression="zstd", compression_level=1
    )
    return buffer.getvalue()


def read_results(content: bytes) -> pa.Table:
    """The table of `results_file`. Raises ValueError for other columns or a damaged file."""
    try:
        table = pq.read_table(pa.BufferReader(content))
    except (OSError, pa.ArrowException) as error:
        raise ValueError(one_line(error)) from error
    if table.schema.names == [name for name in RESULTS.names if name not in _LATER]:
        for name in _LATER:
            table = table.append_column(RESULTS.field(name), pa.nulls(len(table), RESULTS.field(name).type))
    if table.schema.names != RESULTS.names:
        raise ValueError(f"columns {', '.join(table.schema.names)[:100]}")
    return table
