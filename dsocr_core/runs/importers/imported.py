"""Files of other programs, read within bounds and strictly; the run made of them; the report of an import.

A run's id is a hash of the files that were taken, each under the name of what it is and not of where it lay,
so the same content is the same run wherever it comes from, today and after the importers change.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import pyarrow as pa
import yaml

from dsocr_core.base.bounded_json import InvalidFile, parse_json, read_bytes
from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.sanitise import without_surrogates
from dsocr_core.reading.parity_records import RULE
from dsocr_core.runs.record import RunRecord, Source
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.schema import rows_to_table

Row = Mapping[str, Any]
Tables = Mapping[str, Sequence[Row] | pa.Table]
MIB = 1024 * 1024
TABLE_LIMIT, _YAML_LIMIT = 96 * MIB, 4 * MIB
FAULTS = (DsocrError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError, pa.ArrowException)
"""Errors that values of a wrong form bring about."""


# --- contents ---------------------------------------------------------------------------------------


@contextmanager
def opened(file: Path) -> Iterator[IO[bytes]]:
    """A regular file's content, unpacked where it is gzip. Raises InvalidFile, also where that is used."""
    try:
        if not file.is_file():  # a pipe would be waited for
            raise InvalidFile("not a regular file")
        with file.open("rb") as begin:
            packed = begin.read(2) == b"\x1f\x8b"
        with cast(IO[bytes], gzip.open(file) if packed else file.open("rb")) as handle:
            yield handle
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidFile(f"cannot be read, or not a whole gzip file ({one_line(error)})") from error


def as_text(content: bytes, strictly: bool = True) -> str:
    """UTF-8, or UTF-16 with its mark, as text. Raises InvalidFile where it is to be text strictly."""
    encoding = "utf-16" if content[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = content.decode(encoding, "strict" if strictly else "replace").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise InvalidFile(f"not UTF-8 text (byte {error.start})") from error
    if strictly and "\0" in text:
        raise InvalidFile("not text: it holds zero bytes")
    return text


def as_yaml(text: str) -> dict[str, Any]:
    """A YAML mapping as values that JSON has, dates as texts. Raises InvalidFile; aliases are refused."""
    try:
        # An alias makes one node appear twice, and twice again inside that: a few lines become gigabytes.
        events = yaml.parse(text[:_YAML_LIMIT], Loader=yaml.SafeLoader)
        if len(text) > _YAML_LIMIT or any(isinstance(event, yaml.AliasEvent) for event in events):
            raise InvalidFile(f"YAML with aliases, or of more than {_YAML_LIMIT:,} characters")
        found = json.dumps(yaml.safe_load(text), ensure_ascii=False, default=str)
        return parse_json(without_surrogates(found))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise InvalidFile(f"not YAML that is read ({one_line(error, 200)})") from error


def digest(content: bytes | Path) -> str:
    """SHA-256 of a content, or of a file that is too large for memory."""
    with io.BytesIO(content) if isinstance(content, bytes) else content.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def moment_of(text: str) -> str:
    """A time in ISO 8601 in UTC, which it is in where it names no zone. Raises ValueError, OverflowError."""
    moment = datetime.fromisoformat(text)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()


def stamp_in(text: str) -> dict[str, str]:
    """The time of a folder's name YYYYMMDD-HHMMSS as `created`, taken as UTC; nothing where there is none."""
    for stamp in re.findall(r"(?<!\d)\d{8}-\d{6}(?!\d)", text):
        with suppress(ValueError):
            return {"created": moment_of(stamp.replace("-", "T"))}
    return {}


def shared_folders(folders: Iterable[tuple[str, ...]]) -> int:
    """Count the folders that all of these paths have in common at their begin."""
    same = [len({*names}) == 1 for names in zip(*folders, strict=False)]
    return [*same, False].index(False)


# --- a run ------------------------------------------------------------------------------------------


class Skipped(NamedTuple):
    """A file that was not taken, and why."""

    path: Path
    reason: str


@dataclass
class RunFiles:
    """The files of one run: each is read once, and either taken with its digest or named with a reason."""

    place: Path  # the folder or the file that the run is in
    digests: dict[str, str] = field(default_factory=dict)  # files that were taken, by what they are
    paths: dict[str, Path] = field(default_factory=dict)  # their paths
    skipped: list[Skipped] = field(default_factory=list)
    seen: set[Path] = field(default_factory=set)  # files that were taken, or named in `skipped`
    whole: bool = False  # all that the folder holds is of its run

    def take(
        self, role: str, file: Path, parse: Callable[[str], Any], table: str = "", limit: int = TABLE_LIMIT
    ) -> Any:
        """Parse a text, as rows of a table where it is named; None where it is refused, with the reason."""
        try:
            parsed = parse(as_text(content := read_bytes(file, limit)))
            if table:
                rows_to_table(table, "checked", parsed)
        except FAULTS as error:
            named = isinstance(error, DsocrError)
            self.skip(file, str(error) if named else f"not what such a file holds ({one_line(error, 200)})")
            return None
        self.keep(role, file, content)
        return parsed

    def keep(self, role: str, file: Path, content: bytes) -> None:
        self.digests[role], self.paths[role] = digest(content), file
        self.seen.add(file)

    def skip(self, file: Path, reason: str) -> None:
        self.seen.add(file)
        self.skipped.append(Skipped(file, reason))

    def run(
        self, source: Source, tables: Tables, notes: str, dated: Path | None = None, **more: Any
    ) -> ImportedRun:
        """The run of these files; where `created` is not known, by a file's time, which its notes say."""
        if "created" not in more:
            moment = datetime.fromtimestamp((dated or self.place).stat().st_mtime, UTC)
            more["created"] = moment.isoformat(timespec="seconds")
            notes = f"{notes} The time is the file's: the run's own is not known.".strip()
        canonical = json.dumps({"source": source, "files": self.digests}, sort_keys=True, ensure_ascii=True)
        run_id = f"{source}-{digest(canonical.encode())[:24]}"
        record = RunRecord(id=run_id, source=source, notes=notes or None, **more)
        return ImportedRun(record, self.place, {name: rows for name, rows in tables.items() if len(rows)})


@dataclass(frozen=True)
class ImportedRun:
    """One run found in foreign files."""

    record: RunRecord
    path: Path  # the folder or file it was found in
    tables: Tables
    files: Mapping[str, Path] = field(default_factory=dict)
    """Files that are copied into the run, by their place in it."""
    parity_rule: int = RULE

    def write(self, writer: RunDirectory) -> None:
        """Write the run, or nothing of it. Raises DsocrError, OSError, ArrowException."""
        try:
            with writer:
                writer.parity_rule = self.parity_rule
                for table, rows in self.tables.items():
                    writer.add_rows(table, rows)
                for place, file in self.files.items():
                    target = writer.directory / place
                    target.parent.mkdir(parents=True, exist_ok=True)
                    target.write_bytes(read_bytes(file, TABLE_LIMIT))
        except BaseException:
            shutil.rmtree(writer.directory, ignore_errors=True)
            raise


class FoundRun(NamedTuple):
    """A run that an import found."""

    run_id: str
    source: str
    origin: Path


@dataclass
class ImportReport:
    """Outcome of everything under the given paths."""

    imported: list[FoundRun] = field(default_factory=list)
    known: list[FoundRun] = field(default_factory=list)  # runs that the history had before
    skipped: list[Skipped] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return {
            state: [
                {name: without_surrogates(str(value)) for name, value in each._asdict().items()}
                for each in found
            ]
            for state, found in vars(self).items()
        }
