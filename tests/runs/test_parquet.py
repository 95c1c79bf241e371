"""Reading Parquet by the thread that asks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.made_up_runs import timing, write_run


def test_no_thread_outlives_a_read(tmp_path: Path) -> None:
    """One that does may end the process by SIGABRT."""
    write_run(tmp_path, "run-1", [timing("p", "sam", 1.0)])
    code = (
        "import os, pathlib, sys; from dsocr_core.runs.result_cache import find_result; "
        "from dsocr_core.runs.schema import read_rows; import pyarrow.dataset; import pyarrow as pa; "
        "pa.default_memory_pool(); threads = lambda: len(os.listdir('/proc/self/task')); before = threads(); "
        "run = pathlib.Path(sys.argv[1]); read_rows(run / 'timings.parquet'); find_result('key', [run]); "
        "print(threads() - before)"
    )
    run = tmp_path / "runs" / "run-1"
    done = subprocess.run([sys.executable, "-c", code, str(run)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
