"""Kinds of files and folders that the history takes: a row a kind, in the order in which they are asked."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from dsocr_core.base.bounded_json import read_bytes
from dsocr_core.runs.importers import (
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
from dsocr_core.runs.importers.imported import ImportedRun
from dsocr_core.runs.importers.reading import TABLE_LIMIT, FileProbe, as_text, unpacked

Place = TypeVar("Place", Path, FileProbe)
"""Mark by which a kind is recognised: a folder, or how a file begins."""


@dataclass(frozen=True)
class Kind(Generic[Place]):
    """A form in which runs are found."""

    source: str
    recognises: Callable[[Place], bool]
    reads: Callable[[Path], Sequence[ImportedRun]]
    """Raises InvalidFile."""
    owns: Callable[[Path], Iterable[str]] = lambda _: ()
    """Folders below a folder that are part of its run."""
    why_not: Callable[[Path], str] | None = None
    """Why a file of a folder was not taken; None where a run is all that its folder holds."""
    document: str = ""
    """The file of a folder that is named when its run is refused."""


def read_tables(file: Path) -> list[ImportedRun]:
    """The tables of Nsight Systems and of Nsight Compute in a file, a run of each. Raises InvalidFile."""
    content = unpacked(read_bytes(file, TABLE_LIMIT), TABLE_LIMIT)
    text = as_text(content)
    found = tables.find_tables(text)
    of_ncu = [table for table in found.read if table.report in tables.NCU]
    of_nsys = tables.Tables(
        tuple(table for table in found.read if table.report not in tables.NCU), found.unread
    )
    runs = [nsys.read_tables(file, content, of_nsys)] if of_nsys.read or not of_ncu else []
    return runs + ([ncu.read_table(file, text, of_ncu)] if of_ncu else [])


FOLDERS: tuple[Kind[Path], ...] = (
    Kind(
        "dsocr", sharded_run.is_sharded_run, lambda folder: [sharded_run.read_sharded_run(str(folder))],
        document=own_run.DOCUMENT,
    ),
    Kind(
        "dsocr", own_run.is_own_run, lambda folder: [own_run.read_own_run(folder)], document=own_run.DOCUMENT,
    ),
    Kind(
        "llm-perf-opt", llm_perf_opt.is_run, lambda folder: [llm_perf_opt.read_run(folder)],
        lambda _: llm_perf_opt.OWN_FOLDERS, llm_perf_opt.unread_reason,
    ),
    Kind(
        "ncu", ncu.is_profile, lambda folder: [ncu.read_profile(folder)], ncu.own_folders, ncu.unread_reason
    ),
    Kind(
        "sweep", sweeps.is_sweep_folder, lambda folder: [sweeps.read_sweep(folder)],
        lambda _: sweeps.OWN_FOLDERS, sweeps.unread_reason,
    ),
)  # fmt: skip

FILES: tuple[Kind[FileProbe], ...] = (
    Kind("nsys", nsys_sqlite.is_database, lambda file: [nsys_sqlite.read_database(file)]),
    Kind("", tables.has_table, read_tables),
    Kind("sweep", sweeps.is_sweep_file, lambda file: [sweeps.read_file(file)]),
    Kind("torch", torch_trace.is_trace, lambda file: [torch_trace.read_trace(file)]),
)

_STATS = "nsys stats --format csv --report cuda_gpu_kern_sum,nvtx_sum FILE > summary.csv"
NAMES: tuple[tuple[str, str], ...] = (
    (r"\.(nsys-rep|qdrep)$", f"a report in Nsight Systems' own form; print it with {_STATS}"),
    (
        r"\.qdstrm$",
        "a recording that is no report of Nsight Systems yet; make it one with QdstrmImporter -i FILE",
    ),
    (
        r"\.ncu-rep$",
        "no CSV of Nsight Compute; print a report with ncu --import FILE --csv --page details",
    ),
    (r"^torchinfo", "torchinfo's counts are not kept in the history: it could not tell the stages apart"),
    (r"^top-kernels\.yaml$", "a list made from a kernel summary; import the summary"),
)
"""Forms that are known by a file's name and not taken: a pattern, and what to do."""

UNSUPPORTED: tuple[tuple[str, str], ...] = (
    (
        r'(?m)^\s*\*\* [^\n]+ \([a-z_]+\):|^[ |]*Time ?\(%\)"?( |;)|"Total Time \(\w+\)" ?:|'
        r'^"?(NVTX Range|Count,QCount|Time ?\(%\)|Total \(MB\)|Start \(\w+\)|Duration \(\w+\))"?,',
        f"a report of Nsight Systems that is not read; print it with {_STATS}",
    ),
    (r"(?m)^==(PROF|ERROR|WARNING)== |, Context \d+, Stream \d+, Device \d+, CC \d|\ANVR\x00", NAMES[2][1]),
    (
        r"\A(%PDF-|\ufffdPNG|\ufffd{3}[^\n]{0,8}(JFIF|Exif))",
        "a page and no run; read it with dsocr run FILE, and import what that writes",
    ),
)
"""Forms that are known by how they begin and not taken."""


def unsupported_reason(probe: FileProbe) -> str:
    """Why a file by itself says nothing."""
    if not probe.start:
        return "empty"
    contents = (why for pattern, why in UNSUPPORTED if re.search(pattern, probe.text))
    return why_by_name(probe.file) or next(contents, "not a file of a format that the history knows")


def why_by_name(file: Path) -> str | None:
    """Why a file that is called so is not taken; None where its name does not say."""
    return next((why for pattern, why in NAMES if re.search(pattern, file.name)), None)
