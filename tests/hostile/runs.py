"""Recorded runs, archives of them and profiles of other programs: damaged, foreign, swollen."""

from __future__ import annotations

import functools
import io
import zipfile
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.runs.history import History, check
from dsocr_core.runs.importers.detect import import_paths, read_runs
from dsocr_core.runs.importers.imported import RunFiles
from tests.hostile.damage import damaged
from tests.runs.importers import test_profiles as made_up
from tests.support.imported_files import rows_of
from tests.support.made_up_runs import timing, write_run

RUNS = ("run-0", "run-1")


def write_runs(root: Path) -> None:
    for run_id in RUNS:
        write_run(root, run_id, [timing("p", "decode", 7.5)])


# --- recorded runs ----------------------------------------------------------------------------------


def tables(random: Random, folder: Path) -> str | None:
    """One file of one of two runs, damaged: it is named, and every other run opens."""
    root = folder / "history"
    write_runs(root)
    hit = random.choice(RUNS)
    file = random.choice(sorted(path for path in root.rglob(f"{hit}/*") if path.is_file()))
    before = file.read_bytes()
    file.write_bytes(content := _changed(random, file.name, before))
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
    Decimal("1.5"), timedelta(seconds=3),
)  # fmt: skip
"""Of columns that no version of this project wrote; Arrow makes the type."""


def _changed(random: Random, name: str, content: bytes) -> bytes:
    """A file damaged, or a table with a column more, a name twice, or a column in place of its own."""
    if not name.endswith(".parquet") or random.random() < 0.7:
        return damaged(random, content)
    table = pq.read_table(pa.BufferReader(content))
    column, name = pa.array([random.choice(_VALUES)] * len(table)), random.choice((*table.column_names, ""))
    at = random.randrange(table.num_columns)
    more = random.random() < 0.5
    table = table.append_column(name, column) if more else table.set_column(at, name, column)
    written = pa.BufferOutputStream()
    pq.write_table(table, written)
    return bytes(written.getvalue().to_pybytes())


# --- archives ---------------------------------------------------------------------------------------

_NAMES = (
    "a.txt", "../out.txt", "/abs.txt", "..\\out.txt", "a/" * 500 + "b", "a/" * 20 + "run.json", "n" * 400,
    "é\n.json", "C:/x", "a/./b", "x", "run.json", "result.mmd", "summary.json", "x\0y", "\x1b[31m.png",
)  # fmt: skip


def archives(random: Random, folder: Path) -> str | None:
    """One archive, imported into a new history: nothing is written outside of it."""
    file = folder / "runs.zip"
    content = _archive(random, folder / "runs")
    file.write_bytes(damaged(random, content) if random.random() < 0.4 else content)
    with History(folder / "history") as history:
        taken = {run.run_id for run in import_paths(history, [file]).imported}
        if missing := taken - set(history.run_ids()):
            return f"reported as imported and not there: {sorted(missing)}"
    others = {path.name for path in folder.iterdir()} - {"runs", "runs.zip", "history"}
    return f"an archive wrote {sorted(others)}" if others else None


def _archive(random: Random, runs: Path) -> bytes:
    write_runs(runs)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(path for path in runs.rglob("*") if path.is_file() and random.random() < 0.9):
            content = path.read_bytes()
            content = _changed(random, path.name, content) if random.random() < 0.2 else content
            archive.writestr(str(path.relative_to(runs)), content)
        for _ in range(random.randint(0, 6)):
            entry = zipfile.ZipInfo(random.choice(_NAMES))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = random.choice((0, 0o100644, 0o120777, 0o010644, 0o040755)) << 16
            archive.writestr(entry, random.choice((b"", b"{}", b"[" * 10**4, b"/etc/passwd", bytes(10**6))))
    return buffer.getvalue()


# --- profiles ---------------------------------------------------------------------------------------


def profiles(random: Random, folder: Path) -> str | None:
    """One profile, damaged: refused in a line, or its rows are sound."""
    content = random.choice(_profiles())
    if random.random() < 0.15:
        content = content.decode(errors="replace").encode("utf-16")
    file = folder / random.choice(("a.csv", "a.json", "a.txt", "a.sqlite", "a.nsys-rep", "é.jsonl"))
    file.write_bytes(damaged(random, content))
    for run in read_runs(RunFiles(file)) or ():
        rows_of(run)
    return None


@functools.cache
def _profiles() -> list[bytes]:
    """Tables, a database and a trace, as the tests of importers have them."""
    forms = [form for form, _ in made_up.FORMS.values()]
    texts = [made_up.TABLE, made_up.trace(), f"{made_up.NVTX}100.0,{made_up.DECODE}PushPop,:decode\n"]
    every = [*forms, *texts * 3, *[made_up.export()] * 4]
    return [each.encode() if isinstance(each, str) else each for each in every]
