"""Recorded runs with damaged or foreign Parquet and JSON: it is named, and every other run opens."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.runs.history import History, check
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.run_directory import RunDirectory
from tests.hostile.damage import damaged

RUNS = ("run-0", "run-1")


def attempt(random: Random, folder: Path) -> str | None:
    """One file of one of two runs, damaged; the history opened. Raises DsocrError when it is refused."""
    root = folder / "history"
    write_runs(root)
    hit = random.choice(RUNS)
    (directory,) = [place for place in root.rglob(hit) if place.is_dir()]
    file = random.choice(sorted(path for path in directory.rglob("*") if path.is_file()))
    before = file.read_bytes()
    foreign = file.suffix == ".parquet" and random.random() < 0.3
    content = with_other_columns(random, before) if foreign else damaged(random, before)
    file.write_bytes(content)
    with History(root) as history:
        named = set(history.damaged())
        there = set(history.run_ids())
        history.query("runs")
        for run in sorted(there):
            history.tables(run)
        named |= set(history.damaged()) | {damage.entry for damage in check(history).damaged}
    if not set(RUNS) - {hit} <= there:
        return f"damage of {file.name} hides another run"
    if content != before and not any(hit in name for name in named) and file.name != "SHA256SUMS":
        return f"damage of {file.name} is not named: {sorted(named)}"
    return None


_TYPES = (
    pa.struct([("x", pa.int64()), ("x2", pa.string())]),
    pa.struct([("deep", pa.list_(pa.struct([("y", pa.bool_())])))]),
    pa.binary(), pa.binary(4), pa.large_binary(), pa.list_(pa.string()), pa.list_(pa.int8(), 2),
    pa.large_list(pa.list_(pa.float32())), pa.map_(pa.string(), pa.int64()), pa.null(), pa.bool_(),
    pa.decimal128(38, 9), pa.date32(), pa.time64("ns"), pa.timestamp("ns", "UTC"), pa.duration("s"),
    pa.uint64(), pa.dictionary(pa.int32(), pa.string()), pa.large_string(), pa.float16(),
)  # fmt: skip
"""Of columns that no version of this project wrote."""
_VALUES = (
    None, {"x": 1, "x2": "é"}, {"deep": [{"y": True}]}, b"\xff\x00ab", ["a"], [1, 2], [[1.5]], [("k", 1)],
    True, 7, "text", 2.5,
)  # fmt: skip


def with_other_columns(random: Random, content: bytes) -> bytes:
    """A table's Parquet with a column more, or one instead of its own, of a type that it never had."""
    table = pq.read_table(pa.BufferReader(content))
    for _ in range(random.randint(1, 3)):
        column = _column(random, random.choice(_TYPES), len(table))
        name = random.choice((*table.column_names, "run_id", "more", ""))
        if name in table.column_names and random.random() < 0.8:
            table = table.set_column(table.column_names.index(name), name, column)
        else:  # also a name twice
            table = table.append_column(name, column)
    written = pa.BufferOutputStream()
    try:
        pq.write_table(table, written)
    except pa.ArrowException:  # a type that Parquet does not have
        return content[:-1]
    taken: bytes = written.getvalue().to_pybytes()
    return taken


def _column(random: Random, kind: pa.DataType, rows: int) -> pa.Array:
    value = random.choice(_VALUES)
    try:
        return pa.array([value] * rows, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return pa.nulls(rows, kind)


def write_runs(root: Path) -> None:
    """Two runs, each with texts, numbers and lists of numbers."""
    for run_id in RUNS:
        record = RunRecord(
            id=run_id,
            created="2026-01-02T03:04:05+00:00",
            source="dsocr",
            backends=("eager",),
            engine="eager",
        )
        with RunDirectory.create(root, record) as run:
            row = {"page": "p", "backend": "eager", "text_raw": "text " * 20, "token_ids": list(range(50))}
            run.add_rows("readings", [row])
            run.add_rows("stage_timings", [{
                "page": "p", "stage": "decode", "milliseconds": 7.5, "backend": "eager",
                "inside_prefill": False, "aggregate": "page", "calls": 1,
            }])  # fmt: skip
