"""Form in which an importer gives foreign files, before it is written: a record, rows and pictures.

The run's id is a hash of the files that were taken, each under the name of what it is and not of where it
lay, so the same content is the same run wherever it comes from, today and after the importers change.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.runs.importers.reading import PICTURE_LIMIT
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.writer import RunWriter

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Skipped:
    """A file that was not taken, and why."""

    path: Path
    reason: str
    kind: str = ""
    """The source of the run that it is part of, empty for a stranger."""


@dataclass(frozen=True)
class ImportedRun:
    """One run found in foreign files."""

    record: RunRecord
    origin: Path
    """The folder or file it was found in."""
    tables: Mapping[str, Sequence[Row] | pa.Table]
    files: Mapping[str, bytes | Path] = field(default_factory=dict)
    """Files kept with the run by their place in it: a content, or the file it is copied from."""
    skipped: tuple[Skipped, ...] = ()
    """Files of the run's own folder that were not taken."""
    looked_at: frozenset[Path] = frozenset()
    """Files of the run's own folder that were taken, or named in `skipped`."""


class EmptyImport(InvalidFile):
    """A folder of which nothing could be taken, with the reasons for its files."""

    def __init__(self, reason: str, skipped: Iterable[Skipped]) -> None:
        super().__init__(reason)
        self.skipped = tuple(skipped)


def put(run: ImportedRun, writer: RunWriter) -> None:
    """Give a writer everything of a run. Raises DsocrError, OSError."""
    for table, rows in run.tables.items():
        writer.add(table, rows)
    for place, content in run.files.items():
        target = writer.directory / place
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, Path):
            content = read_bytes(content, PICTURE_LIMIT)
        target.write_bytes(content)


def content_id(source: str, digests: Mapping[str, str]) -> str:
    """The id of a run from the SHA-256 of each file taken, by what the file is."""
    canonical = json.dumps({"source": source, "files": dict(digests)}, sort_keys=True, ensure_ascii=True)
    return f"{source}-{hashlib.sha256(canonical.encode()).hexdigest()[:24]}"
