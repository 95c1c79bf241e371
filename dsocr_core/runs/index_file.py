"""Place of the index of some storages, and its building: one process at a time, renamed when whole.

    <cache>/index/<locations>/index-<form>-<runs>-<number>.duckdb

`<runs>` is a digest of the runs and the versions of their files, so a listing says which file is the one, and
a file never changes: everybody opens it read-only. It is made from the newest older one where there is one,
else anew. Any of them may be deleted at any time, also while it is open. Where the cache takes no file, it
lies in a temporary directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import secrets
import shutil
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.base.paths import cache_directory
from dsocr_core.base.temporary import Temporary
from dsocr_core.base.uses import Uses
from dsocr_core.reading.parity_records import RULE
from dsocr_core.runs.annotations import File, read_annotation_files
from dsocr_core.runs.index import FORM, HELD, LATER, Filling, insert
from dsocr_core.runs.queries.query import LISTED, literal
from dsocr_core.runs.record import RunRecord, read_document
from dsocr_core.runs.rejudging import judged_anew
from dsocr_core.runs.schema import SCHEMA_VERSION
from dsocr_core.runs.storage.entries import Storage
from dsocr_core.runs.storage.store import EntryGone, NoRoom
from dsocr_core.runs.taking import Taken, take, unreadable

log = logging.getLogger(__name__)

_FORM = f"{FORM}.{SCHEMA_VERSION}.{RULE}"
_FILES_AT_ONCE = 100
_TRIES = 5
_PATIENCE_S, _LOOK_S = 120.0, 0.02
"""Seconds that another process may build before this one builds for itself."""
_KEPT = 2
"""Files of an index that stay: others may be about to open the last but one."""
_MOST_LATER = 500
"""Annotation files beside an index; with more it is made anew."""
_MOST_LATER_RUNS, _MOST_LATER_TIMES = 20, 500_000
"""Runs beside an index, and times of theirs; with more it is made anew."""
_UNUSED_S = 30 * 86_400
"""After so long the index of other locations is deleted."""


@dataclass(frozen=True)
class Listing:
    """Listing of the storages, by number; a run that lies in two counts in the first."""

    runs: Mapping[str, tuple[int, str]]
    """Storage and version by name."""
    annotations: Mapping[File, str]

    @classmethod
    def of(cls, storages: Sequence[Storage]) -> Listing:
        """Raises StorageError."""
        runs: dict[str, tuple[int, str]] = {}
        annotations: dict[File, str] = {}
        for number, storage in enumerate(storages):
            for name, version in storage.versions().items():
                runs.setdefault(name, (number, version))
            annotations |= {(number, name): at for name, at in storage.annotation_versions().items()}
        return cls(runs, annotations)

    @property
    def entries(self) -> dict[str, tuple[int, str]]:
        """Storage and version of runs, by `runs/<name>`."""
        return {f"runs/{name}": at for name, at in self.runs.items()}

    @property
    def digest(self) -> str:
        """Digest the runs, for the name of their index."""
        content = json.dumps([sorted(self.runs.items()), duckdb.__version__])
        return hashlib.sha256(content.encode()).hexdigest()[:32]


@dataclass(frozen=True)
class Entry:
    """A run that is in the index."""

    id: str
    storage: int
    version: str
    created: str
    rows: Mapping[str, int]
    """Number of rows it has in each of its tables."""

    @classmethod
    def of(cls, run: Taken) -> Entry:
        return cls(run.record.id, run.storage, run.version, run.record.created, run.rows)


class Index:
    """An index that is open for reading, with the runs and annotations written since. Thread-safe."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, file: Path, digest: str, uses: Uses) -> None:
        """`connection` has the index attached as `ix`; cursors are uses of its owner. Raises duckdb.Error."""
        self.file, self.digest = file, digest
        self._connection, self._guard, self._uses = connection, threading.Lock(), uses
        connection.execute(LATER)
        with self.cursor() as cursor:
            entries = "SELECT run_id, storage, version, created, rows FROM entries ORDER BY created, run_id"
            self.entries = {
                run_id: Entry(run_id, storage, version, created, json.loads(rows))
                for run_id, storage, version, created, rows in cursor.execute(entries).fetchall()
            }
            damaged = cursor.execute("SELECT key, storage, version, reason FROM damaged").fetchall()
            self.damaged: dict[str, str] = {key: reason for key, _, _, reason in damaged}
            self._damaged_at = {key: (storage, version) for key, storage, version, _ in damaged}
            files = cursor.execute("SELECT storage, name, version FROM annotation_files").fetchall()
            self._files = {(storage, name): version for storage, name, version in files}
            self.newest_note: int = cursor.execute(
                "SELECT coalesce(max(position), 0) FROM annotations"
            ).fetchall()[0][0]
        self.bad_annotations: dict[str, str] = {}
        self._later: dict[File, str] = {}
        self._listed, self._in_file = False, frozenset(self.entries)

    @contextlib.contextmanager
    def cursor(self) -> Iterator[duckdb.DuckDBPyConnection]:
        """A connection for one thread. Raises Closed."""
        with self._guard:
            self._uses.check()
            cursor = self._connection.cursor()
        with contextlib.closing(cursor), self._uses.use(cursor.interrupt):
            cursor.execute("SET search_path = 'memory.main,ix.main'")
            yield cursor

    def close(self) -> None:
        """Close the connection. Only when no cursor executes."""
        with self._guard:
            self._connection.close()

    def record(self, run_id: str) -> RunRecord:
        """Raises RecordError, duckdb.Error."""
        with self.cursor() as cursor:
            [[text]] = cursor.execute("SELECT document FROM entries WHERE run_id = $1", [run_id]).fetchall()
        return RunRecord.from_json(read_document(text.encode()))

    def fits(self, listing: Listing) -> bool:
        """Tell whether it has these runs, and no annotation file that is not there any more."""
        mine = self._files | self._later
        more = len(listing.annotations) - len(self._files)
        return (
            self.digest == listing.digest
            and all(listing.annotations.get(file) == version for file, version in mine.items())
            and more <= _MOST_LATER
        )

    def add_runs(self, storages: Sequence[Storage], listing: Listing) -> None:
        """Take in new runs, where there is nothing else to do and all of them are whole."""
        held = {f"runs/{run.id}": (run.storage, run.version) for run in self.entries.values()}
        held |= self._damaged_at
        there = listing.entries
        new = there.items() - held.items()
        beside = [run for run in self.entries.values() if run.id not in self._in_file]
        gone_or_changed = len(new) != len(there) - len(held)
        if not new or gone_or_changed or len(beside) + len(new) > _MOST_LATER_RUNS:
            return
        try:
            taken = [
                take(storages[number], number, key.removeprefix("runs/"), version)
                for key, (number, version) in sorted(new)
            ]
            runs = [run for run in taken if run is not None]
            beside += map(Entry.of, runs)
            times = sum(run.rows.get("timings", 0) for run in beside)
            if len(runs) < len(new) or times > _MOST_LATER_TIMES:
                return
            with self.cursor() as cursor:  # which takes back what is not committed
                filling = Filling(cursor, "memory.later")
                _add(filling, runs)
                cursor.execute(f"CREATE OR REPLACE TABLE memory.main.listed AS {LISTED}")
                filling.finish()
        except (DsocrError, duckdb.Error, _BadRuns):  # which is found again, and named, when it is made anew
            return
        entries = [*self.entries.values(), *map(Entry.of, runs)]
        self.entries = {run.id: run for run in sorted(entries, key=lambda run: (run.created, run.id))}
        self.digest = listing.digest

    def take_in(self, storages: Sequence[Storage], listing: Listing) -> int:
        """Add the annotation files that it has not; returns how many."""
        known = self._files.keys() | self._later.keys()
        new = {file: version for file, version in listing.annotations.items() if file not in known}
        rows, read, bad = read_annotation_files(storages, sorted(new), listing.annotations)
        self.bad_annotations = bad
        self._later |= {file: new[file] for file in read}
        if rows or not self._listed:
            with self.cursor() as cursor:
                cursor.execute("BEGIN")
                if rows:
                    insert(cursor, "memory.later.annotations", rows)
                cursor.execute(f"CREATE OR REPLACE TABLE memory.main.listed AS {LISTED}")
                cursor.execute("COMMIT")
            self._listed = True
        if rows:
            self.newest_note = max(self.newest_note, *(row["position"] for row in rows))
        return len(read)


