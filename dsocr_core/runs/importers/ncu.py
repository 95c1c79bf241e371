"""Nsight Compute: `ncu --csv` of the pages details and raw, and its averages by kernel, as a profiled run.

A table lies by itself, or in a folder with a folder a kernel, `kernel_0001_<md5>/`: there `ncu.details.csv`
and, often, the same again section by section; what a later file adds is taken, what it repeats is not.
Texts of rules are texts: nothing in them is followed.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa

from dsocr_core.base.bounded_json import InvalidFile, Missing, read_bytes
from dsocr_core.runs.importers.imported import EmptyImport, ImportedRun, Skipped, content_id
from dsocr_core.runs.importers.reading import (
    FILE_TIME_NOTE,
    TABLE_LIMIT,
    TEXT_LIMIT,
    as_text,
    as_yaml,
    clean,
    digest,
    file_time,
)
from dsocr_core.runs.importers.stages import stage_of_range
from dsocr_core.runs.importers.tables import (
    NCU,
    NCU_RAW,
    NCU_SUMMARY,
    Table,
    decimal_comma,
    figures,
    find_tables,
)
from dsocr_core.runs.record import RunRecord

DETAILS, COMMAND = "ncu.details.csv", "command.yaml"
OWN_FOLDERS = ("analysis",)
KERNEL_LIMIT, LAUNCH_LIMIT, METRIC_LIMIT = 2_000, 20_000, 2_000_000
"""Folders of a profile; launches and their metrics of a table."""
_TEXT_LIMIT = 4_000
_KERNEL_FOLDER = re.compile(r"kernel_(\d{1,6})_[0-9a-f]{32}")
_DIGESTS = frozenset({"classification_summary.csv", "metrics_summary.csv", "all_metrics_long.csv"})
_LAUNCH = {
    "ID": "id", "Process ID": "process", "Kernel Name": "kernel", "Block Size": "block", "Grid Size": "grid",
    "Device": "device", "CC": "compute_capability",
}  # fmt: skip
_METRIC = {"Section Name": "section", "Metric Name": "metric", "Metric Unit": "unit", "Metric Value": "text"}
_RULE = {
    "Rule Name": "rule", "Rule Type": "type", "Rule Description": "said",
    "Estimated Speedup Type": "speedup_type", "Estimated Speedup": "speedup",
}  # fmt: skip
_NO_METRIC = frozenset({"Process Name", "Host Name", "Kernel Time", "Context", "Stream", *_LAUNCH})
_RANGES = ("Push/Pop_Range", "Start/Stop_Range")
_RANGE_NAME = re.compile(r"<default domain>:([^:\"]+)|(?:^|[\s\"])[^:\"\s]+:([^:\"]+):")
_COUNTS = frozenset(
    {"cycle", "inst", "block", "thread", "byte", "request", "sector", "register/thread"}
)  # fmt: skip
"""Units of what is counted."""
_KEY = ["process", "id"]


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
        """How many, in words."""
        names, number = self.launches["kernel"].nunique(), len(self.launches)
        launched = "1 launch" if number == 1 else f"{number:,} launches"
        return f"{launched} of {names:,} kernel{'s' if names != 1 else ''}"


# --- a table ----------------------------------------------------------------------------------------


def launches_of(text: str) -> Launches:
    """The launches of the one table of Nsight Compute in a text. Raises InvalidFile."""
    return read_launches([table for table in find_tables(text).read if table.report in NCU])


def read_launches(tables: Sequence[Table]) -> Launches:
    """The launches of a table. Raises InvalidFile, which names the row."""
    if not tables:
        raise InvalidFile("not a table of Nsight Compute: no head with ID and Kernel Name")
    if len(tables) > 1:
        raise InvalidFile(f"it has {len(tables)} tables of Nsight Compute: give each a file of its own")
    (table,) = tables
    rows = table.rows.rename(columns=_LAUNCH | _METRIC | _RULE | {"Average": "text"}, errors="ignore")
    units = None
    if table.report == NCU_RAW:
        if (rows.iloc[0].reindex(["id", "kernel"]) != "").any():
            raise InvalidFile(f"row {rows.index[0]} has no units")
        units, rows = rows.iloc[0], rows.iloc[1:]
        if not len(rows):
            raise InvalidFile("no kernel follows the units")
    for name in (*_LAUNCH.values(), *_METRIC.values(), *_RULE.values()):
        if name not in rows:
            rows[name] = None
    if units is None and len(short := rows[rows["text"].isna()]):
        raise InvalidFile(f"not whole: row {short.index[0]} has no value")
    if table.report == NCU_SUMMARY:  # it has no launches: a shape of a kernel stands for one
        shape = ["process", "kernel", "block", "grid"]
        rows["id"] = rows.groupby(shape, sort=False, dropna=False).ngroup().astype(str)
    launches = _launches(rows)
    rows = rows.assign(id=rows["id"].astype(int), process=rows["process"].fillna(""))
    cells = _cells_of_details(rows) if units is None else _cells_of_raw(rows, units)
    if table.report == NCU_SUMMARY:
        often = rows.assign(section="", metric="Invocations", unit="", text=rows["Invocations"])
        cells = pd.concat([cells, often[cells.columns]]).sort_index(kind="stable")
    rules = _texts(rows[(rows["metric"].fillna("") == "") & (rows["rule"].fillna("") != "")])
    rules = rules[[*_KEY, "section", *_RULE.values()]].rename(columns={"said": "text"})
    metrics = _metrics(cells)
    speedup = rules["speedup"].fillna("")
    units_of = [*metrics["unit"], *[None] * len(rules)]
    comma = decimal_comma(pd.concat([metrics["text"], speedup]), units_of, _COUNTS)
    metrics["value"] = figures(metrics["text"], comma)
    rules["speedup_percent"] = figures(speedup, comma)
    rules = rules.drop(columns="speedup").dropna(subset="text").drop_duplicates()
    return Launches(launches, metrics.reset_index(drop=True), rules.reset_index(drop=True))


def _launches(rows: pd.DataFrame) -> pd.DataFrame:
    for number, identity, kernel in zip(rows.index, rows["id"], rows["kernel"], strict=True):
        if not re.fullmatch(r"[0-9]{1,9}", identity or ""):
            raise InvalidFile(f"row {number}: '{(identity or '')[:40]}' is no launch's ID")
        if not kernel:
            raise InvalidFile(f"row {number} names no kernel")
    ranges = [name for name in rows if any(word in name for word in _RANGES)]
    found = _texts(rows[[*_LAUNCH.values(), *ranges]])
    found = found.assign(id=found["id"].astype(int), process=found["process"].fillna(""))
    first = found.drop_duplicates(_KEY)
    if len(first) > LAUNCH_LIMIT:
        raise InvalidFile(f"more than {LAUNCH_LIMIT:,} launches")
    kernels = found[_KEY].merge(first[[*_KEY, "kernel"]], on=_KEY)["kernel"]
    other = found["kernel"].to_numpy() != kernels.to_numpy()
    if other.any():
        row = found[other].iloc[0]
        raise InvalidFile(f"row {row.name}: launch {row['id']} is another kernel above")
    stages = [_stage(" ".join(filter(None, texts))) for texts in first[ranges].itertuples(index=False)]
    return first.assign(stage=pd.Series(stages, first.index, object)).drop(columns=ranges)


def _stage(ranges: str) -> str | None:
    """Name the stage of the innermost range that names one; ncu lists the outermost first."""
    found = [stage_of_range(match[1] or match[2]) for match in _RANGE_NAME.finditer(ranges)]
    return next((stage.value for stage in reversed(found) if stage is not None), None)


def _cells_of_details(rows: pd.DataFrame) -> pd.DataFrame:
    """Process, id, section, metric, unit and text of each row that has a metric."""
    named = rows["metric"] != ""
    if len(wrong := rows[~named & (rows["rule"].fillna("") == "") & (rows["section"].fillna("") == "")]):
        raise InvalidFile(f"row {wrong.index[0]} has no metric and no rule")
    return rows.loc[named, [*_KEY, *_METRIC.values()]]


def _cells_of_raw(rows: pd.DataFrame, units: pd.Series) -> pd.DataFrame:
    """The same of a page with a row a launch and a column a metric."""
    known = {*_NO_METRIC, *_LAUNCH.values(), *_METRIC.values(), *_RULE.values()}
    names = [name for name in rows if name not in known and not any(word in name for word in _RANGES)]
    cells = rows[[*_KEY, *names]].melt(_KEY, names, var_name="metric", value_name="text", ignore_index=False)
    cells = cells[cells["text"] != ""]
    return cells.assign(section="", unit=cells["metric"].map(units)).sort_index(kind="stable")


def _metrics(cells: pd.DataFrame) -> pd.DataFrame:
    """Each metric once. Raises InvalidFile for one with two values; one in two units is two metrics."""
    cells = _texts(cells.assign(text=cells["text"].fillna("")), keep="text").drop_duplicates()
    if len(cells) > METRIC_LIMIT:
        raise InvalidFile(f"more than {METRIC_LIMIT:,} metrics")
    name = [*_KEY, "section", "metric"]
    if len(twice := cells[cells.duplicated([*name, "unit"])]):
        row = twice.iloc[0]
        same = (cells[[*name, "unit"]].fillna("") == row[[*name, "unit"]].fillna("")).all(axis=1)
        raise InvalidFile(
            f"row {row.name}: {row['metric'][:80]} of launch {row['id']} is {row['text'][:40]}, "
            f"above {cells.loc[same, 'text'].iloc[0][:40]}"
        )
    again = cells.duplicated(name)
    return cells.assign(
        metric=cells["metric"].where(~again, cells["metric"] + " (" + cells["unit"].fillna("") + ")")
    )


def _texts(frame: pd.DataFrame, keep: str = "") -> pd.DataFrame:
    """A frame with texts of bounded length, None for empty ones."""
    texts = {
        name: pd.Series(
            [(each[:_TEXT_LIMIT] or (each if name == keep else None)) if each is not None else None
             for each in frame[name]], frame.index, object,
        )
        for name in frame.columns if name != "id" or frame[name].dtype == object
    }  # fmt: skip
    return frame.assign(**texts)


# --- runs -------------------------------------------------------------------------------------------


def read_table(file: Path, text: str, tables: Sequence[Table]) -> ImportedRun:
    """A table that lies by itself. Raises InvalidFile."""
    found = read_launches(tables)
    record = RunRecord(
        id=content_id("ncu", {DETAILS: digest(text.encode())}),
        created=file_time(file),
        source="ncu",
        profiled=True,
        notes=f"Nsight Compute, {found.count()} in {clean(file.name)[:200]}. {FILE_TIME_NOTE}",
    )
    return ImportedRun(record, file, found.tables())


def is_profile(directory: Path) -> bool:
    """Tell whether a folder is one kernel's, or has kernels' folders in it."""
    return _is_kernel(directory) or bool(kernel_folders(directory))


def own_folders(directory: Path) -> list[str]:
    """Folders of a profile that are part of it."""
    return [*OWN_FOLDERS, *(folder.name for folder in kernel_folders(directory))]


def unread_reason(file: Path) -> str:
    """Why a file of a profile's folder is not taken."""
    if file.name in _DIGESTS:
        return "a digest of the kernels' tables, which are taken themselves"
    return "not a file of a Nsight Compute folder"


