"""`history import PATH...`: trees walked, every run in them taken, every other file named with its reason."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from dsocr_core.errors import DsocrError, one_line
from dsocr_core.history.importers import (
    archive,
    llm_perf_opt,
    ncu,
    ncu_csv,
    nsys,
    own_run,
    sharded_run,
    sweeps,
    vendor_folder,
    vllm_document,
)
from dsocr_core.history.importers.archive import DEPTH_LIMIT
from dsocr_core.history.importers.imported import ImportedRun, Row, Skipped, put
from dsocr_core.history.importers.reading import clean
from dsocr_core.history.storage.store import EntryExists
from dsocr_core.history.store import History
from dsocr_core.outside.untrusted import Refused

FILE_LIMIT = 200_000
"""Files and folders that are looked at in one import."""

_HEADER_BYTES = 64 * 1024
"""A table of Nsight Compute comes after what the profiled program printed."""
_INT32 = ("width", "height", "calls", "prompt_tokens", "new_tokens", "grid_columns", "grid_rows")


@dataclass(frozen=True)
class Taken:
    """A run that was found."""

    run_id: str
    source: str
    origin: Path


KINDS = {
    "dsocr": "runs of this project",
    "llm-perf-opt": "runs of llm-perf-opt",
    "vendor": "output folders of the published code",
    "nsys": "kernel summaries of Nsight Systems",
    "ncu": "profiles of Nsight Compute",
    "sweep": "analytic sweeps",
    "": "other files",
}
"""Sources of runs in words; what belongs to none of them comes last."""
_MOST_REASONS = 3


@dataclass(frozen=True)
class Kind:
    """What became of everything of one kind."""

    words: str
    imported: int
    known: int
    skipped: Counter[str]
    """Files that were not taken, by reason."""

    @property
    def line(self) -> str:
        """All of it in one line; of many reasons the most frequent."""
        parts = [f"{self.imported} imported"] if self.imported else []
        parts += [f"{self.known} there already"] if self.known else []
        if count := self.skipped.total():
            named = [f"{number} {reason}" for reason, number in self.skipped.most_common(_MOST_REASONS)]
            more = count - sum(number for _, number in self.skipped.most_common(_MOST_REASONS))
            named += [f"{more} for other reasons"] if more else []
            parts.append(f"{count} file{'s' if count != 1 else ''} not taken ({'; '.join(named)})")
        return f"{self.words}: {', '.join(parts)}"


@dataclass
class ImportReport:
    """What became of everything under the given paths."""

    imported: list[Taken] = field(default_factory=list)
    known: list[Taken] = field(default_factory=list)
    """Runs that the history had before."""
    skipped: list[Skipped] = field(default_factory=list)

    def add(self, other: ImportReport, named: Callable[[Path], Path]) -> None:
        """Take over another report; `named` tells what its paths are called here."""
        for mine, theirs in ((self.imported, other.imported), (self.known, other.known)):
            mine += [Taken(run.run_id, run.source, named(run.origin)) for run in theirs]
        self.skipped += [replace(item, path=named(item.path)) for item in other.skipped]

    def kinds(self) -> list[Kind]:
        """What was taken and what not, kind by kind, in the order of `KINDS`; without those of nothing."""
        found = []
        for kind, words in KINDS.items():
            reasons = Counter(item.reason for item in self.skipped if item.kind == kind)
            imported = sum(run.source == kind for run in self.imported)
            known = sum(run.source == kind for run in self.known)
            if imported or known or reasons:
                found.append(Kind(words, imported, known, reasons))
        return found

    def document(self) -> dict[str, Any]:
        """The report as JSON-ready values."""

        def runs(taken: list[Taken]) -> list[dict[str, str]]:
            return [
                {"run_id": run.run_id, "source": run.source, "origin": clean(str(run.origin))}
                for run in taken
            ]

        return {
            "imported": runs(self.imported),
            "known": runs(self.known),
            "skipped": [{"path": clean(str(item.path)), "reason": item.reason} for item in self.skipped],
            "kinds": [
                {
                    "kind": kind.words,
                    "imported": kind.imported,
                    "known": kind.known,
                    "skipped": dict(kind.skipped),
                }
                for kind in self.kinds()
            ],
        }


def import_paths(
    history: History, paths: Iterable[Path], progress: Callable[[Path], None] | None = None
) -> ImportReport:
    """Take every run under these files and folders into the history.

    A run that is there already changes nothing, and one that cannot be read or written does not stop the
    others. `progress` is called with each folder that is looked at.
    """
    history.refresh()
    walk = _Import(history, progress or (lambda _: None))
    for path in paths:
        walk.path(Path(path))
    history.refresh()
    return walk.report


class _Import:
    def __init__(self, history: History, progress: Callable[[Path], None]) -> None:
        self.history = history
        self.progress = progress
        self.report = ImportReport()
        self._looked_at = 0
        self._taken: set[str] = set()

    def path(self, path: Path) -> None:
        """One path as it was given; a link is followed here and nowhere below."""
        if path.is_dir():
            self._tree(path)
        elif not path.exists():
            self._skip(path, "not there")
        elif archive.is_archive(path):
            self._archive(path)
        else:
            self._loose(path.resolve() if path.is_symlink() else path)

    # --- finding --------------------------------------------------------------------------------

    def _tree(self, root: Path) -> None:
        pending = [(root, 0)]
        while pending:
            directory, depth = pending.pop()
            if depth > DEPTH_LIMIT:
                self._skip(directory, f"deeper than {DEPTH_LIMIT} folders")
                continue
            self.progress(directory)
            folders, files = self._children(directory)
            rest, of_run = self._folder(directory, files)
            for file in rest:
                self._loose(file)
            for folder in reversed(folders):
                if of_run is None:
                    pending.append((folder, depth + 1))
                elif folder.name in of_run.folders:
                    self._unread(folder, of_run, depth + 1)
                elif of_run.whole:
                    continue
                else:
                    pending.append((folder, depth + 1))

    def _folder(self, directory: Path, files: list[Path]) -> tuple[list[Path], _Claim | None]:
        """Take the run that a folder is; returns its files that are still to be looked at."""
        if sharded_run.is_sharded_run(directory):
            source = directory / own_run.DOCUMENT
            self._read(lambda: sharded_run.read_sharded_run(str(directory)), source, "dsocr")
            return [], _Claim(folders=(), whole=True)
        if own_run.is_own_run(directory):
            self._read(lambda: own_run.read_own_run(directory), directory / own_run.DOCUMENT, "dsocr")
            return [], _Claim(folders=(), whole=True)
        found = _claimed(directory)
        if found is None:
            return files, None
        claim, read = found
        claim.looked_at = self._read_all(read, directory, claim.kind)
        self._name(files, claim)
        return [], claim

    def _unread(self, folder: Path, claim: _Claim, depth: int) -> None:
        """Name what a run did not take of a folder that is part of it."""
        pending = [(folder, depth)]
        while pending:
            directory, depth = pending.pop()
            if depth > DEPTH_LIMIT:
                self._skip(directory, f"deeper than {DEPTH_LIMIT} folders")
                continue
            folders, files = self._children(directory)
            self._name(files, claim)
            pending += [(below, depth + 1) for below in reversed(folders)]

    def _name(self, files: Iterable[Path], claim: _Claim) -> None:
        for file in files:
            if file not in claim.looked_at:
                self._skip(file, claim.reason(file), claim.kind)

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
        if file.suffix.lower() == ".csv":
            try:
                with file.open("rb") as handle:
                    header = handle.read(_HEADER_BYTES).decode("utf-8-sig", errors="replace")
            except OSError as error:
                self._skip(file, f"cannot be read ({error.strerror})")
                return
            if nsys.is_kernel_summary(header):
                self._read(lambda: nsys.read_summary_file(file), file, "nsys")
                return
            if ncu_csv.is_ncu(header):
                self._read(lambda: ncu.read_table(file), file, "ncu")
                return
        elif ncu.is_packed_table(file):
            self._read(lambda: ncu.read_table(file), file, "ncu")
            return
        elif sweeps.is_sweep_file(file):
            self._read(lambda: sweeps.read_file(file), file, "sweep")
            return
        self._skip(file, _stranger(file))

    def _archive(self, file: Path) -> None:
        """An archive's content as a tree; its files are named by their place in the archive."""
        try:
            with archive.unpacked(file) as (directory, left_out):
                inside = _Import(self.history, self.progress)
                inside._taken = self._taken
                inside._tree(directory)
                self.report.skipped += left_out
                self.report.add(inside.report, lambda path: file / path.relative_to(directory))
        except Refused as error:
            self._skip(file, str(error))

    # --- taking ---------------------------------------------------------------------------------

    def _read(self, read: Callable[[], ImportedRun], named: Path, kind: str) -> frozenset[Path]:
        """Read a run and write it; returns the files that it spoke for."""
        return self._read_all(lambda: [read()], named, kind)

    def _read_all(self, read: Callable[[], Sequence[ImportedRun]], named: Path, kind: str) -> frozenset[Path]:
        """Read the runs of one folder and write them."""
        try:
            runs = read()
        except llm_perf_opt.RunRefused as error:
            self._left_out(error.skipped, kind)
            self._skip(named, str(error), kind)
            return frozenset(item.path for item in error.skipped)
        except ncu.ProfileRefused as error:
            self._left_out(error.skipped, kind)
            self._skip(named, str(error), kind)
            return error.looked_at
        except Refused as error:
            self._skip(named, str(error), kind)
            return frozenset()
        for run in runs:
            self._left_out(run.skipped, kind)
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


