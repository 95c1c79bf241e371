"""Form in which an importer gives foreign files, before they are written, and the report of an import.

The run's id is a hash of the files that were taken, each under the name of what it is and not of where it
lay, so the same content is the same run wherever it comes from, today and after the importers change.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.base.sanitise import paired
from dsocr_core.runs.importers.reading import FILE_TIME_NOTE, PICTURE_LIMIT, file_time
from dsocr_core.runs.record import RunRecord, Source
from dsocr_core.runs.run_directory import RunDirectory

Row = Mapping[str, Any]
WORDS = {
    "dsocr": "runs of this project",
    "llm-perf-opt": "runs of llm-perf-opt",
    "nsys": "profiles of Nsight Systems",
    "ncu": "profiles of Nsight Compute",
    "torch": "profiles of torch.profiler",
    "sweep": "analytic sweeps",
    "": "other files",
}
"""Sources of runs in words; what belongs to none of them comes last."""
_MOST_REASONS = 3


@dataclass(frozen=True)
class Skipped:
    """A file that was not taken, and why."""

    path: Path
    reason: str
    kind: str = ""
    """The source of the run that it is part of, empty for none."""


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


def write_run(run: ImportedRun, writer: RunDirectory) -> None:
    """Write a run, or nothing of it. Raises DsocrError, OSError, ArrowException."""
    try:
        with writer:
            for table, rows in run.tables.items():
                writer.add_rows(table, rows)
            for place, content in run.files.items():
                target = writer.directory / place
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(
                    read_bytes(content, PICTURE_LIMIT) if isinstance(content, Path) else content
                )
    except BaseException:
        shutil.rmtree(writer.directory, ignore_errors=True)
        raise


def content_id(source: str, digests: Mapping[str, str]) -> str:
    """The id of a run from the SHA-256 of each file taken, by what the file is."""
    canonical = json.dumps({"source": source, "files": dict(digests)}, sort_keys=True, ensure_ascii=True)
    return f"{source}-{hashlib.sha256(canonical.encode()).hexdigest()[:24]}"


def file_record(source: Source, digests: Mapping[str, str], file: Path, notes: str, **more: Any) -> RunRecord:
    """The record of a profile that knows its file alone: by its time, with notes that say so."""
    return RunRecord(
        id=content_id(source, digests), created=file_time(file), source=source, profiled=True,
        notes=f"{notes} {FILE_TIME_NOTE}", **more,
    )  # fmt: skip


# --- the report -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FoundRun:
    """A run that an import found."""

    run_id: str
    source: str
    origin: Path


@dataclass
class ImportReport:
    """Outcome of everything under the given paths."""

    imported: list[FoundRun] = field(default_factory=list)
    known: list[FoundRun] = field(default_factory=list)
    """Runs that the history had before."""
    skipped: list[Skipped] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Runs and files that are named."""
        return len(self.imported) + len(self.known) + len(self.skipped)

    def add(self, other: ImportReport, named: Callable[[Path], Path]) -> None:
        """Take over another report; `named` gives the names of its paths here."""
        self.imported += [replace(run, origin=named(run.origin)) for run in other.imported]
        self.known += [replace(run, origin=named(run.origin)) for run in other.known]
        self.skipped += [replace(item, path=named(item.path)) for item in other.skipped]

    def lines(self) -> list[str]:
        """A line for each source, in the order of `WORDS`; of many reasons the most frequent."""
        lines = []
        for source, words in WORDS.items():
            counts = [sum(run.source == source for run in runs) for runs in (self.imported, self.known)]
            counted = zip(counts, ("imported", "there already"), strict=True)
            parts = [f"{number} {word}" for number, word in counted if number]
            reasons = Counter(item.reason for item in self.skipped if item.kind == source)
            if count := reasons.total():
                most = reasons.most_common(_MOST_REASONS)
                more = count - sum(number for _, number in most)
                said = [f"{number} {reason}" for reason, number in most]
                said += [f"{more} for other reasons"] if more else []
                parts.append(f"{count} file{'s' if count != 1 else ''} not taken ({'; '.join(said)})")
            lines += [f"{words}: {', '.join(parts)}"] if parts else []
        return lines

    def document(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        imported, known = (
            [asdict(run) | {"origin": paired(str(run.origin))} for run in runs]
            for runs in (self.imported, self.known)
        )
        skipped = [{"path": paired(str(item.path)), "reason": item.reason} for item in self.skipped]
        return {"imported": imported, "known": known, "skipped": skipped}
