"""Files of a run as an importer takes them, the run that it makes of them, and the report of an import.

The run's id is a hash of the files that were taken, each under the name of what it is and not of where it
lay, so the same content is the same run wherever it comes from, today and after the importers change.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.base.sanitise import paired
from dsocr_core.runs.importers.reading import FILE_TIME_NOTE, TABLE_LIMIT, as_text, digest, file_time
from dsocr_core.runs.record import RunRecord, Source
from dsocr_core.runs.run_directory import RunDirectory

Row = Mapping[str, Any]
Parsed = TypeVar("Parsed")
WORDS = {
    "dsocr": "runs of this project",
    "llm-perf-opt": "runs of llm-perf-opt",
    "nsys": "profiles of Nsight Systems",
    "ncu": "profiles of Nsight Compute",
    "torch": "profiles of torch.profiler",
    "sweep": "analytic sweeps",
}
"""Sources of runs in words."""


@dataclass(frozen=True)
class Skipped:
    """A file that was not taken, and why."""

    path: Path
    reason: str


@dataclass
class RunFiles:
    """The files of one run: each is read once, and either taken with its digest or named with a reason."""

    place: Path
    """The folder or the file that the run is in."""
    digests: dict[str, str] = field(default_factory=dict)
    """Files that were taken, by what they are."""
    paths: dict[str, Path] = field(default_factory=dict)
    """The same files."""
    skipped: list[Skipped] = field(default_factory=list)
    seen: set[Path] = field(default_factory=set)
    """Files that were taken, or named in `skipped`."""

    def take(self, role: str, file: Path, parse: Callable[[str], Parsed], limit: int) -> Parsed | None:
        """Parse a text; None where it is refused, with the reason in `skipped`."""
        self.seen.add(file)
        try:
            content = read_bytes(file, limit)
            parsed = parse(as_text(content))
        except InvalidFile as error:
            self.skip(file, str(error))
            return None
        self.digests[role], self.paths[role] = digest(content), file
        return parsed

    def skip(self, file: Path, reason: str) -> None:
        self.seen.add(file)
        self.skipped.append(Skipped(file, reason))

    def content_id(self, source: str) -> str:
        """The id of a run from the SHA-256 of each file taken, by what the file is."""
        canonical = json.dumps({"source": source, "files": self.digests}, sort_keys=True, ensure_ascii=True)
        return f"{source}-{digest(canonical.encode())[:24]}"

    def profile(self, source: Source, notes: str, tables: Tables, **more: Any) -> ImportedRun:
        """The run of a profile that knows its file alone: by its time, with notes that say so."""
        backends = (source,) if "timings" in tables else ()
        record = RunRecord(
            id=self.content_id(source), created=file_time(self.place), source=source, profiled=True,
            notes=f"{notes} {FILE_TIME_NOTE}", backends=backends, **more,
        )  # fmt: skip
        return ImportedRun(record, self.place, tables)

    @property
    def name(self) -> str:
        return paired(self.place.name)[:200]


Tables = Mapping[str, Sequence[Row] | pa.Table]


@dataclass(frozen=True)
class ImportedRun:
    """One run found in foreign files."""

    record: RunRecord
    origin: Path
    """The folder or file it was found in."""
    tables: Tables
    files: Mapping[str, bytes | Path] = field(default_factory=dict)
    """Files kept with the run by their place in it: a content, or the file it is copied from."""

    def write(self, writer: RunDirectory) -> None:
        """Write the run, or nothing of it. Raises DsocrError, OSError, ArrowException."""
        try:
            with writer:
                for table, rows in self.tables.items():
                    writer.add_rows(table, rows)
                for place, content in self.files.items():
                    target = writer.directory / place
                    target.parent.mkdir(parents=True, exist_ok=True)
                    whole = read_bytes(content, TABLE_LIMIT) if isinstance(content, Path) else content
                    target.write_bytes(whole)
        except BaseException:
            shutil.rmtree(writer.directory, ignore_errors=True)
            raise


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

    def document(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        runs = {
            state: [asdict(run) | {"origin": paired(str(run.origin))} for run in found]
            for state, found in (("imported", self.imported), ("known", self.known))
        }
        skipped = [{"path": paired(str(item.path)), "reason": item.reason} for item in self.skipped]
        return {**runs, "skipped": skipped}
