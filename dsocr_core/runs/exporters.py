"""`history export`: chosen runs as Parquet, as CSV, or as a zip that `history import` takes elsewhere.

Parquet and zip hold exactly what the history holds. CSV is for spreadsheets, which run a cell that begins
like a formula; there such a text gets an apostrophe in front, because page texts come from strangers.
"""

from __future__ import annotations

import contextlib
import csv
import os
import secrets
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import IO, Any, Literal, get_args

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.visible import json_bytes
from dsocr_core.reading.artifacts import PREDICTIONS
from dsocr_core.reading.spreadsheet import csv_cell
from dsocr_core.runs.record import RunRecord, time_of
from dsocr_core.runs.schema import TABLES, VIEWS, relation
from dsocr_core.runs.store import History

Form = Literal["parquet", "csv", "zip"]
FORMS: tuple[Form, ...] = get_args(Form)
RUNS = "runs"
"""Name of the table of records beside those of `schema.TABLES`."""

_RECORD_COLUMNS = tuple(item.name for item in fields(RunRecord))
_NESTED = ("backends", "versions", "settings", "environment")
_MADE = {"run.json", PREDICTIONS, f"vendor/{PREDICTIONS}", *(f"{name}.parquet" for name in TABLES)}
"""Files of a run that the import makes from its record and tables."""

_ZIP_START, _ZIP_END = (1980, 1, 1, 0, 0, 0), (2107, 12, 31, 23, 59, 58)


class ExportError(DsocrError):
    """Runs could not be exported; names the target and the cause."""


@dataclass(frozen=True)
class ExportReport:
    """Report of what was written."""

    target: Path
    runs: int
    rows: dict[str, int]
    """Rows of each table."""


def export_runs(history: History, run_ids: Iterable[str], target: Path, form: Form) -> ExportReport:
    """Write runs of a history to `target`, a new folder (Parquet, CSV) or a new file (zip).

    The target appears when it is whole. Raises HistoryError for a run there is not, ExportError when the
    target is there already or cannot be written.
    """
    records = [history.record(run_id) for run_id in dict.fromkeys(run_ids)]
    if not records:
        raise ExportError("no runs to export; name one or more")
    with _new(target) as temporary:
        if form == "zip":
            rows = _zip(history, records, temporary)
        elif form == "csv":
            rows = _csv(history, records, temporary)
        elif form == "parquet":
            rows = _parquet(history, records, temporary)
        else:
            raise ExportError(f"form '{form}': give one of {', '.join(FORMS)}")
    return ExportReport(target, len(records), rows)


@contextmanager
def _new(target: Path) -> Iterator[Path]:
    """A temporary name beside the target that becomes the target in the end."""
    temporary = target.with_name(f".part-{secrets.token_hex(8)}")
    try:
        if target.exists() or target.is_symlink():
            raise ExportError(f"{target}: is there already; give another name")
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        temporary.rename(target)
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        number = getattr(error, "errno", None)
        cause = os.strerror(number) if number else one_line(error)  # pyarrow's words are a paragraph
        raise ExportError(f"{target}: could not be written ({cause})") from error
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        with contextlib.suppress(OSError, ValueError):
            temporary.unlink()


def record_table(records: Sequence[RunRecord]) -> pa.Table:
    """Records as a table; settings and the like as JSON text."""
    columns: dict[str, list[Any]] = {name: [] for name in _RECORD_COLUMNS}
    for record in records:
        for name, values in columns.items():
            value = getattr(record, name)
            values.append(json_bytes(value).decode() if name in _NESTED else value)
    flags = ("profiled", "git_dirty")
    return pa.table(
        {
            name: pa.array(values, pa.bool_() if name in flags else pa.string())
            for name, values in columns.items()
        }
    )


def _parquet(history: History, records: Sequence[RunRecord], folder: Path) -> dict[str, int]:
    folder.mkdir()
    pq.write_table(record_table(records), folder / f"{RUNS}.parquet", compression="zstd")
    counts = {RUNS: len(records)}
    writers: dict[str, pq.ParquetWriter] = {}
    try:
        for record in records:
            for name, table in history.tables(record.id).items():
                if name not in writers:
                    file = folder / f"{name}.parquet"
                    writers[name] = pq.ParquetWriter(file, TABLES[name], compression="zstd")
                writers[name].write_table(table)
                counts[name] = counts.get(name, 0) + len(table)
    finally:
        for writer in writers.values():
            writer.close()
    return counts


def _csv(history: History, records: Sequence[RunRecord], folder: Path) -> dict[str, int]:
    folder.mkdir()
    counts = {RUNS: _append_csv(folder / f"{RUNS}.csv", record_table(records))}
    for record in records:
        for name, table in flat(history.tables(record.id)).items():
            counts[name] = counts.get(name, 0) + _append_csv(folder / f"{name}.csv", table)
    return counts


def flat(tables: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
    """Tables as a spreadsheet can hold them: of readings and times the views."""
    found = {name: table for name, table in tables.items() if name not in ("readings", "timings")}
    with duckdb.connect(":memory:") as connection:
        for view, (name, _) in VIEWS.items():
            if name in tables:
                connection.register("given", tables[name])
                made: pa.Table = connection.sql(f"FROM {relation(view, 'given')}").to_arrow_table()
                found |= {view: made} if len(made) else {}
    return found


def _append_csv(file: Path, table: pa.Table) -> int:
    new = not file.exists()
    with file.open("a", encoding="utf-8", newline="") as handle:
        writer = csv.writer(handle)
        if new:
            writer.writerow(table.column_names)
        for batch in table.to_batches(max_chunksize=10_000):
            writer.writerows([csv_cell(value) for value in row.values()] for row in batch.to_pylist())
    return len(table)


def _zip(history: History, records: Sequence[RunRecord], file: Path) -> dict[str, int]:
    counts = {RUNS: len(records)}
    with file.open("xb") as handle, zipfile.ZipFile(handle, "w", zipfile.ZIP_DEFLATED) as archive:
        for record in records:
            tables = history.tables(record.id)
            document = record.to_json() | {"tables": {name: len(table) for name, table in tables.items()}}
            with _entry(archive, record, "run.json") as entry:
                entry.write(json_bytes(document, indent=1) + b"\n")
            for name, table in tables.items():
                with _entry(archive, record, f"{name}.parquet") as entry:
                    pq.write_table(table, entry, compression="zstd")
                counts[name] = counts.get(name, 0) + len(table)
            for name in sorted(set(history.file_names(record.id)) - _MADE):
                source = history.file(record.id, name)
                with _entry(archive, record, name) as entry, source.open("rb") as content:
                    shutil.copyfileobj(content, entry)
    return counts


def _entry(archive: zipfile.ZipFile, record: RunRecord, name: str) -> IO[bytes]:
    moment = time_of(record.created).timetuple()[:6]
    info = zipfile.ZipInfo(f"{record.id}/{name}", min(max(moment, _ZIP_START), _ZIP_END))
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o100644 << 16
    return archive.open(info, "w", force_zip64=True)
