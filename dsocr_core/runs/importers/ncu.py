"""Nsight Compute: `ncu --csv` of the pages details and raw, and its averages by kernel, as a profiled run.

A table lies by itself, or in a folder with a folder a kernel, `kernel_0001_<md5>/`: there `ncu.details.csv`
and, often, the same again section by section. What its rules say is not taken.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.base.formatting import plural
from dsocr_core.runs.importers.imported import ImportedRun, RunFiles, as_yaml, digest, moment_of
from dsocr_core.runs.importers.profiles import profile_run, stage_of_range
from dsocr_core.runs.importers.tables import NCU, Table, find_tables, parse_figures, refuse

DETAILS = "ncu.details.csv"
LAUNCH_LIMIT, METRIC_LIMIT = 20_000, 2_000_000
"""Launches of a table and their metrics."""
_KERNEL_FOLDER = re.compile(r"kernel_(\d{1,6})_[0-9a-f]{32}")
_LAUNCH = ["process", "id", "kernel", "block", "grid", "device", "compute_capability", "stage"]
_METRIC = ["section", "metric", "unit", "text"]
_NO_METRIC = {"process name", "host name", "kernel time", "context", "stream", *_LAUNCH, *_METRIC}
_RANGES = re.compile(r"push/pop_range|start/stop_range")
_RANGE_NAME = re.compile(r"<default domain>:([^:\"]+)|(?:^|[\s\"])[^:\"\s]+:([^:\"]+):")
_COUNTS = frozenset({"cycle", "inst", "block", "thread", "byte", "request", "sector", "register/thread"})


Launches = dict[str, pd.DataFrame]
"""Tables of the history by name: of launches and of metrics, numbered in the order of the launches."""


def as_tables(found: Launches) -> dict[str, pa.Table]:
    return {name: pa.Table.from_pandas(rows, preserve_index=False) for name, rows in found.items()}


def count(found: Launches) -> str:
    """Count launches and kernels, in words."""
    launches = found["kernel_launches"]["kernel"]
    return f"{plural(len(launches), 'launch', 'launches')} of {plural(launches.nunique(), 'kernel')}"


def read_tables(files: RunFiles, tables: Iterable[Table], text: str) -> list[ImportedRun]:
    """The launches of a file's tables as a run. Raises InvalidFile."""
    found = launches_of(tables)
    files.digests = {DETAILS: digest(text.encode())}
    return profile_run(files, "ncu", f"Nsight Compute, {count(found)} in", as_tables(found))


def launches_of(tables: Iterable[Table], before: int = 0) -> Launches:
    """The launches of one measurement, numbered from `before` on. Raises InvalidFile, which names the row."""
    if not (of_ncu := [_long(table) for table in tables if table.attrs["report"] in NCU]):
        raise InvalidFile("it has no table of Nsight Compute")
    cells = pd.concat(of_ncu)
    cells = cells.astype(object).where(cells.notna() & (cells != ""), None)
    ids = cells["id"].fillna("")
    refuse(~ids.str.fullmatch(r"[0-9]{1,9}"), "row {}: '{:.40}' is no launch's ID", ids)
    refuse(cells["kernel"].isna(), "row {} names no kernel")
    refuse(cells[["metric", "section"]].isna().all(axis=1), "row {} has no metric and no section")
    number = cells.groupby(["process", "id"], sort=False, dropna=False).ngroup() + before
    cells = cells.assign(number=number, launch=ids.astype(int)).drop(columns=["process", "id"])
    first = cells.drop_duplicates("number")
    other = cells.duplicated("number") & ~cells.duplicated(["number", "kernel"])
    refuse(other, "row {}: launch {} is another kernel above", cells["launch"])
    metrics = _metrics(cells.loc[cells["metric"].notna(), ["number", "kernel", "launch", *_METRIC]])
    if len(first) > LAUNCH_LIMIT or len(metrics) > METRIC_LIMIT:
        raise InvalidFile(f"more than {LAUNCH_LIMIT:,} launches or {METRIC_LIMIT:,} metrics")
    values = parse_figures(metrics["text"], metrics["unit"], _COUNTS)
    metrics = metrics.assign(value=values.where(values.abs() <= 1e18))
    return {
        "kernel_launches": first.drop(columns=_METRIC),
        "kernel_metrics": metrics.sort_values("number", kind="stable"),
    }


