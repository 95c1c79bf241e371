"""The history's DuckDB file: made from the runs' Parquet, replaced as a whole, open only for reading.

    <cache>/index/<roots>/history.duckdb

What comes or goes is added to a copy, under a lock, which is then renamed: a file never changes, so everybody
has it open read-only, and whoever has an earlier one reads on. It may be deleted at any time, and a damaged
one is made anew. Where the cache takes no file, it lies in a temporary directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.temporary import Temporary
from dsocr_core.base.uses import Uses
from dsocr_core.reading.parity_records import RULE
from dsocr_core.runs.ingest import CREATE, VIEWS, Run, forget, ingest, insert, read_run
from dsocr_core.runs.queries.query import literal
from dsocr_core.runs.record import RecordError, read_document
from dsocr_core.runs.schema import SCHEMA_VERSION
from dsocr_core.runs.storage import EntryGone, NoRoom, Storage, Version

log = logging.getLogger(__name__)

_PATIENCE_S, _LOOK_S = 120.0, 0.02
"""Seconds that another process may write before this one makes a file for itself."""
_UNUSED_S = 30 * 86_400
"""After so long the file of other roots is deleted."""
_MOST_LATER = 500
"""Annotation files beside those that the file holds; with more it is written again."""
_TOGETHER = 250
"""Runs whose files are read at a time."""

At = tuple[int, str]
"""Number of a root, and a version there; or a name there."""


@dataclass(frozen=True)
class Listing:
    """Listing of the roots, by number; a run that lies in two counts in the first."""

    runs: Mapping[str, At]
    notes: Mapping[At, str]
    """Versions of annotation files."""
    seen: Sequence[Mapping[str, Version]]

    @classmethod
    def of(cls, roots: Sequence[Storage], before: Listing | None = None) -> Listing:
        """`before`: folders that did not change since are not looked into. Raises StorageError."""
        runs: dict[str, At] = {}
        notes: dict[At, str] = {}
        seen = [root.versions(before.seen[number] if before else {}) for number, root in enumerate(roots)]
        for number, root in enumerate(roots):
            for name, (_, version) in seen[number].items():
                runs.setdefault(name, (number, version))
            notes |= {(number, name): version for name, version in root.annotation_versions().items()}
        return cls(runs, notes, seen)


@dataclass(frozen=True)
class Entry:
    """A run that can be asked for."""

    id: str
    root: int
    version: str
    tables: frozenset[str]
    """Tables it has rows of."""


class OpenFile:
    """The file as it is open for reading. Thread-safe."""

    def __init__(self, file: Path, roots: Sequence[Storage], uses: Uses) -> None:
        """`uses` are its owner's. Raises duckdb.Error for a damaged file."""
        self._uses, self._guard = uses, threading.Lock()
        self.inode = _inode(file)
        self._connection = duckdb.connect(":memory:")
        try:
            connect(self._connection, file)
            self._connection.execute("INSERT INTO annotations FROM ix.annotations")
            directories = [str(root.root) for root in roots]
            self._connection.execute("SET allowed_directories = $places", {"places": directories})
            self._connection.execute("SET enable_external_access = false")
            self._connection.execute("SET enable_progress_bar = false")
            self._load()
        except BaseException:
            self._connection.close()
            raise

    def _load(self) -> None:
        self.runs: dict[str, At] = {}
        self.entries: dict[str, Entry] = {}
        """Runs, oldest first."""
        self.damaged: dict[str, str] = {}
        with self.cursor() as cursor:
            rows = cursor.execute(
                "SELECT run_id, root, version, tables, damage, document IS NULL FROM entries "
                "ORDER BY created, run_id"
            ).fetchall()
            for run_id, root, version, tables, damage, copied in rows:
                self.runs[run_id] = (root, version)
                if damage is not None:
                    self.damaged[run_id] = damage
                elif not copied:
                    self.entries[run_id] = Entry(run_id, root, version, frozenset(tables))
            notes = cursor.execute("SELECT root, name, version, damage FROM annotation_files").fetchall()
            [[self.newest_note]] = cursor.execute(
                "SELECT coalesce(max(position), 0) FROM annotations"
            ).fetchall()
        self.notes = {(root, name): version for root, name, version, _ in notes}
        self.bad_notes = {name: damage for _, name, _, damage in notes if damage is not None}
        self._written = len(notes)

    @contextlib.contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection for one thread. Raises Closed."""
        with self._guard:
            self._uses.check()
            cursor = self._connection.cursor()
        with contextlib.closing(cursor), self._uses.use(cursor.interrupt):
            cursor.execute(SEARCH)
            yield cursor

    def annotations(self) -> pa.Table:
        """All rows of annotations."""
        with self.cursor() as cursor:
            rows: pa.Table = cursor.sql("FROM annotations").to_arrow_table()
            return rows

    def take_in(self, roots: Sequence[Storage], listing: Listing) -> bool:
        """Tell whether these runs are its own; new annotations it reads itself, up to a number."""
        if self.runs != listing.runs or any(listing.notes.get(file) != at for file, at in self.notes.items()):
            return False
        if len(listing.notes) - self._written > _MOST_LATER:
            return False
        if new := sorted(listing.notes.keys() - self.notes.keys()):
            rows, files = read_annotations(roots, listing, new)
            with self.cursor() as cursor:
                insert(cursor, "annotations", rows)
            for file in files:
                self.notes[file["root"], file["name"]] = file["version"]
                if file["damage"] is not None:
                    self.bad_notes[file["name"]] = file["damage"]
            self.newest_note = max(self.newest_note, *(row["position"] for row in rows), 0)
        return True

    def close(self) -> None:
        """Close the connection. Only when no cursor executes."""
        with self._guard:
            self._connection.close()


def _inode(file: Path) -> int | None:
    with contextlib.suppress(OSError):
        return file.stat().st_ino
    return None


SEARCH = "SET search_path = 'memory.main,ix.main'"


def connect(connection: duckdb.DuckDBPyConnection, file: Path) -> None:
    """Open a file for reading, with its views; `annotations` are to come. Raises duckdb.Error."""
    attach(connection, file)
    connection.execute(SEARCH)
    connection.execute("CREATE TABLE annotations AS FROM ix.annotations LIMIT 0")
    connection.execute(VIEWS)


def attach(connection: duckdb.DuckDBPyConnection, file: Path, read_only: bool = True) -> None:
    """Open a file in a connection, as `ix`. Raises duckdb.Error."""
    connection.execute(f"ATTACH {literal(str(file))} AS ix{' (READ_ONLY)' if read_only else ''}")


class HistoryFile:
    """The file of some roots in a cache; `close` deletes what lies in a temporary directory."""

    def __init__(self, roots: Sequence[Storage], cache: Path, uses: Uses) -> None:
        self._roots, self._uses = roots, uses
        form = [str(root.root) for root in roots], CREATE, SCHEMA_VERSION, RULE, duckdb.__version__
        name = hashlib.sha256(json.dumps(form).encode()).hexdigest()[:16]
        self._folder, self._temporary = cache / "index" / name, None

    _temporary: Temporary | None

    @property
    def path(self) -> Path:
        """The file."""
        return self._folder / "history.duckdb"

    def close(self) -> None:
        """Delete a temporary directory."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def current(self, listing: Listing, known: OpenFile | None = None) -> OpenFile:
        """The file with what is listed or came since; made, or brought up to date, where it is not.

        `known` is the file as it was opened before, and is opened anew where another one took its place.

        Raises StorageError where the roots cannot be listed, duckdb.Error where no file can be made at all.
        """
        found = self._opened(known)
        if found is not None and found.take_in(self._roots, listing):
            with contextlib.suppress(OSError):
                os.utime(self._folder)
            return found
        while True:
            try:
                with self._lock():
                    return self._updated(listing, found)
            except OSError as error:
                cause = getattr(error, "strerror", None) or one_line(error)
                try:
                    if self._temporary is not None:
                        raise
                    self._temporary = Temporary("index")
                except OSError:
                    words = f"no temporary file can be written for the history ({cause})"
                    raise NoRoom(words) from error
                _warn(
                    f"{self._folder}: no index can be written ({cause}); a temporary file is used, as "
                    "DSOCR_CACHE names no folder that takes one"
                )
                self._folder, found = Path(self._temporary.name), None

    def discard(self) -> None:
        """Delete a file that turned out to be damaged."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _opened(self, known: OpenFile | None) -> OpenFile | None:
        """The file as it is; None where there is none that can be read."""
        if (inode := _inode(self.path)) is None:
            return None
        if known is not None and known.inode == inode:
            return known
        try:
            return OpenFile(self.path, self._roots, self._uses)
        except (duckdb.Error, ValueError, TypeError):
            self._uses.check()  # an interruption says nothing about the file
            self.discard()
            return None

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Until the end of the block, or of the process. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with (self._folder / "lock").open("ab") as handle:
            until = time.monotonic() + _PATIENCE_S
            while True:
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    self._uses.check()
                    if time.monotonic() > until:
                        raise
                    time.sleep(_LOOK_S)
            yield

    def _updated(self, listing: Listing, known: OpenFile | None) -> OpenFile:
        """Raises OSError, duckdb.Error."""
        listing = Listing.of(self._roots, listing)  # another process may have waited for the lock, too
        base = self._opened(known)
        if base is not None and base.take_in(self._roots, listing):
            return base
        if base is not None:
            with contextlib.suppress(duckdb.Error, OSError):
                return self._written(listing, base)
            self._uses.check()
            self.discard()  # a block of it may be damaged
        try:
            return self._written(listing, None)
        except duckdb.Error as error:
            self._uses.check()
            raise OSError(None, one_line(error)) from error

    def _written(self, listing: Listing, base: OpenFile | None) -> OpenFile:
        part = self.path.with_suffix(".tmp")
        parts = (part, part.with_name(f"{part.name}.wal"))
        try:
            for left in parts:  # of a process that was killed
                left.unlink(missing_ok=True)
            if base is not None:
                shutil.copyfile(self.path, part)
            connection = duckdb.connect(":memory:")
            with contextlib.closing(connection), self._uses.use(connection.interrupt):
                attach(connection, part, read_only=False)
                connection.execute("USE ix")
                if base is None:
                    connection.execute(CREATE)
                self._fill(connection, listing, base)
                connection.execute("USE memory")
                connection.execute("DETACH ix")  # which writes all of it into the file
            part.replace(self.path)
        finally:
            for left in parts:
                with contextlib.suppress(OSError):
                    left.unlink(missing_ok=True)
        if self._temporary is None:
            _delete_unused(self._folder.parent)
        return OpenFile(self.path, self._roots, self._uses)

    def _fill(self, connection: duckdb.DuckDBPyConnection, listing: Listing, base: OpenFile | None) -> None:
        was = base.runs if base else {}
        if gone := [run_id for run_id, at in was.items() if listing.runs.get(run_id) != at]:
            connection.execute("BEGIN")
            forget(connection, gone)
            connection.execute("COMMIT")
        new = [(name, at) for name, at in sorted(listing.runs.items()) if was.get(name) != at]
        for start in range(0, len(new), _TOGETHER):
            runs = list[Run]()
            for name, (root, version) in new[start : start + _TOGETHER]:
                self._uses.check()
                with contextlib.suppress(EntryGone):  # removed just now
                    runs.append(read_run(self._roots[root], root, name, version))
            ingest(connection, runs)
        self._fill_annotations(connection, listing)

    def _fill_annotations(self, connection: duckdb.DuckDBPyConnection, listing: Listing) -> None:
        known = connection.execute("SELECT root, name, version FROM annotation_files").fetchall()
        had = {(root, name): version for root, name, version in known}
        anew = any(listing.notes.get(file) != version for file, version in had.items())
        if anew:
            connection.execute("DELETE FROM annotations; DELETE FROM annotation_files")
        wanted = [file for file in sorted(listing.notes) if anew or file not in had]
        rows, files = read_annotations(self._roots, listing, wanted)
        insert(connection, "annotations", rows)
        insert(connection, "annotation_files", files)


Row = dict[str, Any]


def read_annotations(
    roots: Sequence[Storage], listing: Listing, names: Sequence[At]
) -> tuple[list[Row], list[Row]]:
    """Rows of annotation files, and a row for each file; of one that cannot be read why."""
    rows, files = list[Row](), list[Row]()
    for root, name in names:
        damage = None
        try:
            content = roots[root].annotation(name)
            if content is None:  # removed just now
                continue
            rows += _annotation_rows(name, content)
        except DsocrError as error:
            damage = str(error)
        version = listing.notes[root, name]
        files.append({"root": root, "name": name, "version": version, "damage": damage})
    return rows, files


def annotation_name(time_ns: int, content: bytes) -> str:
    """Name a new annotation file, by its time and a digest of its content."""
    return f"{time_ns:020d}-{hashlib.sha256(content).hexdigest()[:20]}.json"


_NAME = re.compile(r"([0-9]{20})-[0-9a-f]{20}\.json")


def _annotation_rows(name: str, content: bytes) -> list[Row]:
    """The rows of an annotation file. Raises RecordError on a damaged or foreign one."""
    found = _NAME.fullmatch(name)
    if found is not None and annotation_name(int(found[1]), content) != name:
        raise RecordError("damaged: it is not what its name says was written")
    data = read_document(content)
    try:
        moment, rows = int(data["time_ns"]), []
        written = datetime.fromtimestamp(moment / 1e9, UTC).replace(tzinfo=None)
        for number, row in enumerate(data["rows"]):
            values = {column: row.get(column) for column in ("run_id", "kind", "page", "name", "value")}
            if not all(value is None or isinstance(value, str) for value in values.values()):
                raise TypeError("a value is not text")
            rows.append(values | {"position": moment + number, "time": written})
        return rows
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError, OSError) as error:
        raise RecordError(f"annotation file: {str(error)[:80]}") from error


def _delete_unused(parent: Path) -> None:
    """The files of roots that nobody opened for long, and of earlier forms."""
    with contextlib.suppress(OSError):
        for folder in parent.iterdir():
            if folder.stat().st_mtime < time.time() - _UNUSED_S:
                shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _warn(words: str) -> None:
    """Say it once."""
    log.warning("%s", words)
