"""Foreign files, read within bounds and strictly; the run that is made of them; the report of an import.

A run's id is a hash of the files that were taken, each under the name of what it is and not of where it lay,
so the same content is the same run wherever it comes from, today and after the importers change.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar, cast

import pyarrow as pa
import yaml

from dsocr_core.base.bounded_json import InvalidFile, parse_json, plain_text, read_bytes
from dsocr_core.base.sanitise import paired
from dsocr_core.runs.record import RunRecord, Source
from dsocr_core.runs.run_directory import RunDirectory

Row = Mapping[str, Any]
Tables = Mapping[str, Sequence[Row] | pa.Table]
Parsed = TypeVar("Parsed")
MIB = 1024 * 1024
TEXT_LIMIT, TABLE_LIMIT, PICTURE_LIMIT = 4 * MIB, 96 * MIB, 64 * MIB
HEAD_BYTES = 64 * 1024
"""Bytes of a file that tell its form: what a profiled program printed comes before a table."""
UTF16 = (b"\xff\xfe", b"\xfe\xff")
FILE_TIME_NOTE = "The time is the file's: the run's own is not known."
_NUMBER_LIMIT, _COUNT_LIMIT = 1e18, 2**31


# --- reading ----------------------------------------------------------------------------------------


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
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InvalidFile(f"not a whole gzip file ({error})") from error
    except OSError as error:
        raise InvalidFile(f"cannot be read ({error.strerror})") from error


def head_of(file: Path) -> str:
    """Begin of a file as text. Raises InvalidFile."""
    with opened(file) as handle:
        start = handle.read(HEAD_BYTES)
    return start.decode("utf-16" if start[:2] in UTF16 else "utf-8-sig", errors="replace")


def as_text(content: bytes) -> str:
    """UTF-8, or UTF-16 with its mark, as text; see `plain_text`. Raises InvalidFile."""
    try:
        text = content.decode("utf-16").replace("\r\n", "\n") if content[:2] in UTF16 else plain_text(content)
    except UnicodeDecodeError as error:
        raise InvalidFile(f"not UTF-8 text (byte {error.start})") from error
    if "\0" in text:
        raise InvalidFile("not text: it holds zero bytes")
    return text


def as_json(text: str) -> Fields:
    """A JSON object of finite numbers. Raises InvalidFile; NaN, Infinity and repeated keys are refused."""
    data = parse_json(text, repeats=False)
    return _plain(data) if "\\u" in text else Fields(data)


def as_yaml(text: str) -> Fields:
    """A YAML mapping as plain values with text keys. Raises InvalidFile; aliases are refused."""
    try:
        # An alias makes one node appear twice, and twice again inside that: a few lines become gigabytes.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=yaml.SafeLoader)):
            raise InvalidFile("YAML with aliases is not read")
        return _plain(yaml.safe_load(text))
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise InvalidFile(f"not YAML that is read ({' '.join(str(error).split())[:200]})") from error


def _plain(data: Any) -> Fields:
    """Values that JSON has, with texts that can be encoded: dates as texts, half surrogates as "?"."""
    return Fields(parse_json(paired(json.dumps(data, ensure_ascii=False, default=str))))


class Fields(dict[str, Any]):
    """An object of a file. A field that is missing is None; one of another kind raises InvalidFile."""

    def __init__(self, data: object, name: str = "") -> None:
        if data is not None and not isinstance(data, dict):
            raise InvalidFile(f"{name} is not an object")
        super().__init__(data or {})
        self.name = name

    def number(self, key: str) -> float | None:
        """A number of 0 and more."""
        value = self._value(key, "a number", int, float)
        if value is not None and not 0 <= value <= _NUMBER_LIMIT:
            raise InvalidFile(f"{self._path(key)} is {value:g}: out of all bounds")
        return None if value is None else float(value)

    def whole(self, key: str) -> int | None:
        """A whole number of 0 and more."""
        value = self.number(key)
        if value is not None and (not value.is_integer() or value >= _COUNT_LIMIT):
            raise InvalidFile(f"{self._path(key)} is {value}: not a whole number below {_COUNT_LIMIT:,}")
        return None if value is None else int(value)

    def text(self, key: str) -> str | None:
        """A text; None for an empty one, too."""
        return self._value(key, "a text", str) or None

    def object(self, key: str) -> Fields:
        """An object, empty where it is missing."""
        return Fields(self.get(key), self._path(key))

    def objects(self, key: str) -> list[Fields]:
        """A list of objects, empty where it is missing."""
        values = self._value(key, "a list", list) or []
        return [Fields(value, f"{self._path(key)}[{place}]") for place, value in enumerate(values)]

    def _value(self, key: str, words: str, *kinds: type) -> Any:
        value = self.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, kinds)):
            raise InvalidFile(f"{self._path(key)} is not {words}")
        return value

    def _path(self, key: str) -> str:
        return f"{self.name}.{key}"[-200:].lstrip(".")


def digest(content: bytes | Path) -> str:
    """SHA-256 of a content, or of a file that is too large for memory. Raises InvalidFile."""
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    try:
        with content.open("rb") as handle:
            return hashlib.file_digest(handle, "sha256").hexdigest()
    except OSError as error:
        raise InvalidFile(f"cannot be read ({error.strerror})") from error


def file_time(file: Path) -> str:
    """Time at which a file was last written, ISO 8601 in UTC. Raises InvalidFile."""
    try:
        return datetime.fromtimestamp(file.stat().st_mtime, UTC).isoformat(timespec="seconds")
    except (OSError, OverflowError, ValueError) as error:
        raise InvalidFile(f"has no time ({error})") from error


def moment_of(text: str) -> datetime | None:
    """A time in ISO 8601 in UTC, which it is in where it names no zone; None for another text."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return None


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

    place: Path
    """The folder or the file that the run is in."""
    digests: dict[str, str] = field(default_factory=dict)
    """Files that were taken, by what they are."""
    paths: dict[str, Path] = field(default_factory=dict)
    """The same files."""
    skipped: list[Skipped] = field(default_factory=list)
    seen: set[Path] = field(default_factory=set)
    """Files that were taken, or named in `skipped`."""
    whole: bool = False
    """All that the folder holds is of its run."""

    def take(
        self, role: str, file: Path, parse: Callable[[str], Parsed], limit: int = TEXT_LIMIT
    ) -> Parsed | None:
        """Parse a text; None where it is refused, with the reason in `skipped`."""
        try:
            content = read_bytes(file, limit)
            parsed = parse(as_text(content))
        except InvalidFile as error:
            self.skip(file, str(error))
            return None
        self.keep(role, file, content)
        return parsed

    def keep(self, role: str, file: Path, content: bytes) -> None:
        self.digests[role], self.paths[role] = digest(content), file
        self.seen.add(file)

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


class FoundRun(NamedTuple):
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

    def document(self) -> dict[str, Any]:
        """The report as JSON-ready values."""
        return {
            state: [{name: paired(str(value)) for name, value in each._asdict().items()} for each in found]
            for state, found in vars(self).items()
        }
