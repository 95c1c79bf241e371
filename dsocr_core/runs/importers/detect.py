"""`history import PATH...`: trees walked, every run in them taken, every other file named with its reason."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.runs.importers import archive
from dsocr_core.runs.importers.archive import DEPTH_LIMIT
from dsocr_core.runs.importers.imported import EmptyImport, ImportedRun, Row, Skipped, put
from dsocr_core.runs.importers.kinds import FILES, FOLDERS, Kind, unsupported_reason, why_by_name
from dsocr_core.runs.importers.reading import FileProbe
from dsocr_core.runs.importers.report import ImportReport, Taken
from dsocr_core.runs.storage.store import EntryExists
from dsocr_core.runs.store import History

FILE_LIMIT = 200_000
"""Files and folders that are looked at in one import."""
_INT32 = ("width", "height", "calls", "prompt_tokens", "new_tokens", "grid_columns", "grid_rows")


def import_paths(history: History, paths: Iterable[Path]) -> ImportReport:
    """Take every run under these files and folders into the history.

    A run that is there already changes nothing, and one that cannot be read or written does not stop the
    others.
    """
    history.refresh()
    walk = _Import(history)
    for path in paths:
        walk.path(Path(path))
    history.refresh()
    return walk.report


class _Import:
    def __init__(self, history: History) -> None:
        self.history = history
        self.report = ImportReport()
        self._looked_at = 0
        self._taken: set[str] = set()

    def path(self, path: Path) -> None:
        """One path as it was given; a link is followed here and nowhere below."""
        before = self.report.count
        if path.is_dir():
            self._tree(path)
        elif not path.exists():
            self._skip(path, "not there")
        elif archive.is_archive(path):
            self._archive(path)
        else:
            self._loose(path.resolve() if path.is_symlink() else path)
        if self.report.count == before:
            self._skip(path, "nothing in it")

    # --- finding --------------------------------------------------------------------------------

    def _tree(self, root: Path) -> None:
        pending = [(root, 0)]
        while pending:
            directory, depth = pending.pop()
            if (listed := self._listed(directory, depth)) is None:
                continue
            folders, files = listed
            kind = next((kind for kind in FOLDERS if kind.recognises(directory)), None)
            if kind is None:
                for file in files:
                    self._loose(file)
                pending += [(folder, depth + 1) for folder in reversed(folders)]
                continue
            taken = self._read(kind, directory)
            if kind.why_not is None:
                continue
            self._name(files, kind, taken)
            own = set(kind.owns(directory))
            for folder in folders:
                if folder.name in own:
                    self._unread(folder, kind, taken, depth + 1)
            pending += [(folder, depth + 1) for folder in reversed(folders) if folder.name not in own]

    def _unread(self, folder: Path, kind: Kind[Path], taken: frozenset[Path], depth: int) -> None:
        """Name what a run did not take of a folder that is part of it."""
        pending = [(folder, depth)]
        while pending:
            directory, depth = pending.pop()
            if (listed := self._listed(directory, depth)) is not None:
                self._name(listed[1], kind, taken)
                pending += [(below, depth + 1) for below in reversed(listed[0])]

    def _name(self, files: Iterable[Path], kind: Kind[Path], taken: frozenset[Path]) -> None:
        for file in files:
            if file not in taken and kind.why_not is not None:
                self._skip(file, why_by_name(file) or kind.why_not(file), kind.source)

    def _listed(self, directory: Path, depth: int) -> tuple[list[Path], list[Path]] | None:
        if depth > DEPTH_LIMIT:
            self._skip(directory, f"deeper than {DEPTH_LIMIT} folders")
            return None
        return self._children(directory)

    def _children(self, directory: Path) -> tuple[list[Path], list[Path]]:
        """Folders and files of a folder, sorted; links and what is neither are named."""
        folders: list[Path] = []
        files: list[Path] = []
        try:
            with os.scandir(directory) as entries:
                for entry in entries:
                    self._looked_at += 1
                    if self._looked_at > FILE_LIMIT:
                        if self._looked_at == FILE_LIMIT + 1:
                            self._skip(directory, f"stopped here: more than {FILE_LIMIT:,} files and folders")
                        break
                    if entry.is_symlink():
                        self._skip(Path(entry.path), "a link; give the path it leads to")
                    elif entry.is_dir(follow_symlinks=False):
                        folders.append(Path(entry.path))
                    elif entry.is_file(follow_symlinks=False):
                        files.append(Path(entry.path))
                    else:
                        self._skip(Path(entry.path), "not a regular file")
        except OSError as error:
            self._skip(directory, f"cannot be read ({error.strerror})")
        return sorted(folders), sorted(files)

    def _loose(self, file: Path) -> None:
        """A file that is not part of a run's folder."""
        if archive.is_archive(file):
            self._skip(file, "an archive inside a folder; import it by itself")
            return
        try:
            probe = FileProbe.of(file)
        except InvalidFile as error:
            self._skip(file, str(error))
            return
        kind = next((kind for kind in FILES if kind.recognises(probe)), None)
        if kind is None:
            self._skip(file, unsupported_reason(probe))
        else:
            self._read(kind, file)

    def _archive(self, file: Path) -> None:
        """An archive's content as a tree; its files are named by their place in the archive."""
        try:
            with archive.unpacked(file) as (directory, left_out):
                inside = _Import(self.history)
                inside._taken = self._taken
                inside._tree(directory)
                self.report.skipped += left_out
                self.report.add(inside.report, lambda path: file / path.relative_to(directory))
        except InvalidFile as error:
            self._skip(file, str(error))

    # --- taking ---------------------------------------------------------------------------------

    def _read(self, kind: Kind[Path] | Kind[FileProbe], place: Path) -> frozenset[Path]:
        """Read the runs of a folder or a file and write them; returns the files that they spoke for."""
        try:
            runs = kind.reads(place)
        except EmptyImport as error:
            self._left_out(error.skipped, kind.source)
            self._skip(place / kind.document, str(error), kind.source)
            return frozenset(item.path for item in error.skipped)
        except InvalidFile as error:
            self._skip(place / kind.document, str(error), kind.source)
            return frozenset()
        for run in runs:
            self._left_out(run.skipped, kind.source)
            self._write(run)
        return frozenset[Path]().union(*(run.looked_at for run in runs))

    def _write(self, run: ImportedRun) -> None:
        taken = Taken(run.record.id, run.record.source, run.origin)
        if run.record.id in self.history or run.record.id in self._taken:
            self.report.known.append(taken)
            self._compare_with_known(run)
            return
        try:
            writer = self.history.writer(run.record)
            try:
                with writer:
                    for table, rows in run.tables.items():
                        _check_counts(table, rows)
                    put(run, writer)
            except BaseException:
                shutil.rmtree(writer.directory, ignore_errors=True)
                raise
        except EntryExists:
            self.report.known.append(taken)
        except (DsocrError, pa.ArrowException) as error:  # the latter for a column of another type
            self._skip(run.origin, one_line(error, 300))
        except OSError as error:
            self._skip(run.origin, f"could not be written ({error.strerror})")
        else:
            self.report.imported.append(taken)
        self._taken.add(run.record.id)

    def _compare_with_known(self, run: ImportedRun) -> None:
        """Say so when a run of ours has gone on since it was taken; a run of the history never changes."""
        if run.record.source != "dsocr" or run.record.id not in self.history:
            return
        had = self.history.tables(run.record.id).get("readings", ())
        has = run.tables.get("readings", ())
        if len(had) < len(has):
            self._skip(
                run.origin,
                f"the history has {len(had)} of its {len(has)} readings, from before it was finished; delete "
                f"run {run.record.id} there and import again",
            )

    def _skip(self, path: Path, reason: str, kind: str = "") -> None:
        self.report.skipped.append(Skipped(path, reason, kind))

    def _left_out(self, items: Iterable[Skipped], kind: str) -> None:
        self.report.skipped += [replace(item, kind=kind) for item in items]


def _check_counts(table: str, rows: Sequence[Row] | pa.Table) -> None:
    """Raises InvalidFile for a count that the history's memory has no room for."""
    if isinstance(rows, pa.Table):
        rows = rows.select([name for name in _INT32 if name in rows.column_names]).to_pylist()
    for row in rows:
        for name in _INT32:
            value = row.get(name)
            if isinstance(value, int) and not -(2**31) <= value < 2**31:
                raise InvalidFile(f"{table}: {name} is {value}")
