"""Reading Parquet by the thread that asks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq


def test_no_thread_outlives_a_read(tmp_path: Path) -> None:
    """One that does may end the process by SIGABRT."""
    file = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"number": [1, 2, 3]}), file, row_group_size=2)
    code = (
        "import os, pathlib, sys; from dsocr_core.runs.parquet import read_rows, row_of; "
        "import pyarrow.dataset; from dsocr_core.runs.results import SCHEMA; "
        "import pyarrow as pa; pa.default_memory_pool(); "
        "count = lambda: len(os.listdir('/proc/self/task')); before = count(); "
        "file = pathlib.Path(sys.argv[1]); of = pa.schema([('number', pa.int64())]); "
        "read_rows(file, of); row_of(file, 'number', 3, of); print(count() - before)"
    )
    run = subprocess.run([sys.executable, "-c", code, str(file)], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "0"
