"""The tables of a run as Parquet columns, the views over them that people ask, and their version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.sanitise import encodable


def _schema(required: str, **columns: pa.DataType) -> pa.Schema:
    needed = {"run_id", *required.split()}
    columns = {"run_id": pa.string(), **columns}
    return pa.schema([pa.field(name, kind, nullable=name not in needed) for name, kind in columns.items()])


_TEXT, _INT, _REAL, _BOOL = pa.string(), pa.int64(), pa.float64(), pa.bool_()

_IDS, _TEXTS = pa.list_(pa.int32()), pa.list_(_TEXT)


def _struct(**columns: pa.DataType) -> pa.DataType:
    return pa.struct([*columns.items()])


TABLES: dict[str, pa.Schema] = {
    # A page as one backend read it: `readings` in this room leads from an OcrResult to a row and back. Null
    # is what is not known; a page that failed has its error. key: a name for all that decided the result.
    # exact: the whole result as JSON, where a column cannot hold it. boxes: pixels of the upright page.
    # image_mask: start and length, run after run; top_ids and top_logits: the two likeliest of each step, in
    # turns. times: in the order they were measured; `timings` has the same, flat. more_pages: those after the
    # first one in the same prompt, whose paths request.more has; page_index: a box's page, from 0.
    "readings": _schema(
        "page",
        page=_TEXT, backend=_TEXT, source=_TEXT, path=_TEXT, width=_INT, height=_INT, bytes=_INT,
        sha256=_TEXT, preset=_TEXT, grid_columns=_INT, grid_rows=_INT, prompt_tokens=_INT, new_tokens=_INT,
        finish_reason=_TEXT, text_raw=_TEXT, error=_TEXT, text_tokens=_INT,
        request=_struct(
            image=_TEXT, preset=_TEXT, prompt=_TEXT, max_new_tokens=_INT, no_repeat_ngram_size=_INT,
            source=_TEXT, eval_mode=_BOOL, test_compress=_BOOL, ngram_window=_INT, ngram_whitelist=_TEXTS,
            max_tiles=_INT, tile_size=_INT, template=_TEXT, exif=_BOOL, model=_TEXT, more=_TEXTS,
            unknown=_TEXTS,
        ),
        token_ids=_IDS, token_texts=_TEXTS, top_ids=_IDS, top_logits=pa.list_(_REAL),
        inputs=_struct(
            prompt_ids=_IDS, image_mask=_IDS, global_shape=_IDS, global_sha256=_TEXT, tiles_shape=_IDS,
            tiles_sha256=_TEXT, no_repeat_ngram_size=_INT, max_new_tokens=_INT, attention=_TEXT, dtype=_TEXT,
            rotary_dtype=_TEXT, ngram_window=_INT, ngram_whitelist=_TEXTS,
        ),
        boxes=pa.list_(
            _struct(
                number=_INT, label=_TEXT, x1=_REAL, y1=_REAL, x2=_REAL, y2=_REAL, text=_TEXT, page_index=_INT
            )
        ),
        environment=pa.list_(_struct(name=_TEXT, value=_TEXT)),
        times=pa.list_(_struct(stage=_TEXT, milliseconds=_REAL, calls=_INT)), key=_TEXT, exact=_TEXT,
        more_pages=pa.list_(_struct(width=_INT, height=_INT, bytes=_INT, sha256=_TEXT)),
    ),
    # aggregate: "page" for one page's time; "mean" or "std" over a run's pages, page null, where an
    # imported run has nothing else. inside_prefill: the time is part of prefill's, never added to it.
    "timings": _schema(
        "backend stage milliseconds inside_prefill aggregate",
        page=_TEXT, backend=_TEXT, stage=_TEXT, milliseconds=_REAL, calls=_INT, inside_prefill=_BOOL,
        aggregate=_TEXT,
    ),
    # kind: "analytic", "measured" (torch's counter), "published" (the same of the published modules), "least"
    # (what the result needs, with the bytes that have to move) of a shape of page, prefill the language
    # model alone; rows without a shape are an earlier bench's or imported ones, of which "traced" is fvcore's
    # count. A FLOP is half a multiply-add.
    "stage_flops": _schema(
        "stage kind",
        page=_TEXT, backend=_TEXT, stage=_TEXT, flops=_REAL, kind=_TEXT, shape=_TEXT, bytes=_REAL,
    ),
    # verdict: one of `parity_records.VERDICTS`; reasons: what differs, the root cause first.
    # first_divergence: number of the first new token in which A and B differ. Null is what was not known.
    "parity": _schema(
        "page verdict",
        page=_TEXT, verdict=_TEXT, reasons=pa.list_(_TEXT), boxes_a=_INT, boxes_b=_INT,
        boxes_matched=_INT, max_coordinate_difference_percent=_REAL, mean_coordinate_difference_percent=_REAL,
        tokens_equal=_BOOL, first_divergence=_INT, character_error_rate=_REAL, input_parity=_BOOL,
    ),
    # Kernels of an Nsight Systems run, summed by name; stage null when all stages were profiled as one.
    "kernels": _schema(
        "name",
        stage=_TEXT, name=_TEXT, total_ns=_REAL, instances=_INT, avg_ns=_REAL, med_ns=_REAL, min_ns=_REAL,
        max_ns=_REAL, stddev_ns=_REAL, time_percent=_REAL,
    ),
    # Launches that Nsight Compute profiled one by one, in the order of the profile; launch is ncu's own ID.
    "kernel_launches": _schema(
        "number kernel launch",
        number=_INT, kernel=_TEXT, launch=_INT, stage=_TEXT, block=_TEXT, grid=_TEXT, device=_TEXT,
        compute_capability=_TEXT,
    ),
    # Their figures, each in the unit that its row had; value null where the metric is a text.
    "kernel_metrics": _schema(
        "number kernel launch metric text",
        number=_INT, kernel=_TEXT, launch=_INT, section=_TEXT, metric=_TEXT, value=_REAL, unit=_TEXT,
        text=_TEXT,
    ),
    # Points of an older project's analytic sweeps. part: what is estimated, vision in prefill; engine: eager,
    # flash, or counted, which is torch's counter. other_flops are part of flops.
    "sweep_points": _schema(
        "part engine tile_columns tile_rows batch context steps flops",
        part=_TEXT, engine=_TEXT, tile_columns=_INT, tile_rows=_INT, image_tokens=_INT, batch=_INT,
        context=_INT, steps=_INT, flops=_INT, other_flops=_INT, bytes=_REAL, weight_bytes=_REAL,
        activation_bytes=_REAL, kv_bytes=_REAL,
    ),
    # Two backends compared tensor by tensor (`trace`); sha256 is the page's. details: causes, changed experts
    # and unpaired names as JSON.
    "traces": _schema(
        "page a b steps equal compared differing sentence",
        page=_TEXT, sha256=_TEXT, preset=_TEXT, a=_TEXT, b=_TEXT, steps=_INT, equal=_BOOL, compared=_INT,
        differing=_INT, first_name=_TEXT, first_call=_INT, sentence=_TEXT, details=_TEXT,
    ),
    # An output on both sides; call 0 is the prefill, view the pass of vision in it.
    "trace_tensors": _schema(
        "page name call view elements differing_share",
        page=_TEXT, name=_TEXT, call=_INT, view=_INT, elements=_INT, differing_share=_REAL, max_ulp=_INT,
        relative_to_std=_REAL, error=_REAL, dtype_a=_TEXT, dtype_b=_TEXT,
    ),
}  # fmt: skip

VIEWS: dict[str, str] = {
    "boxes": "SELECT run_id, page, backend, unnest(box) FROM "
    "(SELECT run_id, page, backend, unnest(boxes) AS box FROM readings)",
}
"""Views that people's SQL and the pages ask, by name."""
AGGREGATES = ("page", "mean", "std")
_NOT_NEGATIVE = {"milliseconds", "calls", "flops", "bytes", "width", "height", "total_ns", "instances"}
_LIMITED = _NOT_NEGATIVE | {"aggregate"}


