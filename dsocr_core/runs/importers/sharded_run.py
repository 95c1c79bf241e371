"""The output of a run over a cluster, once it is complete, as one run of the history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pyarrow as pa
import pyarrow.compute as pc

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.base.errors import DsocrError
from dsocr_core.runs.importers.imported import ImportedRun
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.rows import timing_rows
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.schema import check_version
from dsocr_core.runs.sharded import COMPLETE, RUN, PageReading, ShardedRun, readings_table

MOST_PAGES = 200_000
"""Pages of a run of the history: its readings are held in memory while they are written."""


def is_sharded_run(directory: Path) -> bool:
    return (directory / RUN).is_file() and (directory / "done").is_dir()


def take_sharded_run(location: str, root: Path) -> str:
    """Write the run of an output into a history; its id. Raises DsocrError."""
    found = read_sharded_run(location)
    with RunDirectory.create(root, found.record) as writer:
        for name, rows in found.tables.items():
            writer.add_rows(name, rows)
    return found.record.id


def read_sharded_run(location: str) -> ImportedRun:
    """The run of an output, its pages named by their path in the common folder. Raises InvalidFile."""
    try:
        run = ShardedRun(location)
        document = run.run()
        check_version(document)
        record = RunRecord.from_json(document)
        markers = sorted(run.markers(run.marker_names().values()), key=lambda marker: marker.index)
        planned = (run.document(COMPLETE) or {}).get("pages")
        found = sum(marker.pages for marker in markers)
        if found != planned or found > MOST_PAGES:
            known = "" if planned is None else f" of {planned:,}"
            raise InvalidFile(
                f"{found:,}{known} pages are read; taken are complete outputs of {MOST_PAGES:,} at most"
            )
        pages = [page for marker in markers for page in run.pages(marker)]
    except InvalidFile:
        raise
    except (DsocrError, LookupError, TypeError, ValueError) as error:
        raise InvalidFile(" ".join(str(error).split())[:300]) from error
    named = _named(pages)
    readings = readings_table(named)
    at = readings.schema.get_field_index("backend")
    backend = pc.fill_null(readings["backend"], next(iter(record.backends), "unknown"))
    readings = readings.set_column(at, readings.schema.field(at), backend)
    tables: dict[str, Sequence[object] | pa.Table] = {
        "readings": readings.drop_columns("run_id"), "timings": timing_rows(readings)
    }  # fmt: skip
    return ImportedRun(record, Path(location), tables)


def _named(pages: Sequence[PageReading]) -> list[PageReading]:
    folders = [PurePosixPath(page.path).parent.parts for page in pages]
    shared = 0
    for parts in zip(*folders, strict=False):
        if len(set(parts)) > 1:
            break
        shared += 1
    ways = (PurePosixPath(*PurePosixPath(page.name).parts[shared:]).as_posix() for page in pages)
    return [replace(page, name=way) for page, way in zip(pages, ways, strict=True)]
