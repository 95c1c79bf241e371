"""Reading Parquet by the thread that asks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsocr_core.runs.parquet import read_rows

STRUCT = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = pa.schema([("later", pa.float64()), ("key", pa.string()), ("number", pa.int64()), ("both", STRUCT)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    table = pa.table(
        {
            "number": pa.array([1, 2, 3], pa.int32()),
            "key": ["a", "b", "b"],
            "both": pa.array([{"x": n, "y": "z"} for n in range(3)], STRUCT),
        }
    )
    pq.write_table(table, tmp_path / "rows.parquet", row_group_size=2)
    return tmp_path / "rows.parquet"


def test_columns_that_came_later_are_empty(file: Path) -> None:
    of_bytes = read_rows(pa.py_buffer(file.read_bytes()), SCHEMA)
    assert of_bytes == read_rows(file, SCHEMA) and of_bytes.schema == SCHEMA
    assert of_bytes.to_pylist()[2] == {"later": None, "key": "b", "number": 3, "both": {"x": 2, "y": "z"}}
    assert read_rows(file, columns=["key"]).to_pydict() == {"key": ["a", "b", "b"]}


def test_no_thread_outlives_a_read(file: Path) -> None:
    """One that does may end the process by SIGABRT."""
    code = (
        "import os, pathlib, sys; from dsocr_core.runs.parquet import read_rows, row_of; "
        "import pyarrow.dataset; from dsocr_core.runs.rows import SCHEMA; "
        "import pyarrow as pa; pa.default_memory_pool(); "
        "count = lambda: len(os.listdir('/proc/self/task')); before = count(); "
        "file = pathlib.Path(sys.argv[1]); of = pa.schema([('number', pa.int64())]); "
        "read_rows(file, of); row_of(file, 'number', 3, of); print(count() - before)"
    )
    said = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "0"