def read_profile(directory: Path) -> ImportedRun:
    """The kernels' folders of a folder as one run, in their order. Raises InvalidFile for none of use."""
    folders = kernel_folders(directory) or [directory]
    skipped = [Skipped(folder, f"more than {KERNEL_LIMIT:,} kernels") for folder in folders[KERNEL_LIMIT:]]
    looked_at: set[Path] = set()
    digests: dict[str, str] = {}
    found: list[Launches] = []
    names: dict[str, str] = {}
    for folder in folders[:KERNEL_LIMIT]:
        looked_at |= {*_tables(folder)}
        launched, taken = _kernel(folder, skipped)
        if launched is None:
            continue
        same = names.setdefault("".join(sorted(taken.values())), folder.name)
        if same != folder.name:
            skipped.append(Skipped(folder, f"the same as {same}"))
            continue
        # The digests of a folder, under the place that its kernel has in the profile.
        digests |= {f"{len(names)}/{name}": value for name, value in taken.items()}
        found.append(launched)
    if not found:
        raise EmptyImport("no kernel of it could be read", skipped)
    all_of = Launches(*(
        pd.concat([getattr(each, part).assign(process=f"{place}") for place, each in enumerate(found)])
        for part in ("launches", "metrics", "rules")
    ))  # fmt: skip
    created, line, sections = _command(directory / COMMAND, skipped, looked_at)
    notes = f"Nsight Compute, {all_of.count()}."
    notes += f" Sections: {', '.join(sections)}." if sections else ""
    first = folders[0] / DETAILS
    record = RunRecord(
        id=content_id("ncu", digests),
        created=created or file_time(first if first.exists() else folders[0]),
        source="ncu",
        command=line,
        profiled=True,
        notes=notes if created else f"{notes} {FILE_TIME_NOTE}",
    )
    return ImportedRun(record, directory, all_of.tables(), {}, tuple(skipped), frozenset(looked_at))


