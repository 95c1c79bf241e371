"""`history import PATH...`: trees walked, every run in them taken, every other file named with its reason."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.runs.history import History
from dsocr_core.runs.importers import llm_perf_opt, ncu, nsys, own_run, sweeps, torch_trace
from dsocr_core.runs.importers.imported import (
    TABLE_LIMIT,
    FoundRun,
    ImportedRun,
    ImportReport,
    RunFiles,
    Skipped,
    as_text,
    digest,
    head_of,
)
from dsocr_core.runs.importers.own_run import DEPTH_LIMIT
from dsocr_core.runs.importers.tables import NCU, find_tables, has_table
from dsocr_core.runs.storage import EntryExists

FILE_LIMIT = 200_000
"""Files and folders that are looked at in one import."""

# --- kinds ------------------------------------------------------------------------------------------


Reader = Callable[[RunFiles], list[ImportedRun]]
"""Reader of the runs of a place. Raises InvalidFile."""


def _read_tables(files: RunFiles) -> list[ImportedRun]:
    """The tables of Nsight Systems and of Nsight Compute in a file, a run of each. Raises InvalidFile."""
    content = read_bytes(files.place, TABLE_LIMIT)
    if content.startswith(b"\x1f\x8b"):
        raise InvalidFile("a table packed with gzip; unpack it first")
    tables, unread = find_tables(text := as_text(content))
    of_ncu, of_nsys = (
        [table for table in tables if (table.report in NCU) == is_ncu] for is_ncu in (True, False)
    )
    runs = []
    if of_ncu:
        files.digests = {ncu.DETAILS: digest(text.encode())}
        found = ncu.launches_of(of_ncu)
        runs.append(files.profile("ncu", f"Nsight Compute, {found.count()} in {files.name}.", found.tables()))
    if of_nsys or not of_ncu:
        files.digests = {nsys.KERNEL_SUMMARY: digest(content)}
        runs.append(nsys.read_tables(files, content, of_nsys, unread))
    return runs


FOLDERS: tuple[tuple[Callable[[Path], bool], Reader], ...] = (
    (own_run.is_sharded_run, own_run.read_output),
    (own_run.is_own_run, own_run.read_own_run),
    (llm_perf_opt.is_run, llm_perf_opt.read_run),
    (ncu.is_profile, ncu.read_profile),
    (lambda folder: bool(sweeps.files_in(folder)), sweeps.read_sweep),
)
"""Readers of folders, in the order in which they are asked."""
FILES: tuple[tuple[Callable[[Path, str], bool], Reader], ...] = (
    (lambda _, head: head.startswith("SQLite format 3\0"), nsys.read_database),
    (lambda _, head: has_table(head), _read_tables),
    (lambda file, _: file.name in sweeps.FILES, sweeps.read_sweep),
    (lambda _, head: torch_trace.is_trace(head), torch_trace.read_trace),
)
"""Readers of files, asked by a file's name and how its text begins."""

_LOOKS = (
    (r'\A[^\n]*\.(nsys-rep|qdrep|qdstrm)\n|^\s*\*\* [^\n]+ \([a-z_]+\):|\((ns|us|ms|s|MB)\)"?[,;]',
     "a report of Nsight Systems",
     "; nsys stats --format csv --report cuda_gpu_kern_sum,nvtx_sum FILE prints what is read"),
    (r"\A[^\n]*(\.ncu-rep\n|\nNVR\x00)|^==(PROF|ERROR|WARNING)== ", "a report of Nsight Compute",
     "; ncu --import FILE --csv --page details prints what is read"),
    (r"\A[^\n]*\n(%PDF-|\ufffdPNG|\ufffd{3}[^\n]{0,8}(JFIF|Exif))", "a page", "; dsocr run FILE reads it"),
    ("", "nothing that the history knows", ""),
)  # fmt: skip
"""What a file that is not taken looks like by its name or content, and the way out."""
_TAKEN = (
    "taken are CSV of nsys stats or ncu, SQLite of nsys export, Chrome traces of torch.profiler, sweeps, and "
    "folders or zips of runs"
)


def reader_of(file: Path) -> Reader:
    """The reader of a file by itself. Raises InvalidFile: what it looks like, and what is taken."""
    if not (head := head_of(file)):
        raise InvalidFile("empty")
    for looks_like, read in FILES:
        if looks_like(file, head):
            return read
    named = file.name.replace("\n", " ") + "\n" + head
    like, way_out = next(words for form, *words in _LOOKS if re.search(form, named, re.MULTILINE))
    raise InvalidFile(f"looks like {like}; {_TAKEN}{way_out}")


