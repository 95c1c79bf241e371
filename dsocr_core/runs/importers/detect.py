"""`history import PATH...`: trees walked, every run in them taken, every other file named with its reason."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.runs.history import History
from dsocr_core.runs.importers import imported, llm_perf_opt, ncu, nsys, own_run, sweeps, torch_trace
from dsocr_core.runs.importers.imported import FoundRun, ImportedRun, ImportReport, RunFiles, Skipped
from dsocr_core.runs.importers.tables import NCU, find_tables, has_table
from dsocr_core.runs.storage import EntryExists

FILE_LIMIT, DEPTH_LIMIT = 200_000, own_run.DEPTH_LIMIT
"""Files and folders that are looked at in one import, and folders below each other."""


def _read_tables(files: RunFiles) -> list[ImportedRun]:
    """A run of the tables of each of both tools in a file."""
    content = read_bytes(files.place, imported.TABLE_LIMIT)
    if content.startswith(b"\x1f\x8b"):
        raise InvalidFile("a table packed with gzip; unpack it first")
    tables, unread = find_tables(text := imported.as_text(content))
    of_ncu = [table for name, table in tables.items() if name in NCU]
    of_nsys = {name: table for name, table in tables.items() if name not in NCU}
    runs = ncu.read_tables(files, of_ncu, text) if of_ncu else []
    return runs + (nsys.read_tables(replace(files, digests={}), of_nsys, unread) if of_nsys else [])


KINDS: tuple[tuple[str, Callable[[Path, str], object], Callable[[RunFiles], list[ImportedRun]]], ...] = (
    ("outputs of a cluster", lambda place, _: own_run.is_sharded_run(place), own_run.read_output),
    ("runs of this project", lambda place, _: own_run.is_own_run(place), own_run.read_own_run),
    ("runs of llm-perf-opt", lambda place, _: llm_perf_opt.is_run(place), llm_perf_opt.read_run),
    ("its sweeps", lambda place, _: sweeps.files_of(place), sweeps.read_sweep),
    ("folders of ncu", lambda place, _: ncu.is_profile(place), ncu.read_profile),
    ("SQLite of nsys export", lambda _, head: head.startswith("SQLite format 3\0"), nsys.read_database),
    ("CSV of nsys stats or ncu", lambda _, head: has_table(head), _read_tables),
    ("traces of torch.profiler", lambda _, head: torch_trace.is_trace(head), torch_trace.read_trace),
)
"""Importers, asked in this order: name; test of a place and of its text's beginning ("" of a folder);
reader of its runs, which raises InvalidFile.
"""
_LOOKS = (
    (r"\A[^\n]*\.(nsys-rep|qdrep|qdstrm)\n|^\s*\*\* [^\n]+ \([a-z_]+\):|\((ns|us|ms|s|MB)\)\"?[,;]",
     "a report of Nsight Systems; nsys stats --format csv --report cuda_gpu_kern_sum,nvtx_sum FILE prints "
     "what is read"),
    (r"\A[^\n]*(\.ncu-rep\n|\nNVR\x00)|^==(PROF|ERROR|WARNING)== ",
     "a report of Nsight Compute; ncu --import FILE --csv --page details prints what is read"),
    (r"\A[^\n]*\n(%PDF-|\ufffdPNG|\ufffd{3}[^\n]{0,8}(JFIF|Exif))", "a page; dsocr run FILE reads it"),
    ("", "nothing that the history knows"),
)  # fmt: skip
"""Patterns in name or content of files that are not taken, and the way out."""


def read_runs(files: RunFiles) -> list[ImportedRun] | None:
    """The runs of a place; None for a folder that is no run. Raises InvalidFile."""
    is_folder = files.place.is_dir()
    head = "" if is_folder else imported.head_of(files.place)
    if not head and not is_folder:
        raise InvalidFile("empty")
    for _, is_it, read in KINDS:
        if is_it(files.place, head):
            return read(files)
    if is_folder:
        return None
    named = files.place.name.replace("\n", " ") + "\n" + head
    like, _, way_out = next(words for form, words in _LOOKS if re.search(form, named, re.M)).partition("; ")
    taken = f"taken are {', '.join(name for name, *_ in KINDS)}, and zips of them"
    raise InvalidFile("; ".join(filter(None, (f"looks like {like}", taken, way_out))))


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
        if path.is_dir():
            self._tree(path)
        elif not path.exists():
            self._skip(path, "not there")
        elif path.suffix.lower() != ".zip":
            self._place(path.resolve() if path.is_symlink() else path)
        else:
            try:
                with own_run.unpacked_archive(path) as (directory, left_out):
                    self.report.skipped += left_out
                    self._archive = path, directory
                    self._tree(directory)
                    self._archive = None
            except InvalidFile as error:
                self._skip(path, str(error))

    def _tree(self, root: Path) -> None:
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
            if too_deep or (directory not in self._of_runs and self._place(directory)):
                names.clear()
                continue
            names.sort()
            for place in (directory / name for name in (*names, *sorted(files))):
                if place.is_symlink():
                    self._skip(place, "a link; give the path it leads to")
                elif place.is_dir() or place in self._of_runs:
                    continue
                elif directory in self._of_runs:
                    self._skip(place, "not a file that is taken from the run around it")
                elif place.suffix.lower() == ".zip":
                    self._skip(place, "an archive inside a folder; import it by itself")
                else:
                    self._place(place)

    def _place(self, place: Path) -> bool:
        """Take the runs of a folder or a file; tells whether all that it holds is of them."""
        files = RunFiles(place)
        try:
            runs = read_runs(files) or []
        except (InvalidFile, OSError) as error:
            runs = []
            if place not in files.seen:
                files.skip(place, one_line(error))
        for skipped in files.skipped:
            self._skip(*skipped)
        for run in runs:
            self._write(run)
        for file in files.seen if place.is_dir() else ():
            self._of_runs |= {file, *(each for each in file.parents if each.is_relative_to(place))}
        return files.whole

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

    def _named(self, path: Path) -> Path:
        """A path of an archive by its place in it."""
        if self._archive is None:
            return path
        file, directory = self._archive
        return file / path.relative_to(directory)