def _kernel(folder: Path, skipped: list[Skipped]) -> tuple[Launches | None, dict[str, str]]:
    """One kernel's launches from all of its tables, and the digests of those that were taken."""
    launched: Launches | None = None
    taken: dict[str, str] = {}
    for file in _tables(folder):
        try:
            content = read_bytes(file, TABLE_LIMIT)
            found = launches_of(as_text(content))
            launched = found if launched is None else _with_more(launched, found)
            taken[file.name] = digest(content)
        except InvalidFile as error:
            skipped.append(Skipped(file, str(error)))
    if launched is not None and not (folder / DETAILS).exists():
        skipped.append(Skipped(folder / DETAILS, "not there; the sections' own files are taken"))
    return launched, taken


def _with_more(known: Launches, found: Launches) -> Launches:
    """Launches with what another table of the same measurement adds to them. Raises InvalidFile."""
    both = found.launches.merge(known.launches, on=_KEY, suffixes=("", "_known"))
    for row in both[both["kernel"] != both["kernel_known"]].to_dict("records"):
        raise InvalidFile(f"its launch {row['id']} is another kernel than in {DETAILS}")
    name = [*_KEY, "section", "metric"]
    both = found.metrics.merge(known.metrics, on=name, suffixes=("", "_known"))
    differs = (both["text"] != both["text_known"]) | (
        both["unit"].fillna("") != both["unit_known"].fillna("")
    )
    for row in both[differs].to_dict("records"):
        raise InvalidFile(
            f"{row['metric'][:80]} is {row['text'][:40]} here and {row['text_known'][:40]} in {DETAILS}"
        )
    keys = {"launches": _KEY, "metrics": name, "rules": None}
    return Launches(*(
        pd.concat([getattr(known, part), getattr(found, part)]).drop_duplicates(of)
        for part, of in keys.items()
    ))  # fmt: skip