# --- the walk ---------------------------------------------------------------------------------------


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
        self._of_runs: set[Path] = set()
        """Files that folders' runs were made of, or that were named, and the folders that they are in."""
        self._archive: tuple[Path, Path] | None = None
        """Archive whose tree is walked, and the folder where it is unpacked."""

    def path(self, path: Path) -> None:
        """One path as it was given; a link is followed here and nowhere below."""
        before = self.report.count
        if path.is_dir():
            self.tree(path)
        elif not path.exists():
            self._skip(path, "not there")
        elif path.suffix.lower() == ".zip":
            self._unpacked(path)
        else:
            self._file(path.resolve() if path.is_symlink() else path)
        if self.report.count == before:
            self._skip(path, "nothing in it")

    def tree(self, root: Path) -> None:
        """Take the runs in a folder and below."""

        def unread(error: OSError) -> None:
            self._skip(Path(error.filename), f"cannot be read ({error.strerror})")

        for folder, names, files in os.walk(root, onerror=unread):
            directory = Path(folder)
            self._looked_at += len(names) + len(files)
            if self._looked_at > FILE_LIMIT:
                self._skip(directory, f"stopped here: more than {FILE_LIMIT:,} files and folders")
                return
            too_deep = len(directory.relative_to(root).parts) > DEPTH_LIMIT
            if too_deep:
                self._skip(directory, f"deeper than {DEPTH_LIMIT} folders")
            if too_deep or self._is_whole_run(directory):
                names.clear()
                continue
            names.sort()
            for place in (directory / name for name in (*names, *sorted(files))):
                if place.is_symlink():
                    self._skip(place, "a link; give the path it leads to")
                elif not place.is_dir() and place not in self._of_runs:
                    if directory in self._of_runs:
                        self._skip(place, "not a file that is taken from the run around it")
                    else:
                        self._file(place)

    def _is_whole_run(self, directory: Path) -> bool:
        """Take the run of a folder; tells whether all that the folder holds is of it."""
        read = next((read for is_run, read in FOLDERS if is_run(directory)), None)
        if read is None or directory in self._of_runs:
            return False
        files = self._read(read, directory)
        for file in files.seen:
            self._of_runs |= {file, *(each for each in file.parents if each.is_relative_to(directory))}
        return files.whole

    def _file(self, file: Path) -> None:
        """A file that is not part of a run's folder."""
        if file.suffix.lower() == ".zip":
            self._skip(file, "an archive inside a folder; import it by itself")
            return
        try:
            self._read(reader_of(file), file)
        except InvalidFile as error:
            self._skip(file, str(error))

    def _unpacked(self, file: Path) -> None:
        """An archive's content as a tree; its files are named by their place in the archive."""
        try:
            with own_run.unpacked_archive(file) as (directory, left_out):
                self.report.skipped += left_out
                self._archive = file, directory
                self.tree(directory)
        except InvalidFile as error:
            self._skip(file, str(error))
        finally:
            self._archive = None

    def _named(self, path: Path) -> Path:
        if self._archive is None:
            return path
        file, directory = self._archive
        return file / path.relative_to(directory)

    def _read(self, read: Reader, place: Path) -> RunFiles:
        """Read the runs of a folder or a file and write them; returns its files."""
        files = RunFiles(place)
        runs: list[ImportedRun] = []
        try:
            runs = read(files)
        except InvalidFile as error:
            if place not in files.seen:
                files.skip(place, str(error))
        for skipped in files.skipped:
            self._skip(*skipped)
        for run in runs:
            self._write(run)
        return files

    def _write(self, run: ImportedRun) -> None:
        found = FoundRun(run.record.id, run.record.source, self._named(run.origin))
        try:
            if run.record.id not in self.history:
                run.write(self.history.writer(run.record))
                self.report.imported.append(found)
                return
        except EntryExists:
            pass
        except (DsocrError, OSError, pa.ArrowException) as error:  # the last for a column of another type
            self._skip(run.origin, one_line(error, 300))
            return
        self.report.known.append(found)

    def _skip(self, path: Path, reason: str) -> None:
        self.report.skipped.append(Skipped(self._named(path), reason))
