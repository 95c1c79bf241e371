"""Nsight Compute: `ncu --csv` of the pages details and raw, and its averages by kernel, as a profiled run.

A table lies by itself, or in a folder with a folder a kernel, `kernel_0001_<md5>/`: there `ncu.details.csv`
and, often, the same again section by section. Texts of rules are texts: nothing in them is followed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.runs.importers.imported import (
    FILE_TIME_NOTE,
    TABLE_LIMIT,
    Fields,
    ImportedRun,
    RunFiles,
    as_yaml,
    file_time,
    moment_of,
)
from dsocr_core.runs.importers.stages import stage_of_range
from dsocr_core.runs.importers.tables import NCU, NCU_RAW, NCU_SUMMARY, Table, figures, find_tables, refuse
from dsocr_core.runs.record import RunRecord

DETAILS = "ncu.details.csv"
KERNEL_LIMIT, LAUNCH_LIMIT, METRIC_LIMIT = 2_000, 20_000, 2_000_000
"""Folders of a profile; launches and their metrics of a table."""
_KERNEL_FOLDER = re.compile(r"kernel_(\d{1,6})_[0-9a-f]{32}")
_KEY = ["process", "id"]
_LAUNCH = {
    "process id": "process", "id": "id", "kernel name": "kernel", "block size": "block", "grid size": "grid",
    "device": "device", "cc": "compute_capability",
}  # fmt: skip
_METRIC = {"section name": "section", "metric name": "metric", "metric unit": "unit", "metric value": "text"}
_RULE = {
    "rule name": "rule", "rule type": "type", "rule description": "said",
    "estimated speedup type": "speedup_type", "estimated speedup": "speedup",
}  # fmt: skip
_NAMES = {**_LAUNCH, **_METRIC, **_RULE}
_OF_SUMMARY = {"average": "text", "invocations": "invocations"}
_NO_METRIC = {"process name", "host name", "kernel time", "context", "stream", "stage", *_NAMES.values()}
_RANGES = r"Push/Pop_Range|Start/Stop_Range"
_RANGE_NAME = re.compile(r"<default domain>:([^:\"]+)|(?:^|[\s\"])[^:\"\s]+:([^:\"]+):")
_COUNTS = frozenset({"cycle", "inst", "block", "thread", "byte", "request", "sector", "register/thread"})


@dataclass
class Launches:
    """Launches of a profile with their metrics and rules, each a frame with `process` and `id`."""

    launches: pd.DataFrame
    metrics: pd.DataFrame
    rules: pd.DataFrame

    def tables(self) -> dict[str, pa.Table]:
        """The history's tables, launches numbered in their order."""
        launches = self.launches.assign(number=range(len(self.launches)), launch=self.launches["id"])
        of = launches[[*_KEY, "number", "kernel", "launch"]]
        frames = {"kernel_launches": launches}
        for name, frame in (("kernel_metrics", self.metrics), ("kernel_rules", self.rules)):
            frames[name] = frame.merge(of, on=_KEY).sort_values("number", kind="stable")
        return {
            name: pa.Table.from_pandas(frame.drop(columns=_KEY), preserve_index=False)
            for name, frame in frames.items()
            if len(frame)
        }

    def count(self) -> str:
        """Count, in words."""
        names, number = self.launches["kernel"].nunique(), len(self.launches)
        return f"{number:,} launch{'es' * (number != 1)} of {names:,} kernel{'s' * (names != 1)}"


def launches_of(found: Sequence[Table]) -> Launches:
    """The launches of the one table of Nsight Compute among those of a file. Raises InvalidFile."""
    if len(tables := [table for table in found if table.report in NCU]) != 1:
        raise InvalidFile(f"it has {len(tables)} tables of Nsight Compute: give each a file of its own")
    return _launches(tables)


