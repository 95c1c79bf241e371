"""Profiles, benches and databases of other programs, damaged: refused in a line, or their rows are sound."""

from __future__ import annotations

import functools
import gzip
import json
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from random import Random

import pyarrow as pa

from dsocr_core.runs.importers.detect import kind_of
from dsocr_core.runs.importers.imported import RunFiles
from dsocr_core.runs.schema import rows_to_table
from tests.hostile.damage import damaged

_HEAD = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns)"
_ROW = "60.0,600000,10,60000.0,60000.0,58000,64000,1200.5"
_EVENT = {"ph": "X", "pid": 1, "tid": 1, "ts": 5.5, "dur": 2, "args": {"correlation": 1}}
_TRACE = {"schemaVersion": 1, "deviceProperties": [{"name": "H100"}], "traceEvents": [
    _EVENT | {"cat": "user_annotation", "name": "decode"}, _EVENT | {"cat": "cuda_runtime", "name": "launch"},
    _EVENT | {"cat": "kernel", "name": "void gemm<float>(float*)"},
]}  # fmt: skip
_LAUNCH = '"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"'
TEXTS = (
    f'{_HEAD},Name\n{_ROW},"gemm(int, float)"\n\n{_HEAD},Style,Range\n{_ROW},PushPop,:decode\n',
    f"Processing [r] with [x]\n{_HEAD},Category,Operation\n{_ROW},CUDA_KERNEL,gemm\n",
    f'==PROF== Connected\n{_LAUNCH}\n"0","7","gemm","Speed","Duration","us","1,024.00"\nloss 1\n',
    json.dumps(_TRACE), json.dumps(_TRACE["traceEvents"]),
)  # fmt: skip
_SQL = """
    CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT);
    CREATE TABLE NVTX_EVENTS (start INT, end INT, text TEXT, globalTid INT, textId INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INT, end INT, globalTid INT, correlationId INT);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (
        start INT, end INT, correlationId INT, globalPid INT, demangledName INT);
    INSERT INTO StringIds VALUES (1, 'gemm'); INSERT INTO NVTX_EVENTS VALUES (0, 90, 'decode', 1, NULL);
    INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (5, 6, 1, 1);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (50, 60, 1, 0, 1);
"""


def attempt(random: Random, folder: Path) -> str | None:
    """One file of one form, damaged. Raises DsocrError when it is refused."""
    content = _database() if random.random() < 0.2 else random.choice(TEXTS).encode()
    if random.random() < 0.15:
        content = content.decode(errors="replace").encode("utf-16")
    packed = random.random() < 0.1
    content = damaged(random, content)
    if packed:
        content = damaged(random, gzip.compress(content)) if random.random() < 0.5 else gzip.compress(content)
    file = folder / random.choice(("a.csv", "a.json", "a.txt", "a.sqlite", "a.nsys-rep", "é.jsonl"))
    file.write_bytes(content)
    for run in kind_of(file).read(RunFiles(file)):
        for table, rows in run.tables.items():
            if not isinstance(rows, pa.Table):
                rows_to_table(table, run.record.id, rows)
    return None


@functools.cache
def _database() -> bytes:
    with tempfile.TemporaryDirectory(prefix="dsocr-hostile-") as folder:
        with closing(sqlite3.connect(Path(folder) / "made")) as database:
            database.executescript(_SQL)
        return (Path(folder) / "made").read_bytes()
