"""`history import PATH...`: trees walked, every run in them taken, every other file named with its reason."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import pyarrow as pa

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.base.errors import DsocrError, one_line
from dsocr_core.runs.history import History
from dsocr_core.runs.importers import (
    archive,
    llm_perf_opt,
    ncu,
    nsys,
    nsys_sqlite,
    own_run,
    sharded_run,
    sweeps,
    tables,
    torch_trace,
)
from dsocr_core.runs.importers.archive import DEPTH_LIMIT
from dsocr_core.runs.importers.imported import (
    EmptyImport,
    FoundRun,
    ImportedRun,
    ImportReport,
    Skipped,
    write_run,
)
from dsocr_core.runs.importers.reading import TABLE_LIMIT, FileProbe, as_text, unpacked
from dsocr_core.runs.storage import EntryExists

FILE_LIMIT = 200_000
"""Files and folders that are looked at in one import."""
Place = TypeVar("Place", Path, FileProbe)


# --- kinds ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind(Generic[Place]):
    """A form in which runs are found: a folder, or a file by how it begins."""

    source: str
    recognises: Callable[[Place], bool]
    reads: Callable[[Path], ImportedRun | list[ImportedRun]]
    """Raises InvalidFile."""
    owns: Callable[[Path], Iterable[str]] = lambda _: ()
    """Folders below a folder that are part of its run."""
    why_not: Callable[[Path], str] | None = None
    """Why a file of a folder was not taken; None where a run is all that its folder holds."""
    document: str = ""
    """The file of a folder that is named when its run is refused."""


def _read_tables(file: Path) -> list[ImportedRun]:
    """The tables of Nsight Systems and of Nsight Compute in a file, a run of each. Raises InvalidFile."""
    content = unpacked(read_bytes(file, TABLE_LIMIT), TABLE_LIMIT)
    text = as_text(content)
    found, unread = tables.find_tables(text)
    of_ncu = [table for table in found if table.report in tables.NCU]
    of_nsys = [table for table in found if table.report not in tables.NCU]
    runs = [ncu.read_table(file, text, of_ncu)] if of_ncu else []
    return runs + ([nsys.read_tables(file, content, of_nsys, unread)] if of_nsys or not runs else [])


FOLDERS: tuple[Kind[Path], ...] = (
    Kind(
        "dsocr", sharded_run.is_sharded_run, lambda folder: sharded_run.read_sharded_run(str(folder)),
        document=own_run.DOCUMENT,
    ),
    Kind("dsocr", own_run.is_own_run, own_run.read_own_run, document=own_run.DOCUMENT),
    Kind(
        "llm-perf-opt", llm_perf_opt.is_run, llm_perf_opt.read_run, lambda _: llm_perf_opt.OWN_FOLDERS,
        llm_perf_opt.unread_reason,
    ),
    Kind("ncu", ncu.is_profile, ncu.read_profile, ncu.own_folders, ncu.unread_reason),
    Kind(
        "sweep", sweeps.is_sweep_folder, sweeps.read_sweep, lambda _: sweeps.OWN_FOLDERS,
        sweeps.unread_reason,
    ),
)  # fmt: skip
"""In the order in which they are asked."""

FILES: tuple[Kind[FileProbe], ...] = (
    Kind("nsys", nsys_sqlite.is_database, nsys_sqlite.read_database),
    Kind("ncu", lambda probe: tables.has_table(probe, tables.NCU), _read_tables),
    Kind("nsys", lambda probe: tables.has_table(probe, tables.REPORTS), _read_tables),
    Kind("sweep", sweeps.is_sweep_file, sweeps.read_sweep),
    Kind("torch", torch_trace.is_trace, torch_trace.read_trace),
)

_STATS = "print it with nsys stats --format csv --report cuda_gpu_kern_sum,nvtx_sum FILE > summary.csv"
_NEVER = r"(?!)"
_UNREAD: tuple[tuple[str, str, str], ...] = (
    (
        r"\.(nsys-rep|qdrep)$",
        r'(?m)^\s*\*\* [^\n]+ \([a-z_]+\):|^[ |]*Time ?\(%\)"?( |;)|"Total Time \(\w+\)" ?:|'
        r'^"?(NVTX Range|Count,QCount|Time ?\(%\)|Total \(MB\)|Start \(\w+\)|Duration \(\w+\))"?,',
        f"a report of Nsight Systems that is not read, or in a form of its own; {_STATS}",
    ),
    (
        r"\.qdstrm$", _NEVER,
        "a recording that is no report of Nsight Systems yet; make it one with QdstrmImporter -i FILE",
    ),
    (
        r"\.ncu-rep$",
        r"(?m)^==(PROF|ERROR|WARNING)== |, Context \d+, Stream \d+, Device \d+, CC \d|\ANVR\x00",
        "no CSV of Nsight Compute; print a report with ncu --import FILE --csv --page details",
    ),
    (r"^torchinfo", _NEVER, "torchinfo's counts are not kept in the history: they do not tell the stages"),
    (r"^top-kernels\.yaml$", _NEVER, "a list made from a kernel summary; import the summary"),
    (
        _NEVER, r"\A(%PDF-|\ufffdPNG|\ufffd{3}[^\n]{0,8}(JFIF|Exif))",
        "a page and no run; read it with dsocr run FILE, and import what that writes",
    ),
    (
        _NEVER, r"",
        "not a file of a format that the history knows: it takes CSV of nsys stats or ncu, SQLite of nsys "
        "export, traces of torch.profiler, sweeps, and folders or zips of runs",
    ),
)  # fmt: skip
"""Forms that are not taken: how their name ends or begins, or their content, and what to do."""


def unsupported_reason(probe: FileProbe) -> str:
    """Why a file by itself is not taken: what it looks like, and what to give."""
    contents = (why for _, pattern, why in _UNREAD if re.search(pattern, probe.text))
    return _why_by_name(probe.file) or next(contents) if probe.start else "empty"


def _why_by_name(file: Path) -> str | None:
    return next((why for pattern, _, why in _UNREAD if re.search(pattern, file.name)), None)


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


@dataclass(frozen=True)
class _Owner:
    """A run of a folder, and the files of it that it has accounted for."""

    kind: Kind[Path]
    files: frozenset[Path]


class _Import:
    def __init__(self, history: History) -> None:
        self.history = history
        self.report = ImportReport()
        self._looked_at = 0
        self._written: set[str] = set()

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
            self._file(path.resolve() if path.is_symlink() else path)
        if self.report.count == before:
            self._skip(path, "nothing in it")

    def _tree(self, root: Path) -> None:
        pending: list[tuple[Path, int, _Owner | None]] = [(root, 0, None)]
        while pending:
            directory, depth, owner = pending.pop()
            if depth > DEPTH_LIMIT:
                self._skip(directory, f"deeper than {DEPTH_LIMIT} folders")
                continue
            kind = None if owner else next((kind for kind in FOLDERS if kind.recognises(directory)), None)
            if kind is not None:
                owner = _Owner(kind, self._read(kind, directory))
                if kind.why_not is None:
                    continue
            folders, files = self._children(directory)
            for file in files:
                if owner is None:
                    self._file(file)
                elif file not in owner.files and owner.kind.why_not is not None:
                    self._skip(file, _why_by_name(file) or owner.kind.why_not(file), owner.kind.source)
            # Below a run's folder are folders of its own, and others, which may hold runs.
            own = {folder.name for folder in folders} if kind is None else {*kind.owns(directory)}
            pending += [
                (folder, depth + 1, owner if folder.name in own else None) for folder in reversed(folders)
            ]

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

    def _file(self, file: Path) -> None:
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
                inside._written = self._written
                inside._tree(directory)
                self.report.skipped += left_out
                self.report.add(inside.report, lambda path: file / path.relative_to(directory))
        except InvalidFile as error:
            self._skip(file, str(error))

    def _read(self, kind: Kind[Path] | Kind[FileProbe], place: Path) -> frozenset[Path]:
        """Read the runs of a folder or a file and write them; returns the files that they account for."""
        try:
            found = kind.reads(place)
        except InvalidFile as error:
            skipped: Sequence[Skipped] = error.skipped if isinstance(error, EmptyImport) else ()
            self.report.skipped += [replace(item, kind=kind.source) for item in skipped]
            self._skip(place / kind.document, str(error), kind.source)
            return frozenset(item.path for item in skipped)
        runs = [found] if isinstance(found, ImportedRun) else found
        for run in runs:
            self.report.skipped += [replace(item, kind=kind.source) for item in run.skipped]
            self._write(run)
        return frozenset[Path]().union(*(run.looked_at for run in runs))

    def _write(self, run: ImportedRun) -> None:
        found = FoundRun(run.record.id, run.record.source, run.origin)
        if run.record.id in self.history or run.record.id in self._written:
            self.report.known.append(found)
            self._compare_with_known(run)
            return
        try:
            write_run(run, self.history.writer(run.record))
        except EntryExists:
            self.report.known.append(found)
        except (DsocrError, pa.ArrowException) as error:  # the latter for a column of another type
            self._skip(run.origin, one_line(error, 300))
        except OSError as error:
            self._skip(run.origin, f"could not be written ({error.strerror})")
        else:
            self.report.imported.append(found)
        self._written.add(run.record.id)

    def _compare_with_known(self, run: ImportedRun) -> None:
        """Say so when a run of ours has gone on since it was taken; a run of the history never changes."""
        if run.record.source != "dsocr" or run.record.id not in self.history:
            return
        had = len(self.history.tables(run.record.id).get("readings", ()))
        if had < (has := len(run.tables.get("readings", ()))):
            self._skip(
                run.origin,
                f"the history has {had} of its {has} readings, from before it was finished; delete run "
                f"{run.record.id} there and import again",
            )

    def _skip(self, path: Path, reason: str, kind: str = "") -> None:
        self.report.skipped.append(Skipped(path, reason, kind))
