"""Parquet read by the thread that asks.

Arrow's own threads may still run when a process ends right after a read, and then end it by SIGABRT
(github.com/apache/arrow/issues/34314). What is read here is small: threads would win nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def read_rows(
    source: Path | pa.Buffer, schema: pa.Schema | None = None, columns: Sequence[str] | None = None
) -> pa.Table:
    """All rows of a file, or of its bytes, or those columns of it; with `schema` its columns in their order,
    those that the file lacks empty. Raises pyarrow's errors and OSError.
    """
    table = _file(source).read(columns and [*columns], use_threads=False)
    return table if schema is None else _as(table, schema)


def row_of(file: Path, column: str, value: str, schema: pa.Schema) -> pa.Table:
    """The first row with that value in a column, as a table of one row or none. Raises pyarrow's errors and
    OSError.
    """
    parquet = _file(file)
    for group in range(parquet.num_row_groups):
        values = parquet.read_row_group(group, [column], use_threads=False)[column].to_pylist()
        if value in values:
            found = parquet.read_row_group(group, use_threads=False).slice(values.index(value), 1)
            return _as(found, schema)
    return schema.empty_table()


def _file(source: Path | pa.Buffer) -> pq.ParquetFile:
    """Raises OSError. The thread that asks reads bytes; a file has threads of its own, so it is mapped."""
    content = pa.memory_map(str(source)).read_buffer() if isinstance(source, Path) else source
    return pq.ParquetFile(pa.BufferReader(content))


def _as(table: pa.Table, schema: pa.Schema) -> pa.Table:
    missing = [field for field in schema if field.name not in table.column_names]
    for field in missing:
        table = table.append_column(field, pa.nulls(len(table), field.type))
    return table.select(schema.names).cast(schema)
