"""The history's DuckDB file: an index of the runs' Parquet, replaced as a whole, open only for reading.

    <cache>/index/<roots>/history.duckdb

What comes or goes is added to a copy, under a lock, which is then renamed: a file never changes, so everybody
has it open read-only, and whoever has an earlier one reads on. `index` may be deleted at any time, and a
damaged file is made anew. Where the cache takes no file, it lies in a temporary directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import shutil
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa

from dsocr_core.base.errors import one_line
from dsocr_core.base.paths import Temporary, why_unwritable
from dsocr_core.base.uses import Uses
from dsocr_core.reading.parity_records import RULE
from dsocr_core.reading.writing import StorageError
from dsocr_core.runs import ingest
from dsocr_core.runs.annotations import Annotations
from dsocr_core.runs.ingest import At, Run
from dsocr_core.runs.queries.query import literal
from dsocr_core.runs.queries.runs import NOTED
from dsocr_core.runs.record import SCHEMA_VERSION
from dsocr_core.runs.storage import EntryGone, RunStorage, Version, directory_lock

log = logging.getLogger(__name__)

_LOOK = "SET search_path = '{}.main,memory.main'"
_LOOK_S = 0.02  # seconds between two looks whether another process still writes


@dataclass(eq=False)
class OpenFile:
    """The file as one opening found it; it is closed with the last reference to it."""

    inode: int
    connection: duckdb.DuckDBPyConnection
    name: str  # in the connection
    runs: Mapping[str, At]
    entries: Mapping[str, Run]
    """Runs that can be asked for, oldest first."""
    damaged: Mapping[str, str]
    noted: pa.Table | None = None  # that the connection has tables of


def connect(connection: duckdb.DuckDBPyConnection, file: Path, name: str = "ix") -> None:
    """Open a file for reading. Raises duckdb.Error."""
    connection.execute(f"ATTACH {literal(str(file))} AS {name} (READ_ONLY); {_LOOK.format(name)}")


def _detach(cursor: duckdb.DuckDBPyConnection, name: str) -> None:
    with contextlib.suppress(duckdb.Error):  # closed, or at its end
        cursor.execute(f"USE memory; DETACH {name}")


class HistoryFile:
    """The file of some roots in a cache; a run that lies in two counts in the first."""

    def __init__(self, roots: Sequence[RunStorage], cache: Path, uses: Uses, notes: Annotations) -> None:
        """`uses` are its owner's."""
        self._roots, self._uses, self._notes, self._noting = roots, uses, notes, threading.Lock()
        form = [str(root.root) for root in roots], ingest.CREATE, ingest.FILL, SCHEMA_VERSION, RULE
        digest = hashlib.sha256(json.dumps([*form, duckdb.__version__]).encode()).hexdigest()
        self._temporary: TemporaryDirectory[str] | None = None
        if why := why_unwritable(cache):  # of a user without a home
            log.warning("%s: %s; the history's index is temporary: DSOCR_CACHE may name a folder", cache, why)
            self._temporary = Temporary("index")
            cache = Path(self._temporary.name)
        self.path = cache / "index" / digest[:16] / "history.duckdb"
        self._versions: list[Mapping[str, Version]] = [{} for _ in roots]
        self.opened: OpenFile | None = None
        self._connection: duckdb.DuckDBPyConnection | None = None
        """Of all openings, and writing: to make one takes longer than to open a file."""

    @contextlib.contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection for one thread, within a use of the owner. Raises Closed."""
        file = self.opened
        assert file is not None
        cursor = file.connection.cursor()
        with contextlib.closing(cursor), self._uses.use(cursor.interrupt):
            cursor.execute(_LOOK.format(file.name))
            with self._noting:
                if file.noted is not (rows := self._notes.rows):
                    ingest.put(cursor, NOTED, rows)
                    file.noted = rows
            yield cursor

    def close(self) -> None:
        """Close the connection, and delete a temporary directory. Only when the owner has no use."""
        if self.opened is not None:
            self.opened.connection.close()
        if self._temporary is not None:
            self._temporary.cleanup()

    def refresh(self, every: bool = False, anew: bool = False) -> None:
        """Open the file with all runs of the roots in it. Makes it, or adds what is new, where needed.

        `every` looks into folders that seem unchanged too; `anew` deletes the file first.
        Raises StorageError where the roots cannot be listed, or no file can be made.
        """
        listed = self._list(every)
        if anew:
            self._discard()
        if self._open() == listed:
            return
        try:
            with self._lock():
                # Another process may have waited for the lock, too.
                listed = self._list()
                if (was := self._open()) != listed:
                    self._write(listed, was or {})
                if self._open() is None:
                    raise OSError("it cannot be read")
        except (duckdb.Error, OSError) as error:
            self._uses.check()
            if anew:
                cause = f"{one_line(error)}; let DSOCR_CACHE name a folder that takes files"
                raise StorageError(f"{self.path}: the history's index cannot be made ({cause})") from error
            self.refresh(every, anew=True)  # a block of it may be damaged

    def _list(self, every: bool = False) -> dict[str, At]:
        """Runs that are there; folders that did not change since are looked into with `every` alone."""
        self._versions = [
            root.versions({} if every else before)
            for root, before in zip(self._roots, self._versions, strict=True)
        ]
        numbered = reversed([*enumerate(self._versions)])
        return {name: (number, at[1]) for number, versions in numbered for name, at in versions.items()}

    def _discard(self) -> None:
        self._connection = None  # a damaged block ends all that it can do
        with contextlib.suppress(OSError):
            self.path.unlink(missing_ok=True)

    def _connected(self) -> duckdb.DuckDBPyConnection:
        if self._connection is None:
            self._connection = duckdb.connect(":memory:")
            places = [*(str(root.root) for root in self._roots), str(self.path.parent)]
            self._connection.execute("SET allowed_directories = $places", {"places": places})
            self._connection.execute("SET enable_external_access = false; SET enable_progress_bar = false")
        return self._connection

    def _open(self) -> Mapping[str, At] | None:
        """Open the file unless it is open, and name its runs; None where there is none that can be read."""
        try:
            inode = self.path.stat().st_ino
        except OSError:
            return None
        if self.opened is not None and self.opened.inode == inode:
            return self.opened.runs
        connection, name = self._connected(), f"ix_{inode}"
        try:
            connect(cursor := connection.cursor(), self.path, name)
            found = ingest.runs_of(cursor, self._roots)
        except (duckdb.Error, LookupError, ValueError, TypeError):
            self._uses.check()  # an interruption says nothing about the file
            self._discard()
            return None
        runs = {run.id: (run.root, run.version) for run in found}
        entries = {run.id: run for run in found if run.whole}
        damaged = {run.id: run.damage for run in found if run.damage is not None}
        self.opened = OpenFile(inode, connection, name, runs, entries, damaged)
        weakref.finalize(self.opened, _detach, cursor, name)
        return runs

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Until the end of the block, or of the process. Raises OSError."""
        with contextlib.ExitStack() as stack:
            while True:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                try:
                    stack.enter_context(directory_lock(self.path.parent))
                    break
                except (BlockingIOError, FileNotFoundError):  # locked, or cleared away meanwhile
                    self._uses.check()
                    time.sleep(_LOOK_S)
            yield

    def _write(self, listed: Mapping[str, At], was: Mapping[str, At]) -> None:
        """Write a copy of the file, which has the runs `was`, with what is new, and rename it.

        Raises OSError, duckdb.Error.
        """
        part = self.path.with_suffix(".tmp")
        parts = (part, part.with_name(f"{part.name}.wal"))
        try:
            for left in parts:  # of a process that was killed
                left.unlink(missing_ok=True)
            if was:
                shutil.copyfile(self.path, part)
            connection = self._connected().cursor()
            with contextlib.closing(connection), self._uses.use(connection.interrupt):
                # After a fault it may have the last part still.
                connection.execute(f"DETACH DATABASE IF EXISTS part; ATTACH {literal(str(part))} AS part")
                connection.execute(f"USE part; {ingest.DESCRIBED}")
                if not was:
                    connection.execute(ingest.CREATE)
                ingest.forget(connection, dict(was.items() - listed.items()))
                runs = list[Run]()
                for name, (root, version) in sorted(listed.items() - was.items()):
                    self._uses.check()
                    with contextlib.suppress(EntryGone):  # removed just now
                        runs.append(ingest.read_run(self._roots[root], root, name, version))
                ingest.add_runs(connection, runs)
                connection.execute("USE memory; DETACH part")  # which writes all of it into the file
            part.replace(self.path)
        finally:
            for left in parts:
                with contextlib.suppress(OSError):
                    left.unlink(missing_ok=True)