def attach(connection: duckdb.DuckDBPyConnection, file: Path | str, read_only: bool = True) -> None:
    """Open an index in a connection, as `ix`. Raises duckdb.Error."""
    connection.execute(f"ATTACH {literal(str(file))} AS ix{' (READ_ONLY)' if read_only else ''}")


class IndexFolder:
    """The indexes of some storages; `close` deletes what lies in a temporary directory."""

    def __init__(self, storages: Sequence[Storage], readable: Sequence[Path], uses: Uses) -> None:
        """`readable`: directories whose Parquet files a connection to an index may read; `uses` are the
        owner's.
        """
        self._storages, self._readable, self._uses = storages, readable, uses
        locations = json.dumps([str(each.root) for each in storages])
        self.path = cache_directory() / "index" / hashlib.sha256(locations.encode()).hexdigest()[:16]
        self._temporary: Temporary | None = None

    def close(self) -> None:
        if self._temporary is not None:
            self._temporary.cleanup()

    def open(self) -> Index:
        """The index of what lies in the storages now; built where there is none.

        Raises StorageError where they cannot be listed, duckdb.Error where an index cannot be made at all.
        """
        for _ in range(_TRIES):
            # A run that goes away while it is read is not in the next listing.
            with contextlib.suppress(EntryGone):
                listing = Listing.of(self._storages)
                return self._found(listing) or self._built(listing)
        raise EntryGone("the history changes faster than it can be read; try again")

    def discard(self, index: Index) -> None:
        """Delete the file of an index that turned out to be damaged."""
        with contextlib.suppress(OSError):
            index.file.unlink()

    def _found(self, listing: Listing) -> Index | None:
        for file in self._files(f"index-{_FORM}-{listing.digest}-*.duckdb"):
            try:
                index = self._opened(file, listing)
            except (duckdb.Error, ValueError, DsocrError):
                self._uses.check()  # an interruption says nothing about the file
                with contextlib.suppress(OSError):
                    file.unlink()
                continue
            if index.fits(listing):
                with contextlib.suppress(OSError):
                    os.utime(self.path)
                return index
            index.close()
        return None

    def _files(self, pattern: str) -> list[Path]:
        """Newest first."""
        found, files = [], list[Path]()
        with contextlib.suppress(OSError):  # another user's folder
            files += self.path.glob(pattern)
        for file in files:
            with contextlib.suppress(OSError):
                found.append((file.stat().st_mtime_ns, file))
        return [file for _, file in sorted(found, reverse=True)]

    def _opened(self, file: Path, listing: Listing) -> Index:
        connection = duckdb.connect(":memory:")
        try:
            attach(connection, file)
            directories = {"directories": [str(each) for each in self._readable]}
            connection.execute("SET allowed_directories = $directories", directories)
            connection.execute("SET enable_external_access = false")
            connection.execute("SET enable_progress_bar = false")
            index = Index(connection, file, listing.digest, self._uses)
            index.take_in(self._storages, listing)
            return index
        except BaseException:
            connection.close()
            raise

    # --- building -------------------------------------------------------------------------------

    def _built(self, listing: Listing) -> Index:
        try:
            with self._lock():
                if (index := self._found(listing)) is not None:  # by another process, meanwhile
                    return index
                for base in (*self._files(f"index-{_FORM}-*.duckdb")[:1], None):
                    try:
                        return self._built_in(self.path, listing, base)
                    except duckdb.Error as error:
                        self._uses.check()
                        if base is None:
                            raise OSError(None, one_line(error)) from error
                        with contextlib.suppress(OSError):
                            base.unlink()
        except OSError as error:
            _say_once(
                f"{self.path}: no index can be written ({_cause(error)}); a temporary file is used, as "
                "DSOCR_CACHE names no folder that takes one"
            )
        try:
            if self._temporary is None:
                self._temporary = Temporary("index")
            return self._built_in(Path(self._temporary.name), listing, None)
        except OSError as error:
            raise NoRoom(f"no temporary file can be written for the index ({_cause(error)})") from error

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Until the end of the block, or of the process. Raises OSError."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / "lock").open("ab") as handle:
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

    def _built_in(self, folder: Path, listing: Listing, base: Path | None) -> Index:
        """Raises OSError, duckdb.Error."""
        for left in folder.glob("part-*"):  # of a process that was killed
            left.unlink(missing_ok=True)
        part = folder / f"part-{secrets.token_hex(8)}"
        try:
            if base is not None:
                shutil.copyfile(base, part)
            connection = duckdb.connect(":memory:")
            with contextlib.closing(connection), self._uses.use(connection.interrupt):
                attach(connection, part, read_only=False)
                self._fill(connection, listing, new=base is None)
                connection.execute("USE memory")
                connection.execute("DETACH ix")  # which writes all of it into the file
            file = folder / f"index-{_FORM}-{listing.digest}-{secrets.token_hex(4)}.duckdb"
            part.rename(file)
        finally:
            for left in folder.glob(f"{part.name}*"):
                with contextlib.suppress(OSError):
                    left.unlink()
        for old in self._all(folder)[_KEPT:]:
            old.unlink(missing_ok=True)
        _delete_unused(self.path.parent)
        return self._opened(file, listing)

    def _all(self, folder: Path) -> list[Path]:
        return sorted(folder.glob("index-*"), key=lambda file: file.stat().st_mtime_ns, reverse=True)

    def _fill(self, connection: duckdb.DuckDBPyConnection, listing: Listing, new: bool) -> None:
        """Make an attached index one of the listing. Raises duckdb.Error, OSError, EntryGone."""
        bad: dict[str, str] = {}
        connection.execute("USE ix")
        while True:
            filling = Filling(connection, "ix.main", new)
            try:
                self._fill_once(connection, filling, listing, bad)
                filling.finish()
                return
            except _BadRuns as error:
                connection.execute("ROLLBACK")
                bad |= error.reasons

    def _fill_once(
        self,
        connection: duckdb.DuckDBPyConnection,
        filling: Filling,
        listing: Listing,
        bad: Mapping[str, str],
    ) -> None:
        was = {
            run_id: (storage, version)
            for run_id, storage, version in connection.execute(
                "SELECT run_id, storage, version FROM entries"
            ).fetchall()
        }
        known = {
            row[:3]: row[3]
            for row in connection.execute("SELECT key, storage, version, reason FROM damaged").fetchall()
        }
        filling.forget([run_id for run_id, at in was.items() if listing.runs.get(run_id) != at])
        damaged: list[tuple[str, int, str, str]] = []
        waiting: list[Taken] = []
        for name, (number, version) in sorted(listing.runs.items()):
            self._uses.check()
            if was.get(name) == (number, version):
                continue
            key = (f"runs/{name}", number, version)
            if (reason := bad.get(name, known.get(key))) is not None:
                damaged.append((*key, reason))
                continue
            try:
                taken = take(self._storages[number], number, name, version)
            except EntryGone:
                raise
            except DsocrError as error:
                damaged.append((*key, str(error)))
                continue
            if taken is not None:
                waiting.append(taken)
            if len(waiting) == _FILES_AT_ONCE:
                _add(filling, waiting)
                waiting = []
        _add(filling, waiting)
        filling.set_damaged(damaged)
        self._fill_annotations(connection, filling, listing)

    def _fill_annotations(
        self, connection: duckdb.DuckDBPyConnection, filling: Filling, listing: Listing
    ) -> None:
        files = connection.execute("SELECT storage, name, version FROM annotation_files").fetchall()
        had = {(storage, name): version for storage, name, version in files}
        anew = any(listing.annotations.get(file) != version for file, version in had.items())
        wanted = [file for file in sorted(listing.annotations) if anew or file not in had]
        rows, read, _ = read_annotation_files(self._storages, wanted, listing.annotations)
        filling.set_annotations(rows, [(*file, listing.annotations[file]) for file in read], anew)


