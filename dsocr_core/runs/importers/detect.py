"""`history import PATH...`: trees walked, every run in them taken, every other file named with its reason."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
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
"""Files and folders that are looked at in one tree, and folders below each other."""
_HEAD_BYTES = 64 * 1024  # that show a file's form: what a profiled program printed comes before a table


def _read_tables(files: RunFiles) -> list[ImportedRun]:
    """A run of the tables of each of both tools in a file."""
    tables, unread = find_tables(text := imported.as_text(read_bytes(files.place, imported.TABLE_LIMIT)))
    of_ncu = [table for name, table in tables.items() if name in NCU]
    of_nsys = {name: table for name, table in tables.items() if name not in NCU}
    runs = ncu.read_tables(files, of_ncu, text) if of_ncu else []
    return runs + (nsys.read_tables(RunFiles(files.place), of_nsys, unread) if of_nsys else [])


KINDS: tuple[tuple[str, Callable[[Path, str], object], Callable[[RunFiles], list[ImportedRun]]], ...] = (
    ("runs and outputs of dsocr", lambda place, _: own_run.is_own_run(place), own_run.read_own_run),
    ("runs of llm-perf-opt", lambda place, _: llm_perf_opt.is_run(place), llm_perf_opt.read_run),
    ("its sweeps", lambda place, _: sweeps.files_of(place), sweeps.read_sweep),
    ("folders of ncu", lambda place, _: ncu.kernel_folders(place), ncu.read_profile),
    ("SQLite of nsys export", lambda _, head: head.startswith("SQLite format 3\0"), nsys.read_database),
    ("CSV of nsys stats or ncu", lambda _, head: has_table(head), _read_tables),
    ("traces of torch.profiler", lambda _, head: torch_trace.TRACE.search(head), torch_trace.read_trace),
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
    ("", "nothing that the history knows"),
)  # fmt: skip
"""Patterns in name or content of files that are not taken, and the way out."""


def read_runs(files: RunFiles) -> list[ImportedRun] | None:
    """The runs of a place; None for a folder that is no run. Raises InvalidFile."""
    head = ""
    if not (is_folder := files.place.is_dir()):
        with imported.opened(files.place) as handle:
            head = imported.as_text(handle.read(_HEAD_BYTES), strictly=False)
        if not head:
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
    report = ImportReport()
    for path in map(Path, paths):
        opened: AbstractContextManager[Path] = nullcontext(path.resolve())
        if path.suffix.lower() == ".zip" and not path.is_dir():
            opened = own_run.unpacked_archive(path, report.skipped)
        try:
            with opened as root:
                for found in _tree(root) if root.is_dir() else _taken(RunFiles(root)):
                    place = path / found.path.relative_to(root)  # of an archive: its place in it
                    if isinstance(found, Skipped):
                        report.skipped.append(Skipped(place, found.reason))
                    else:
                        run = FoundRun(found.record.id, found.record.source, place)
                        try:
                            (report.imported if _is_new(history, found) else report.known).append(run)
                        except (DsocrError, OSError, pa.ArrowException) as error:  # a column of another type
                            report.skipped.append(Skipped(place, one_line(error, 300)))
        except InvalidFile as error:
            report.skipped.append(Skipped(path, str(error)))
    history.refresh()
    return report


def _is_new(history: History, run: ImportedRun) -> bool:
    """Write a run that the history does not have. Raises DsocrError, OSError, ArrowException."""
    with suppress(EntryExists):
        if run.record.id not in history:
            run.write(history.writer(run.record))
            return True
    return False


def _taken(files: RunFiles) -> Iterator[ImportedRun | Skipped]:
    """The runs of a folder or a file, and what of it was not taken."""
    try:
        runs = read_runs(files) or []
    except (InvalidFile, OSError, OverflowError) as error:  # the last for a file's time
        runs = []
        files.skip(files.place, one_line(error))
    yield from files.skipped
    yield from runs


def _tree(root: Path) -> Iterator[ImportedRun | Skipped]:
    """The runs in a folder and below, and the files that are of none. No link is followed."""
    count, unread = 0, list[OSError]()
    of_runs: set[Path] = set()
    """Files that folders' runs were made of, or that were named, and the folders that they are in."""
    for folder, names, files in os.walk(root, onerror=unread.append):
        directory = Path(folder)
        count += len(names) + len(files)
        if count > FILE_LIMIT:
            yield Skipped(directory, f"stopped here: more than {FILE_LIMIT:,} files and folders")
            return
        if len(directory.relative_to(root).parts) > DEPTH_LIMIT:
            yield Skipped(directory, f"deeper than {DEPTH_LIMIT} folders")
            names.clear()
            continue
        if directory not in of_runs:
            yield from _taken(run := RunFiles(directory))
            of_runs |= {place for file in run.seen for place in (file, *file.parents)} - {*directory.parents}
            if run.whole:
                names.clear()
                continue
        names.sort()
        for place in (directory / name for name in (*names, *sorted(files))):
            if place.is_symlink():
                yield Skipped(place, "a link; give the path it leads to")
            elif place.is_dir() or place in of_runs:
                continue
            elif directory in of_runs:
                yield Skipped(place, "not a file that is taken from the run around it")
            elif place.suffix.lower() == ".zip":
                yield Skipped(place, "an archive inside a folder; import it by itself")
            else:
                yield from _taken(RunFiles(place))
    for error in unread:
        yield Skipped(Path(error.filename), f"cannot be read ({error.strerror})")