def _command(
    file: Path, skipped: list[Skipped], looked_at: set[Path]
) -> tuple[str | None, str | None, list[str]]:
    """Tell when a profile was taken, the profiled command, the sections; None where nothing says so."""
    try:
        data = as_yaml(as_text(read_bytes(file, TEXT_LIMIT)))
    except Missing:
        return None, None, []
    except InvalidFile as error:
        skipped.append(Skipped(file, str(error)))
        data = {}
    looked_at.add(file)
    words, sections = data.get("launch_command"), data.get("sections")
    line = " ".join(map(str, words))[:4000] if isinstance(words, list) else None
    created = None
    with suppress(ValueError, OverflowError):
        moment = datetime.fromisoformat(str(data.get("timestamp")))
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        created = moment.astimezone(UTC).isoformat(timespec="seconds")
    return created, line, [str(name)[:80] for name in sections[:40]] if isinstance(sections, list) else []


def kernel_folders(directory: Path) -> list[Path]:
    """The folders of kernels in a folder, in their order."""
    try:
        below = sorted(path for path in directory.iterdir() if not path.is_symlink() and path.is_dir())
    except OSError:
        return []
    return [path for path in below if _is_kernel(path)]


def _is_kernel(directory: Path) -> bool:
    return _KERNEL_FOLDER.fullmatch(directory.name) is not None and bool(_tables(directory))


def _tables(folder: Path) -> list[Path]:
    """A kernel's tables, the one with everything first."""
    try:
        files = [path for path in folder.glob("ncu.*.csv") if not path.is_symlink()]
    except OSError:
        return []
    return sorted(files, key=lambda path: (path.name != DETAILS, path.name))