@dataclass
class _Claim:
    """What belongs to a run that was found: folders below it, and why a file of it was not taken."""

    folders: tuple[str, ...]
    whole: bool = False
    reason: Callable[[Path], str] = field(default=lambda _: "")
    kind: str = ""
    looked_at: frozenset[Path] = frozenset()


def _claimed(directory: Path) -> tuple[_Claim, Callable[[], Sequence[ImportedRun]]] | None:
    """What a folder of another kind than our own runs claims, and how its runs are read; None for no such."""
    if llm_perf_opt.is_run(directory):
        claim = _Claim(llm_perf_opt.OWN_FOLDERS, reason=llm_perf_opt.unread_reason, kind="llm-perf-opt")
        return claim, lambda: [llm_perf_opt.read_run(directory)]
    if vllm_document.is_documents(directory):
        claim = _Claim(vllm_document.OWN_FOLDERS, reason=vllm_document.unread_reason, kind="vendor")
        return claim, lambda: vllm_document.read_documents_of(directory)
    if vendor_folder.is_vendor_folder(directory):
        claim = _Claim(vendor_folder.OWN_FOLDERS, reason=vendor_folder.unread_reason, kind="vendor")
        return claim, lambda: [vendor_folder.read_folder(directory)]
    if ncu.is_profile(directory) or ncu.is_kernel_folder(directory):
        kernels = (folder.name for folder in ncu.kernel_folders(directory))
        claim = _Claim((*ncu.OWN_FOLDERS, *kernels), reason=ncu.unread_reason, kind="ncu")
        return claim, lambda: [ncu.read_profile(directory)]
    if sweeps.is_sweep_folder(directory):
        claim = _Claim(sweeps.OWN_FOLDERS, reason=sweeps.unread_reason, kind="sweep")
        return claim, lambda: [sweeps.read_sweep(directory)]
    return None


def _check_counts(table: str, rows: Sequence[Row] | pa.Table) -> None:
    """Raises Refused for a count that the history's memory has no room for."""
    if isinstance(rows, pa.Table):
        rows = rows.select([name for name in _INT32 if name in rows.column_names]).to_pylist()
    for row in rows:
        for name in _INT32:
            value = row.get(name)
            if isinstance(value, int) and not -(2**31) <= value < 2**31:
                raise Refused(f"{table}: {name} is {value}")


def _stranger(file: Path) -> str:
    """Why a file by itself says nothing."""
    try:
        if file.stat().st_size == 0:
            return "empty"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    if file.suffix == ".ncu-rep":
        return ncu.unread_reason(file)
    if file.name.startswith("torchinfo"):
        return "torchinfo's counts are not kept in the history: it could not tell the stages apart"
    if file.name == "top-kernels.yaml":
        return "a list made from a kernel summary; import the summary"
    return "not a file of a format that the history knows"