def _long(table: Table) -> pd.DataFrame:
    """A table as the details page has it, a row a metric, with the stage of its launch."""
    rows = table.assign(stage=None)
    if ranges := [name for name in table if _RANGES.search(name)]:
        joined = rows[ranges].fillna("").agg(" ".join, axis=1)
        rows["stage"] = joined.map({each: _stage(each) for each in joined.unique()})
    rows = rows.reindex(columns=[*dict.fromkeys([*_LAUNCH, *rows.columns])])
    if "metric" not in table:  # the raw page, whose columns are metrics
        units, rows = rows.iloc[0], rows.iloc[1:]
        if units["id"] or units["kernel"] or rows.empty:
            raise InvalidFile(f"row {units.name} has no units, or no kernel follows it")
        metrics = [name for name in rows if name not in {*ranges, *_NO_METRIC}]
        rows = rows.melt(_LAUNCH, metrics, "metric", "text", ignore_index=False)
        rows = rows[rows["text"] != ""].sort_index(kind="stable")
        rows["unit"] = rows["metric"].map(units)
    elif "invocations" in table:  # averages: it has no launches: a shape of a kernel stands for one
        shapes = rows.groupby(["process", "kernel", "block", "grid"], sort=False, dropna=False)
        rows = rows.assign(id=shapes.ngroup().astype(str), text=rows["avg_ns"])
        often = rows.assign(section=None, metric="Invocations", unit=None, text=rows["invocations"])
        rows = pd.concat([rows, often]).sort_index(kind="stable")
    refuse(rows["text"].isna(), "not whole: row {} has no value")
    return rows.reindex(columns=[*_LAUNCH, *_METRIC])


def _stage(ranges: str) -> str | None:
    """Name the stage of the innermost range that names one; ncu lists the outermost first."""
    found = [stage_of_range(match[1] or match[2]) for match in _RANGE_NAME.finditer(ranges)]
    return next((stage.value for stage in reversed(found) if stage is not None), None)


def _metrics(cells: pd.DataFrame) -> pd.DataFrame:
    """Each metric once. Raises InvalidFile for one with two values; one in two units is two metrics."""
    cells = cells.assign(text=cells["text"].fillna("")).drop_duplicates()
    name = ["number", "section", "metric"]
    above = cells.groupby(["number", "metric"])["text"].transform("first")
    said = [cells["metric"].str[:80], cells["launch"], cells["text"], above]
    refuse(cells.duplicated([*name, "unit"]), "row {}: {} of launch {} is {:.40}, above {:.40}", *said)
    with_unit = cells["metric"] + " (" + cells["unit"].fillna("") + ")"
    return cells.assign(metric=cells["metric"].mask(cells.duplicated(name), with_unit))


# --- folders ----------------------------------------------------------------------------------------


def read_profile(files: RunFiles) -> list[ImportedRun]:
    """The kernels' folders of a folder as one run, in their order. Raises InvalidFile for none of use."""
    digests: dict[str, str] = {}
    found: list[Launches] = []
    for folder in (folders := kernel_folders(files.place)):
        files.digests = {}
        taken = [files.take(file.name, file, find_tables) for file in _tables_of(folder)]
        try:
            if tables := [table for found_in in filter(None, taken) for table in found_in[0].values()]:
                found.append(launches_of(tables, sum(len(each["kernel_launches"]) for each in found)))
                # Under the place that the kernel has in the profile.
                digests |= {f"{len(found)}/{name}": value for name, value in files.digests.items()}
        except InvalidFile as error:
            files.skip(folder, str(error))
    if not found:
        raise InvalidFile("no kernel of it could be read")
    launches = {name: pd.concat([each[name] for each in found]) for name in found[0]}
    command = files.place / "command.yaml"
    data = (files.take("command", command, as_yaml) if command.exists() else None) or {}
    lists = (data.get(name) for name in ("launch_command", "sections"))
    words, sections = (each if isinstance(each, list) else [] for each in lists)
    named = ", ".join(str(name)[:80] for name in sections[:40])
    notes = f"Nsight Compute, {count(launches)}." + f" Sections: {named}." * bool(sections)
    files.digests = digests
    more: dict[str, Any] = {"command": " ".join(map(str, words))[:4000] or None, "profiled": True}
    with suppress(ValueError, OverflowError):
        more["created"] = moment_of(str(data.get("timestamp")))
    return [files.run("ncu", as_tables(launches), notes, _tables_of(folders[0])[0], **more)]


def kernel_folders(directory: Path) -> list[Path]:
    """The folders of kernels in a folder, in their order; the folder itself where it is one."""
    inside = directory.iterdir() if directory.is_dir() else ()
    found = sorted(folder for folder in inside if not folder.is_symlink() and _tables_of(folder))
    return found or [directory] * bool(_tables_of(directory))


def _tables_of(folder: Path) -> list[Path]:
    """The tables of a kernel's folder, the one with everything first."""
    if not _KERNEL_FOLDER.fullmatch(folder.name):
        return []
    files = [path for path in folder.glob("ncu.*.csv") if not path.is_symlink()]
    return sorted(files, key=lambda path: (path.name != DETAILS, path.name))
