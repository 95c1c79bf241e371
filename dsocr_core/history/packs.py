"""The document of a pack, a line a run, and what can still be read of a pack that is damaged.

A pack holds many runs: a damage costs those whose lines or rows it hit, not the others.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dsocr_core.history.record import RecordError, json_bytes, read_document
from dsocr_core.history.schema import SCHEMA_VERSION

_DIGEST = "sha256"
"""Of a run's line, its own digest left out."""


def pack_document(runs: Iterable[Mapping[str, Any]]) -> bytes:
    """`pack.json` of these documents of runs."""
    lines = b",\n".join(json_bytes({**run, _DIGEST: _digest(run)}) for run in runs)
    return b'{"schema_version": %d, "runs": [\n%s\n]}\n' % (SCHEMA_VERSION, lines)


def whole_lines(content: bytes) -> list[dict[str, Any]]:
    """The documents of runs in a damaged `pack.json` that are as they were written."""
    found = []
    for line in content.split(b"\n"):
        try:
            run = read_document(line.removesuffix(b","))
        except RecordError:
            continue
        if run.pop(_DIGEST, None) == _digest(run):
            found.append(run)
    return found


def _digest(run: Mapping[str, Any]) -> str:
    return hashlib.sha256(json_bytes({**run})).hexdigest()


def whole_groups(file: Path) -> pa.Table:
    """The rows of a damaged table that lie in row groups without damage. Raises ArrowException, OSError."""
    with pq.ParquetFile(file, page_checksum_verification=True) as parquet:
        groups = []
        for number in range(parquet.metadata.num_row_groups):
            try:
                groups.append(parquet.read_row_group(number))
            except (pa.ArrowException, OSError, ValueError, MemoryError):
                continue
        return pa.concat_tables(groups) if groups else parquet.schema_arrow.empty_table()


def whole_runs(table: pa.Table, rows: Mapping[str, int]) -> set[str]:
    """Of the runs with so many rows, those that have all of them."""
    counted = pc.value_counts(table["run_id"]).to_pylist() if len(table) else []
    counts = {each["values"]: each["counts"] for each in counted}
    return {run_id for run_id, count in rows.items() if counts.get(run_id, 0) == count}
