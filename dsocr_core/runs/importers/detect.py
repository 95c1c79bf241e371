"""`history import PATH...`: trees walked, every run in them taken, every other file named with its reason."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Set
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from dsocr_core.base.bounded_json import InvalidFile
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
    unpacked,
)
from dsocr_core.runs.importers.own_run import DEPTH_LIMIT
from dsocr_core.runs.importers.tables import NCU, find_tables, has_table
from dsocr_core.runs.storage import EntryExists

FILE_LIMIT = 200_000
"""Files and folders that are looked at in one import."""
WORDS = {
    "dsocr": "runs of this project",
    "llm-perf-opt": "runs of llm-perf-opt",
    "nsys": "profiles of Nsight Systems",
    "ncu": "profiles of Nsight Compute",
    "torch": "profiles of torch.profiler",
    "sweep": "analytic sweeps",
}
"""Sources of runs in words."""


# --- kinds ------------------------------------------------------------------------------------------


class Kind(NamedTuple):
    """A form in which runs are found."""

    source: str
    looks_like: Callable[[Path, str], bool]
    """Asked of its path, and for a file of how its text begins."""
    read: Callable[[RunFiles], list[ImportedRun]]
    """Reader of the runs of a place. Raises InvalidFile."""


def _read_tables(files: RunFiles) -> list[ImportedRun]:
    """The tables of Nsight Systems and of Nsight Compute in a file, a run of each. Raises InvalidFile."""
    content = unpacked(files.place, TABLE_LIMIT)
    tables, unread = find_tables(text := as_text(content))
    of_ncu = [table for table in tables if table.report in NCU]
    of_nsys = [table for table in tables if table.report not in NCU]
    runs = []
    if of_ncu:
        files.digests = {ncu.DETAILS: digest(text.encode())}
        found = ncu.launches_of(of_ncu)
        notes = f"Nsight Compute, {found.count()} in {files.name}."
        runs.append(files.profile("ncu", notes, found.tables()))
    if of_nsys or not runs:
        files.digests = {nsys.KERNEL_SUMMARY: digest(content)}
        runs.append(nsys.read_tables(files, content, of_nsys, unread))
    return runs


FOLDERS = (
    Kind("dsocr", lambda folder, _: own_run.is_sharded_run(folder),
         lambda files: [own_run.read_sharded_run(str(files.place))]),
    Kind("dsocr", lambda folder, _: own_run.is_own_run(folder), own_run.read_own_run),
    Kind("llm-perf-opt", lambda folder, _: llm_perf_opt.is_run(folder), llm_perf_opt.read_run),
    Kind("ncu", lambda folder, _: ncu.is_profile(folder), ncu.read_profile),
    Kind("sweep", lambda folder, _: bool(sweeps.files_in(folder)), sweeps.read_sweep),
)  # fmt: skip
"""In the order in which they are asked."""
FILES = (
    Kind("nsys", lambda _, head: head.startswith("SQLite format 3\0"), nsys.read_database),
    Kind("tables", lambda _, head: has_table(head), _read_tables),
    Kind("sweep", lambda file, _: file.name in sweeps.FILES, sweeps.read_sweep),
    Kind("torch", lambda _, head: torch_trace.is_trace(head), torch_trace.read_trace),
)

_UNREAD = (
    (r'\A[^\n]*\.(nsys-rep|qdrep|qdstrm)\n|^\s*\*\* [^\n]+ \([a-z_]+\):|^[ |]*Time ?\(%\)"?( |;)|'
     r'"Total Time \(\w+\)" ?:|^"?(NVTX Range|Count,QCount|Time ?\(%\)|Total \(MB\)|Start \(\w+\)|'
     r'Duration \(\w+\))"?,',
     "a report of Nsight Systems that is not read, or in a form of its own; print it with nsys stats "
     "--format csv --report cuda_gpu_kern_sum,nvtx_sum FILE > summary.csv"),
    (r"\A[^\n]*(\.ncu-rep\n|\nNVR\x00)|^==(PROF|ERROR|WARNING)== |, Context \d+, Stream \d+, Device \d+, ",
     "no CSV of Nsight Compute; print a report with ncu --import FILE --csv --page details"),
    (r"\A[^\n]*\n(%PDF-|\ufffdPNG|\ufffd{3}[^\n]{0,8}(JFIF|Exif))",
     "a page and no run; read it with dsocr run FILE, and import what that writes"),
    ("", "not a file of a format that the history knows: it takes CSV of nsys stats or ncu, SQLite of nsys "
     "export, traces of torch.profiler, sweeps, and folders or zips of runs"),
)  # fmt: skip
"""Forms that are not taken: what their name or content has, and what to do."""


def kind_of(file: Path) -> Kind:
    """The kind of a file by itself. Raises InvalidFile: what it looks like, and what to give."""
    head = head_of(file)
    if (kind := next((kind for kind in FILES if kind.looks_like(file, head)), None)) is not None:
        return kind
    named = file.name.replace("\n", " ") + "\n" + head
    reasons = (why for form, why in _UNREAD if re.search(form, named, re.MULTILINE))
    raise InvalidFile(next(reasons) if head else "empty")


_NONE: Set[Path] = frozenset()


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
        self._archive: tuple[Path, Path] | None = None
        """Archive whose tree is walked, and the folder where it is unpacked."""

    def path(self, path: Path) -> None:
        """One path as it was given; a link is followed here and nowhere below."""
        before = self.report.count
        if path.is_dir():
            self.folder(path)
        elif not path.exists():
            self._skip(path, "not there")
        elif _is_archive(path):
            self._unpacked(path)
        else:
            self._file(path.resolve() if path.is_symlink() else path)
        if self.report.count == before:
            self._skip(path, "nothing in it")

    def folder(self, directory: Path, depth: int = 0, source: str = "", seen: Set[Path] = _NONE) -> None:
        """Take the runs in a folder; `source` is that of a run above, `seen` its files and their folders."""
        if depth > DEPTH_LIMIT:
            self._skip(directory, f"deeper than {DEPTH_LIMIT} folders")
            return
        if directory not in seen:
            source = ""
            kind = next((kind for kind in FOLDERS if kind.looks_like(directory, "")), None)
            if kind is not None:
                files = self._read(kind, directory).seen
                if kind.source == "dsocr":  # all that its folder holds
                    return
                source, seen = kind.source, files.union(*(file.parents for file in files))
        for place, is_folder in self._children(directory):
            if is_folder:
                self.folder(place, depth + 1, source, seen)
            elif not source:
                self._file(place)
            elif place not in seen:
                self._skip(place, f"not a file that is taken from {WORDS[source]}")

    def _children(self, directory: Path) -> list[tuple[Path, bool]]:
        """Contents of a folder, sorted, with whether it is a folder; links and what is neither are named."""
        found: list[tuple[Path, bool]] = []
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
                    elif entry.is_dir(follow_symlinks=False) or entry.is_file(follow_symlinks=False):
                        found.append((Path(entry.path), entry.is_dir(follow_symlinks=False)))
                    else:
                        self._skip(Path(entry.path), "not a regular file")
        except OSError as error:
            self._skip(directory, f"cannot be read ({error.strerror})")
        return sorted(found)

    def _file(self, file: Path) -> None:
        """A file that is not part of a run's folder."""
        if _is_archive(file):
            self._skip(file, "an archive inside a folder; import it by itself")
            return
        try:
            self._read(kind_of(file), file)
        except InvalidFile as error:
            self._skip(file, str(error))

    def _unpacked(self, file: Path) -> None:
        """An archive's content as a tree; its files are named by their place in the archive."""
        try:
            with own_run.unpacked_archive(file) as (directory, left_out):
                self.report.skipped += left_out
                self._archive = file, directory
                self.folder(directory)
        except InvalidFile as error:
            self._skip(file, str(error))
        finally:
            self._archive = None

    def _named(self, path: Path) -> Path:
        if self._archive is None:
            return path
        file, directory = self._archive
        return file / path.relative_to(directory)

    def _read(self, kind: Kind, place: Path) -> RunFiles:
        """Read the runs of a folder or a file and write them; returns its files."""
        files = RunFiles(place)
        try:
            runs = kind.read(files)
        except InvalidFile as error:
            runs, document = [], place / (own_run.DOCUMENT if kind.source == "dsocr" else "")
            if document not in files.seen:
                files.skip(document, str(error))
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
        except (DsocrError, pa.ArrowException) as error:  # the latter for a column of another type
            self._skip(run.origin, one_line(error, 300))
            return
        except OSError as error:
            self._skip(run.origin, f"could not be written ({error.strerror})")
            return
        self.report.known.append(found)

    def _skip(self, path: Path, reason: str) -> None:
        self.report.skipped.append(Skipped(self._named(path), reason))


def _is_archive(file: Path) -> bool:
    return file.suffix.lower() == ".zip"