def _launches(tables: Sequence[Table]) -> Launches:
    """The launches of one measurement from all of its tables. Raises InvalidFile, which names the row."""
    cells = pd.concat([_long(table) for table in tables])
    cells = cells.astype(object).where(cells.notna() & (cells != ""), None)
    ids = cells["id"].fillna("")
    refuse(~ids.str.fullmatch(r"[0-9]{1,9}"), "row {}: '{:.40}' is no launch's ID", ids)
    refuse(cells["kernel"].isna(), "row {} names no kernel")
    refuse(cells[["metric", "rule", "section"]].isna().all(axis=1), "row {} has no metric and no rule")
    cells = cells.assign(id=ids.astype(int), process=cells["process"].fillna(""))
    first = cells.drop_duplicates(_KEY)
    other = cells.duplicated(_KEY) & ~cells.duplicated([*_KEY, "kernel"])
    refuse(other, "row {}: launch {} is another kernel above", cells["id"])
    rules = cells[cells["metric"].isna() & cells["rule"].notna() & cells["said"].notna()]
    rules = rules[[*_KEY, "section", *_RULE.values()]].rename(columns={"said": "text"}).drop_duplicates()
    metrics = _metrics(cells.loc[cells["metric"].notna(), [*_KEY, *_METRIC.values()]])
    if len(first) > LAUNCH_LIMIT or len(metrics) > METRIC_LIMIT:
        raise InvalidFile(f"more than {LAUNCH_LIMIT:,} launches or {METRIC_LIMIT:,} metrics")
    written = pd.concat([metrics["text"], rules["speedup"]])
    plain = figures(written, [*metrics["unit"], *[None] * len(rules)], _COUNTS)
    values = pd.to_numeric(plain, errors="coerce").where(lambda value: value.abs() <= 1e18).to_numpy()
    return Launches(
        first[[*_LAUNCH.values(), "stage"]],
        metrics.assign(value=values[: len(metrics)]),
        rules.assign(speedup_percent=values[len(metrics) :]).drop(columns="speedup"),
    )


def _long(table: Table) -> pd.DataFrame:
    """A table as the details page has it, a row a metric or a rule, with the stage of its launch."""
    names = _NAMES | (_OF_SUMMARY if table.report == NCU_SUMMARY else {})
    rows = table.rows.rename(columns=lambda name: names.get(name.lower(), name)).assign(stage=None)
    if ranges := [name for name in table.rows if re.search(_RANGES, name)]:
        joined = rows[ranges].fillna("").agg(" ".join, axis=1)
        rows["stage"] = joined.map({each: _stage(each) for each in joined.unique()})
    rows = rows.reindex(columns=[*dict.fromkeys([*_LAUNCH.values(), *rows.columns])])
    if table.report == NCU_RAW:
        units, rows = rows.iloc[0], rows.iloc[1:]
        if units["id"] or units["kernel"] or rows.empty:
            raise InvalidFile(f"row {units.name} has no units, or no kernel follows it")
        metrics = [name for name in rows if name not in ranges and name.lower() not in _NO_METRIC]
        rows = rows.melt([*_LAUNCH.values(), "stage"], metrics, "metric", "text", ignore_index=False)
        rows = rows[rows["text"] != ""].sort_index(kind="stable")
        rows["unit"] = rows["metric"].map(units)
    refuse(rows["text"].isna(), "not whole: row {} has no value")
    if table.report == NCU_SUMMARY:  # it has no launches: a shape of a kernel stands for one
        shapes = rows.groupby(["process", "kernel", "block", "grid"], sort=False, dropna=False)
        rows["id"] = shapes.ngroup().astype(str)
        often = rows.assign(section=None, metric="Invocations", unit=None, text=rows["invocations"])
        rows = pd.concat([rows, often]).sort_index(kind="stable")
    return rows.reindex(columns=[*_NAMES.values(), "stage"])


def _stage(ranges: str) -> str | None:
    """Name the stage of the innermost range that names one; ncu lists the outermost first."""
    found = [stage_of_range(match[1] or match[2]) for match in _RANGE_NAME.finditer(ranges)]
    return next((stage.value for stage in reversed(found) if stage is not None), None)


