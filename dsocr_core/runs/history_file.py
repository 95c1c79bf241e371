"""The history's DuckDB file: an index of the runs' Parquet, replaced as a whole, open only for reading.

    <cache>/index/<roots>/history.duckdb

What comes or goes is added to a copy, under a lock, which is then renamed: a file never changes, so everybody
has it open read-only, and whoever has an earlier one reads on. `index` may be deleted at any time, and a
damaged file is made anew. Where the cache takes no file, it lies in a temporary directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.paths import Temporary
from dsocr_core.base.uses import Uses
from dsocr_core.reading.parity_records import RULE
from dsocr_core.reading.writing import require_writable
from dsocr_core.runs import ingest
from dsocr_core.runs.ingest import Run
from dsocr_core.runs.queries.query import literal
from dsocr_core.runs.record import SCHEMA_VERSION
from dsocr_core.runs.storage import EntryGone, Storage, StorageError, Version, writing

log = logging.getLogger(__name__)

_LOOK_S = 0.02
"""Seconds between two looks whether another process still writes."""
_MOST_LATER = 500
"""Annotation files that the file does not hold; with more it is written again."""
_SEARCH = "SET search_path = 'memory.main,ix.main'"

At = tuple[int, str]
"""Number of a root, and a version there; or a name there."""


@dataclass(frozen=True)
class Listing:
    """Listing of the roots, by number; a run that lies in two counts in the first."""

    runs: Mapping[str, At]
    notes: Mapping[At, str]
    """Versions of annotation files."""
    versions: Sequence[Mapping[str, Version]]

    @classmethod
    def of(cls, roots: Sequence[Storage], before: Listing | None = None) -> Listing:
        """`before`: folders that did not change since are not looked into. Raises StorageError."""
        versions = [root.versions(before.versions[at] if before else {}) for at, root in enumerate(roots)]
        runs: dict[str, At] = {}
        notes: dict[At, str] = {}
        for number, root in enumerate(roots):
            for name, (_, version) in versions[number].items():
                runs.setdefault(name, (number, version))
            notes |= {(number, name): version for name, version in root.annotation_versions().items()}
        return cls(runs, notes, versions)


def connect(connection: duckdb.DuckDBPyConnection, file: Path) -> None:
    """Open a file for reading; its annotations are to come. Raises duckdb.Error."""
    connection.execute(f"ATTACH {literal(str(file))} AS ix (READ_ONLY); {_SEARCH}")


class OpenFile:
    """The file as it is open for reading. Thread-safe."""

    def __init__(self, file: Path, roots: Sequence[Storage], uses: Uses) -> None:
        """`uses` are its owner's. Raises duckdb.Error for a damaged file."""
        self._roots, self._uses, self._guard = roots, uses, threading.Lock()
        self.inode = _inode(file)
        self._connection = duckdb.connect(":memory:")
        try:
            connect(self._connection, file)
            self._connection.execute("CREATE TABLE annotations AS FROM ix.annotations")
            places = {"places": [str(root.root) for root in roots]}
            self._connection.execute("SET allowed_directories = $places", places)
            self._connection.execute("SET enable_external_access = false; SET enable_progress_bar = false")
            self._load(self._connection)
        except BaseException:
            self._connection.close()
            raise

    def _load(self, connection: duckdb.DuckDBPyConnection) -> None:
        connection.execute(
            "SELECT run_id, root, version, tables, damage, runs.run_id IS NOT NULL FROM entries "
            "LEFT JOIN runs USING (run_id) ORDER BY runs.created, run_id"
        )
        places = [root.root / "runs" for root in self._roots]
        found = [
            (Run(name, root, at, places[root], tables=tables, damage=damage), whole)
            for name, root, at, tables, damage, whole in connection.fetchall()
        ]
        self.runs: dict[str, At] = {run.id: (run.root, run.version) for run, _ in found}
        self.damaged = {run.id: run.damage for run, _ in found if run.damage is not None}
        self.entries = {run.id: run for run, whole in found if whole}
        """Runs that can be asked for, oldest first."""
        notes = connection.execute("SELECT root, name, version, damage FROM annotation_files").fetchall()
        self.notes = {(root, name): version for root, name, version, _ in notes}
        self.bad_notes = {name: damage for _, name, _, damage in notes if damage is not None}
        self._written = len(notes)
        newest = connection.execute("SELECT coalesce(max(position), 0) FROM annotations").fetchall()
        self.newest_note: int = newest[0][0]

    @contextlib.contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection for one thread. Raises Closed."""
        with self._guard:
            self._uses.check()
            cursor = self._connection.cursor()
        with contextlib.closing(cursor), self._uses.use(cursor.interrupt):
            cursor.execute(_SEARCH)
            yield cursor

    def annotations(self) -> pa.Table:
        """All rows of annotations."""
        with self.cursor() as cursor:
            rows: pa.Table = cursor.sql("FROM annotations").to_arrow_table()
            return rows

    def take_in(self, listing: Listing) -> bool:
        """Tell whether these runs are its own; new annotations it reads itself, up to a number."""
        if self.runs != listing.runs or any(listing.notes.get(file) != at for file, at in self.notes.items()):
            return False
        if len(listing.notes) - self._written > _MOST_LATER:
            return False
        if new := {file: at for file, at in listing.notes.items() if file not in self.notes}:
            rows, files = ingest.read_annotations(self._roots, new)
            with self.cursor() as cursor:
                ingest.insert(cursor, "annotations", rows)
            self.notes |= {(file["root"], file["name"]): file["version"] for file in files}
            self.bad_notes |= {file["name"]: file["damage"] for file in files if file["damage"] is not None}
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


class HistoryFile:
    """The file of some roots in a cache; `close` deletes what lies in a temporary directory."""

    def __init__(self, roots: Sequence[Storage], cache: Path, uses: Uses) -> None:
        """Raises StorageError where the machine takes no file."""
        self._roots, self._uses = roots, uses
        form = [str(root.root) for root in roots], ingest.CREATE, ingest.FILL, SCHEMA_VERSION, RULE
        digest = hashlib.sha256(json.dumps([*form, duckdb.__version__]).encode()).hexdigest()
        self._folder = cache / "index" / digest[:16]
        self._temporary: Temporary | None = None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            require_writable(self._folder)
        except (OSError, DsocrError) as error:
            log.warning("%s: no index can be written (%s); a temporary file is used, as DSOCR_CACHE names no "
                        "folder that takes one", self._folder, one_line(error))  # fmt: skip
            with writing("a temporary index of the history"):
                self._temporary = Temporary("index")
            self._folder = Path(self._temporary.name)
        self.path = self._folder / "history.duckdb"

    def close(self) -> None:
        """Delete a temporary directory."""
        if self._temporary is not None:
            self._temporary.cleanup()

    def discard(self) -> None:
        """Delete a file that turned out to be damaged."""
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def current(self, listing: Listing, known: OpenFile | None = None) -> OpenFile:
        """The file with what is listed or came since; made, or brought up to date, where it is not.

        `known` is the file as it was opened before, and is opened anew where another one took its place.
        Raises StorageError where the roots cannot be listed, or no file can be made at all.
        """
        found = self._opened(known)
        if found is not None and found.take_in(listing):
            return found
        try:
            with self._lock():
                # Another process may have waited for the lock, too.
                listing, found = Listing.of(self._roots, listing), self._opened(found)
                return found if found and found.take_in(listing) else self._written(listing, found)
        except (duckdb.Error, OSError) as error:
            self._uses.check()
            if found is None:
                cause = f"{one_line(error)}; let DSOCR_CACHE name a folder that takes files"
                raise StorageError(f"{self._folder}: the history's index cannot be made ({cause})") from error
            self.discard()  # a block of it may be damaged
        return self.current(listing)

    def _opened(self, known: OpenFile | None) -> OpenFile | None:
        """The file as it is; None where there is none that can be read."""
        if (inode := _inode(self.path)) is None:
            return None
        if known is not None and known.inode == inode:
            return known
        try:
            return OpenFile(self.path, self._roots, self._uses)
        except (duckdb.Error, LookupError, ValueError, TypeError):
            self._uses.check()  # an interruption says nothing about the file
            self.discard()
            return None

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Until the end of the block, or of the process. Raises OSError."""
        self._folder.mkdir(parents=True, exist_ok=True)  # it may have been deleted since
        with (self._folder / "lock").open("ab") as handle:
            while True:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                self._uses.check()
                time.sleep(_LOOK_S)
            yield

    def _written(self, listing: Listing, base: OpenFile | None) -> OpenFile:
        """Write a copy of the file with what is new, and rename it. Raises OSError, duckdb.Error."""
        part = self.path.with_suffix(".tmp")
        parts = (part, part.with_name(f"{part.name}.wal"))
        try:
            for left in parts:  # of a process that was killed
                left.unlink(missing_ok=True)
            if base is not None:
                shutil.copyfile(self.path, part)
            connection = duckdb.connect(":memory:")
            with contextlib.closing(connection), self._uses.use(connection.interrupt):
                connection.execute(f"ATTACH {literal(str(part))} AS ix; USE ix; {ingest.DESCRIBED}")
                if base is None:
                    connection.execute(ingest.CREATE)
                self._fill(connection, listing, base)
                connection.execute("USE memory; DETACH ix")  # which writes all of it into the file
            part.replace(self.path)
        finally:
            for left in parts:
                with contextlib.suppress(OSError):
                    left.unlink(missing_ok=True)
        return OpenFile(self.path, self._roots, self._uses)

    def _fill(self, connection: duckdb.DuckDBPyConnection, listing: Listing, base: OpenFile | None) -> None:
        was, runs = base.runs if base else {}, list[Run]()
        ingest.forget(connection, [run_id for run_id, at in was.items() if listing.runs.get(run_id) != at])
        for name, (root, version) in sorted(listing.runs.items()):
            if was.get(name) != (root, version):
                self._uses.check()
                with contextlib.suppress(EntryGone):  # removed just now
                    runs.append(ingest.read_run(self._roots[root], root, name, version))
        ingest.add_runs(connection, runs)
        known = connection.execute("SELECT root, name, version FROM annotation_files").fetchall()
        had = {(root, name): version for root, name, version in known}
        if any(listing.notes.get(file) != version for file, version in had.items()):
            connection.execute("DELETE FROM annotations; DELETE FROM annotation_files")
            had = {}
        new = {file: version for file, version in listing.notes.items() if file not in had}
        rows, files = ingest.read_annotations(self._roots, new)
        ingest.insert(connection, "annotations", rows)
        ingest.insert(connection, "annotation_files", files)