def _add(filling: Filling, runs: Sequence[Taken]) -> None:
    if not runs:
        return
    filling.add_runs(runs)
    for table in HELD:
        having = [run for run in runs if table in run.rows]
        if not having:
            continue
        try:
            files = [run.directory / f"{table}.parquet" for run in having]
            filling.add_table(table, files, [run.record.id for run in having])
            if table == "parity":
                _judge(filling, having)
        except duckdb.Error as error:
            if reasons := unreadable(having, table):
                raise _BadRuns(reasons) from error
            if not all(file.exists() for file in files):
                raise EntryGone(one_line(error)) from error
            raise


def _judge(filling: Filling, runs: Sequence[Taken]) -> None:
    """Have runs that another rule judged counted by today's; what cannot be read keeps its verdicts."""
    for run in runs:
        if run.parity_rule != RULE:
            with contextlib.suppress(DsocrError, OSError, ValueError, KeyError, TypeError):
                filling.set_verdicts(run.record.id, judged_anew(run.directory, run.record))


def _delete_unused(parent: Path) -> None:
    """The indexes of locations that nobody opened for long."""
    with contextlib.suppress(OSError):
        for folder in parent.iterdir():
            if folder.stat().st_mtime < time.time() - _UNUSED_S:
                shutil.rmtree(folder, ignore_errors=True)


_said: set[str] = set()


def _say_once(words: str) -> None:
    if words not in _said:
        _said.add(words)
        log.warning("%s", words)


def _cause(error: Exception) -> str:
    return getattr(error, "strerror", None) or one_line(error)


class _BadRuns(Exception):
    """Runs whose files are no tables of this version, with the reason."""

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(str(reasons))
        self.reasons = reasons