def _metrics(cells: pd.DataFrame) -> pd.DataFrame:
    """Each metric once. Raises InvalidFile for one with two values; one in two units is two metrics."""
    cells = cells.assign(text=cells["text"].fillna("")).drop_duplicates()
    name = [*_KEY, "section", "metric"]
    above = cells.groupby(["id", "metric"])["text"].transform("first")
    said = [cells["metric"].str[:80], cells["id"], cells["text"], above]
    refuse(cells.duplicated([*name, "unit"]), "row {}: {} of launch {} is {:.40}, above {:.40}", *said)
    with_unit = cells["metric"] + " (" + cells["unit"].fillna("") + ")"
    return cells.assign(metric=cells["metric"].mask(cells.duplicated(name), with_unit))


# --- folders ----------------------------------------------------------------------------------------


def is_profile(directory: Path) -> bool:
    """Tell whether a folder is one kernel's, or has kernels' folders in it."""
    return bool(_tables_of(directory) or _kernel_folders(directory))


def read_profile(files: RunFiles) -> list[ImportedRun]:
    """The kernels' folders of a folder as one run, in their order. Raises InvalidFile for none of use."""
    folders = _kernel_folders(files.place) or [files.place]
    for folder in folders[KERNEL_LIMIT:]:
        files.skip(folder, f"more than {KERNEL_LIMIT:,} kernels")
    digests: dict[str, str] = {}
    found: list[Launches] = []
    names: dict[str, str] = {}
    for folder in folders[:KERNEL_LIMIT]:
        launched, taken, files.digests = _kernel(files, folder), files.digests, {}
        same = names.setdefault("".join(sorted(taken.values())), folder.name)
        if launched is not None and same != folder.name:
            files.skip(folder, f"the same as {same}")
        elif launched is not None:
            found.append(launched)
            # Under the place that the kernel has in the profile.
            digests |= {f"{len(found)}/{name}": value for name, value in taken.items()}
    if not found:
        raise InvalidFile("no kernel of it could be read")
    parts = (
        pd.concat([getattr(each, part).assign(process=f"{place}") for place, each in enumerate(found)])
        for part in ("launches", "metrics", "rules")
    )
    launches = Launches(*parts)
    command = files.place / "command.yaml"
    data = (files.take("command", command, as_yaml) if command.exists() else None) or Fields(None)
    words, sections = (
        each if isinstance(each, list) else [] for each in map(data.get, ("launch_command", "sections"))
    )
    moment = moment_of(str(data.get("timestamp")))
    notes = f"Nsight Compute, {launches.count()}."
    if sections:
        notes += f" Sections: {', '.join(str(name)[:80] for name in sections[:40])}."
    files.digests = digests
    record = RunRecord(
        id=files.content_id("ncu"), source="ncu", profiled=True,
        created=moment.isoformat(timespec="seconds") if moment else
        file_time(_tables_of(folders[0])[0]),
        command=" ".join(map(str, words))[:4000] or None,
        notes=notes if moment else f"{notes} {FILE_TIME_NOTE}",
    )  # fmt: skip
    return [ImportedRun(record, files.place, launches.tables())]


def _kernel(files: RunFiles, folder: Path) -> Launches | None:
    """One kernel's launches from all of its tables."""
    launched: Launches | None = None
    tables: list[Table] = []

    def with_table(text: str) -> Launches:
        more = [table for table in find_tables(text)[0] if table.report in NCU]
        found = _launches([*tables, *more])
        tables.extend(more)
        return found

    for file in _tables_of(folder):
        launched = files.take(file.name, file, with_table, TABLE_LIMIT) or launched
    return launched


def _kernel_folders(directory: Path) -> list[Path]:
    """The folders of kernels in a folder, in their order."""
    try:
        return sorted(path for path in directory.iterdir() if not path.is_symlink() and _tables_of(path))
    except OSError:
        return []


def _tables_of(folder: Path) -> list[Path]:
    """The tables of a kernel's folder, the one with everything first."""
    if not _KERNEL_FOLDER.fullmatch(folder.name):
        return []
    files = [path for path in folder.glob("ncu.*.csv") if not path.is_symlink()]
    return sorted(files, key=lambda path: (path.name != DETAILS, path.name))
