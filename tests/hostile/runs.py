"""Recorded runs, archives of them and profiles of other programs: damaged, foreign, swollen."""

from __future__ import annotations

import functools
import io
import json
import sqlite3
import tempfile
import zipfile
from contextlib import closing
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.runs.history import History, check
from dsocr_core.runs.importers.detect import import_paths, read_runs
from dsocr_core.runs.importers.imported import RunFiles
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.schema import rows_to_table
from tests.hostile.damage import damaged

RUNS = ("run-0", "run-1")


# --- recorded runs ----------------------------------------------------------------------------------


def tables(random: Random, folder: Path) -> str | None:
    """One file of one of two runs, damaged: it is named, and every other run opens."""
    root = folder / "history"
    write_runs(root)
    hit = random.choice(RUNS)
    (directory,) = [place for place in root.rglob(hit) if place.is_dir()]
    file = random.choice(sorted(path for path in directory.rglob("*") if path.is_file()))
    before = file.read_bytes()
    foreign = file.suffix == ".parquet" and random.random() < 0.3
    content = _with_other_columns(random, before) if foreign else damaged(random, before)
    file.write_bytes(content)
    with History(root) as history:
        named, there = set(history.damaged()), set(history.run_ids())
        history.query("runs")
        for run in sorted(there):
            history.tables(run)
        named |= set(history.damaged()) | {entry for entry, _ in check(history).damaged}
    if not set(RUNS) - {hit} <= there:
        return f"damage of {file.name} hides another run"
    if content != before and not any(hit in name for name in named) and file.name != "SHA256SUMS":
        return f"damage of {file.name} is not named: {sorted(named)}"
    return None


_VALUES = (
    None, {"x": 1, "x2": "é"}, {"deep": [{"y": True}]}, b"\xff\x00ab", ["a"], [[1.5]], True, 7, "text", 2.5,
    Decimal("1.5"), date(2026, 1, 2), timedelta(seconds=3),
)  # fmt: skip
"""Of columns that no version of this project wrote; Arrow makes the type."""


def _with_other_columns(random: Random, content: bytes) -> bytes:
    """A table's Parquet with a column more, a name twice, or a column in place of its own."""
    table = pq.read_table(pa.BufferReader(content))
    for _ in range(random.randint(1, 3)):
        column = pa.array([random.choice(_VALUES)] * len(table))
        name = random.choice((*table.column_names, "run_id", "more", ""))
        if name in table.column_names and random.random() < 0.8:
            table = table.set_column(table.column_names.index(name), name, column)
        else:
            table = table.append_column(name, column)
    written = pa.BufferOutputStream()
    pq.write_table(table, written)
    return bytes(written.getvalue().to_pybytes())


def write_runs(root: Path) -> None:
    """Two runs, each with texts, numbers and lists of numbers."""
    times = {"page": "p", "stage": "decode", "milliseconds": 7.5, "backend": "eager", "inside_prefill": False,
             "aggregate": "page", "calls": 1}  # fmt: skip
    for run_id in RUNS:
        created = "2026-01-02T03:04:05+00:00"
        record = RunRecord(id=run_id, created=created, source="dsocr", backends=("eager",), engine="eager")
        with RunDirectory.create(root, record) as run:
            row = {"page": "p", "backend": "eager", "text_raw": "text " * 20, "token_ids": list(range(50))}
            run.add_rows("readings", [row])
            run.add_rows("timings", [times])


# --- archives ---------------------------------------------------------------------------------------

_NAMES = (
    "a.txt", "../out.txt", "/abs.txt", "..\\out.txt", "a/" * 500 + "b", "a/" * 20 + "run.json", "n" * 400,
    "é\n.json", "C:/x", "a/./b", "x", "run.json", "result.mmd", "summary.json", "x\0y", "\x1b[31m.png",
)  # fmt: skip


def archives(random: Random, folder: Path) -> str | None:
    """One archive, imported into a new history: nothing is written outside of it."""
    file = folder / "runs.zip"
    content = _archive(random)
    file.write_bytes(damaged(random, content) if random.random() < 0.4 else content)
    with History(folder / "history") as history:
        report = import_paths(history, [file])
        taken = {run.run_id for run in report.imported}
        if not taken <= set(history.run_ids()):
            return f"reported as imported and not there: {sorted(taken - set(history.run_ids()))}"
    others = {path.name for path in folder.iterdir()} - {"runs.zip", "history"}
    return f"an archive wrote {sorted(others)}" if others else None


@functools.cache
def _run_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as place:
        write_runs(Path(place))
        files = (path for path in Path(place).rglob("*") if path.is_file())
        return {str(path.relative_to(place)): path.read_bytes() for path in files}


def _archive(random: Random) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in _run_files().items():
            if random.random() < 0.1:
                continue
            if name.endswith(".parquet") and random.random() < 0.2:
                archive.writestr(name, _with_other_columns(random, content))
            else:
                archive.writestr(name, damaged(random, content) if random.random() < 0.15 else content)
        for _ in range(random.randint(0, 6)):
            entry = zipfile.ZipInfo(random.choice(_NAMES))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = random.choice((0, 0o100644, 0o120777, 0o010644, 0o040755)) << 16
            archive.writestr(entry, random.choice((b"", b"{}", b"[" * 10**4, b"/etc/passwd", bytes(10**6))))
    return buffer.getvalue()


# --- profiles ---------------------------------------------------------------------------------------

_HEAD = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns)"
_ROW = "60.0,600000,10,60000.0,60000.0,58000,64000,1200.5"
_EVENT = {"ph": "X", "pid": 1, "tid": 1, "ts": 5.5, "dur": 2, "args": {"correlation": 1}}
_TRACE = {"schemaVersion": 1, "deviceProperties": [{"name": "H100"}], "traceEvents": [
    _EVENT | {"cat": "user_annotation", "name": "decode"}, _EVENT | {"cat": "cuda_runtime", "name": "launch"},
    _EVENT | {"cat": "kernel", "name": "void gemm<float>(float*)"},
]}  # fmt: skip
_LAUNCH = '"ID","Process ID","Kernel Name","Section Name","Metric Name","Metric Unit","Metric Value"'
_PROFILES = (
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


def profiles(random: Random, folder: Path) -> str | None:
    """One profile, damaged: refused in a line, or its rows are sound."""
    content = _database() if random.random() < 0.2 else random.choice(_PROFILES).encode()
    if random.random() < 0.15:
        content = content.decode(errors="replace").encode("utf-16")
    file = folder / random.choice(("a.csv", "a.json", "a.txt", "a.sqlite", "a.nsys-rep", "é.jsonl"))
    file.write_bytes(damaged(random, content))
    for run in read_runs(RunFiles(file)) or ():
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
