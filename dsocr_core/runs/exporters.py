"""`history export`: chosen runs as a zip that `history import` takes elsewhere, with nothing left out."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pyarrow.parquet as pq

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.sanitise import json_bytes
from dsocr_core.reading.artifacts import PREDICTIONS
from dsocr_core.runs.history import History
from dsocr_core.runs.record import RunRecord, time_of
from dsocr_core.runs.schema import TABLES

RUNS = "runs"
"""Name under which a report counts the runs, beside the rows of their tables."""

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


def export_runs(history: History, run_ids: Iterable[str], target: Path) -> ExportReport:
    """Write runs of a history to `target`, a new zip.

    The target appears when it is whole. Raises HistoryError for a run there is not, ExportError when the
    target is there already or cannot be written.
    """
    records = [history.record(run_id) for run_id in dict.fromkeys(run_ids)]
    if not records:
        raise ExportError("no runs to export; name one or more")
    with _new(target) as temporary:
        rows = _zip(history, records, temporary)
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
        with contextlib.suppress(OSError, ValueError):
            temporary.unlink()


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