def rows_to_table(name: str, run_id: str, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows of one table as Arrow columns, `run_id` filled in; a missing key is null. Raises DsocrError."""
    names = sorted({"run_id"}.union(*rows, TABLES[name].names))
    return checked_table(name, run_id, pa.table({each: _array(name, each, rows) for each in names}))


def checked_table(name: str, run_id: str, table: pa.Table) -> pa.Table:
    """A table that is Arrow already, in the schema's columns and order, `run_id` filled in."""
    schema, rows = TABLES[name], table.drop_columns([each for each in table.column_names if each == "run_id"])
    if unknown := set(rows.column_names) - set(schema.names):
        raise DsocrError(f"table {name}: there is no column {', '.join(sorted(unknown))}")
    ids = pa.repeat(pa.scalar(run_id, pa.string()), len(table))
    try:
        made = with_columns(rows.append_column("run_id", ids), schema)
    except ValueError as error:
        raise DsocrError(f"table {name}: {str(error)[:200]}") from error
    for column in schema:
        if column.type != _REAL and column.name not in _LIMITED:
            continue
        what, values = f"table {name}: column {column.name}", made[column.name]
        if column.type == _REAL and pc.all(pc.is_finite(values)).as_py() is False:
            raise DsocrError(f"{what} is not finite")
        if column.name in _NOT_NEGATIVE and (least := pc.min(values).as_py()) is not None and least < 0:
            raise DsocrError(f"{what} is {least}, below 0")
        if column.name == "calls" and (most := pc.max(values).as_py()) is not None and most >= 2**31:
            raise DsocrError(f"{what} is {most}, more than 2^31 - 1")
        if column.name == "aggregate" and (wrong := set(pc.unique(values).to_pylist()) - set(AGGREGATES)):
            raise DsocrError(f"{what} is {wrong}, give one of {', '.join(AGGREGATES)}")
    return made


def _array(table: str, name: str, rows: Sequence[Mapping[str, Any]]) -> pa.Array:
    """A column of the rows; one that the table does not have as it comes."""
    values = [row.get(name) for row in rows]
    kind = TABLES[table].field(name).type if name in TABLES[table].names else None
    for value in values:  # pyarrow makes 1 of 1.5, and 1.0 of True
        whole = not isinstance(value, float) or kind != _INT or value.is_integer()
        if kind and value is not None and (isinstance(value, bool) != (kind == _BOOL) or not whole):
            raise DsocrError(f"table {table}: column {name} cannot hold {value!r:.60}")
    try:
        try:
            return pa.array(values, kind)
        except UnicodeEncodeError:  # half a surrogate pair in model text
            return pa.array([encodable_value(value) for value in values], kind)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise DsocrError(f"table {table}: column {name}: {str(error)[:200]}") from error


def encodable_value(value: Any) -> Any:
    """A value with every text in it as UTF-8 can hold it."""
    if isinstance(value, (list, tuple)):
        return [encodable_value(item) for item in value]
    if isinstance(value, dict):
        return {name: encodable_value(item) for name, item in value.items()}
    return encodable(value) if isinstance(value, str) else value


def read_rows(
    source: Path | pa.Buffer, schema: pa.Schema | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """All rows of a Parquet file, or some columns, by a schema if there is one. Raises pyarrow's errors."""
    table = parquet_file(source).read(columns and [*columns], use_threads=False)
    return table if schema is None else with_columns(table, schema)


def parquet_file(source: Path | pa.Buffer) -> pq.ParquetFile:
    """Open a file that only the calling thread reads. Raises OSError.

    Arrow's own threads may still run when a process ends right after a read, and then end it by SIGABRT
    (github.com/apache/arrow/issues/34314). A file has threads of its own, so it is mapped.
    """
    content = pa.memory_map(str(source)).read_buffer() if isinstance(source, Path) else source
    return pq.ParquetFile(pa.BufferReader(content))


def with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with a schema's columns in their order, those that it lacks empty. Raises ValueError.

    Each page is recorded by way of this, and each cast lets other threads in: needless ones are left out.
    """
    if table.schema.equals(schema):
        return table
    held, columns = dict(zip(table.column_names, table.columns, strict=True)), []
    if len(held) < table.num_columns:
        raise ValueError("several columns have one name")
    for field in schema:
        column = held[field.name] if field.name in held else pa.nulls(len(table), field.type)
        if not field.nullable and column.null_count:
            raise ValueError(f"column '{field.name}' with null values, and each row needs it")
        columns.append(column if column.type == field.type else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)
