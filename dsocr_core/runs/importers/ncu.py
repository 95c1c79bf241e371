"""Nsight Compute: a folder with a folder a kernel, or a table that lies by itself, as a profiled run.

A kernel's folder has `ncu.details.csv` and, often, the same again section by section; what a later file
adds is taken, what it repeats is not. Kernels come in the order of their folders, which is that of the
kernel summary they were chosen from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from dsocr_core.base.bounded_json import InvalidFile, Missing, read_bytes
from dsocr_core.runs.importers.imported import ImportedRun, NothingTaken, Row, Skipped, content_id
from dsocr_core.runs.importers.ncu_csv import Launch, is_ncu, launches
from dsocr_core.runs.importers.reading import (
    FILE_TIME_NOTE,
    MIB,
    TEXT_LIMIT,
    Head,
    as_text,
    as_yaml,
    clean,
    digest,
    file_time,
    unpacked,
)
from dsocr_core.runs.record import RunRecord

DETAILS, COMMAND = "ncu.details.csv", "command.yaml"
NCU_LIMIT = 96 * MIB
"""Bytes of a table, unpacked: some 150 launches a MiB of it with the sections that the documents name."""
KERNEL_LIMIT = 2_000
OWN_FOLDERS = ("analysis",)
_KERNEL_FOLDER = re.compile(r"kernel_(\d{1,6})_[0-9a-f]{32}")
_DIGESTS = frozenset({"classification_summary.csv", "metrics_summary.csv", "all_metrics_long.csv"})


def is_kernel_folder(directory: Path) -> bool:
    """Tell whether a folder is one kernel's, by its name and what lies in it."""
    return _KERNEL_FOLDER.fullmatch(directory.name) is not None and bool(_tables(directory))


def is_profile(directory: Path) -> bool:
    """Tell whether a folder is one kernel's, or has kernels' folders in it."""
    return is_kernel_folder(directory) or bool(kernel_folders(directory))


def unread_reason(file: Path) -> str:
    """Why a file of a profile's folder is not taken."""
    if file.name in _DIGESTS:
        return "a digest of the kernels' tables, which are taken themselves"
    return "not a file of a Nsight Compute folder"


def read_profile(directory: Path) -> list[ImportedRun]:
    """The kernels' folders of a folder as one run. Raises InvalidFile where none of them can be read."""
    return [_run(directory, kernel_folders(directory) or [directory])]


def own_folders(directory: Path) -> list[str]:
    """Folders of a profile that are part of it."""
    return [*OWN_FOLDERS, *(folder.name for folder in kernel_folders(directory))]


def is_table(head: Head) -> bool:
    return is_ncu(head.text)


def read_table(file: Path) -> list[ImportedRun]:
    """A table that lies by itself, also packed with gzip. Raises InvalidFile."""
    text = as_text(unpacked(read_bytes(file, NCU_LIMIT), NCU_LIMIT))
    found = launches(text)
    digests = {DETAILS: digest(text.encode())}
    notes = f"Nsight Compute, {_count(found)} in {clean(file.name)[:200]}. {FILE_TIME_NOTE}"
    record = RunRecord(
        id=content_id("ncu", digests), created=file_time(file), source="ncu", profiled=True, notes=notes
    )
    return [ImportedRun(record, file, launch_rows(found))]


def _run(directory: Path, folders: Sequence[Path]) -> ImportedRun:
    skipped: list[Skipped] = []
    looked_at: set[Path] = set()
    digests: dict[str, str] = {}
    found: list[Launch] = []
    seen: dict[str, str] = {}
    for folder in folders[:KERNEL_LIMIT]:
        launched, taken, left, files = _kernel(folder)
        skipped += left
        looked_at |= files
        if not launched:
            continue
        same = seen.setdefault("".join(sorted(taken.values())), folder.name)
        if same != folder.name:
            skipped.append(Skipped(folder, f"the same as {same}"))
            continue
        # The digests of a folder, under the place that its kernel has in the profile.
        digests |= {f"{len(seen)}/{name}": value for name, value in taken.items()}
        found += launched
    skipped += [Skipped(folder, f"more than {KERNEL_LIMIT:,} kernels") for folder in folders[KERNEL_LIMIT:]]
    if not found:
        raise NothingTaken("no kernel of it could be read", skipped)
    command = directory / COMMAND
    created, line, sections = _command(command, skipped, looked_at)
    notes = f"Nsight Compute, {_count(found)}."
    notes += f" Sections: {', '.join(sections)}." if sections else ""
    record = RunRecord(
        id=content_id("ncu", digests),
        created=created or file_time(folders[0] / DETAILS if (folders[0] / DETAILS).exists() else folders[0]),
        source="ncu",
        command=line,
        profiled=True,
        notes=notes if created else f"{notes} {FILE_TIME_NOTE}",
    )
    return ImportedRun(record, directory, launch_rows(found), {}, tuple(skipped), frozenset(looked_at))


def _kernel(folder: Path) -> tuple[list[Launch], dict[str, str], list[Skipped], set[Path]]:
    """One kernel's launches from all of its tables, the digests of those that were taken, what was not."""
    launched: dict[tuple[str, int], Launch] = {}
    taken: dict[str, str] = {}
    skipped: list[Skipped] = []
    tables = _tables(folder)
    for file in tables:
        try:
            content = read_bytes(file, NCU_LIMIT)
            found = {(launch.process, launch.id): launch for launch in launches(as_text(content))}
            more = [_beyond(launched[key], launch) for key, launch in found.items() if key in launched]
        except InvalidFile as error:
            skipped.append(Skipped(file, str(error)))
            continue
        launched = found | launched | {(launch.process, launch.id): launch for launch in more}
        taken[file.name] = digest(content)
    if launched and not (folder / DETAILS).exists():
        skipped.append(Skipped(folder / DETAILS, "not there; the sections' own files are taken"))
    return list(launched.values()), taken, skipped, set(tables)


def _beyond(known: Launch, launch: Launch) -> Launch:
    """A launch with what another table of the same measurement adds to it. Raises InvalidFile."""
    if launch.kernel != known.kernel:
        raise InvalidFile(f"its launch {launch.id} is another kernel than in {DETAILS}")
    had = {(metric.section, metric.name): metric for metric in known.metrics}
    new = []
    for metric in launch.metrics:
        first = had.get((metric.section, metric.name))
        if first is None:
            new.append(metric)
        elif first != metric:
            raise InvalidFile(
                f"{metric.name[:80]} is {metric.text[:40]} here and {first.text[:40]} in {DETAILS}"
            )
    rules = [rule for rule in launch.rules if rule not in known.rules]
    return replace(known, metrics=known.metrics + new, rules=known.rules + rules)


def _command(
    file: Path, skipped: list[Skipped], looked_at: set[Path]
) -> tuple[str | None, str | None, list[str]]:
    """Tell when a profile was taken, the profiled command, the sections; None where nothing says so."""
    try:
        data = as_yaml(as_text(read_bytes(file, TEXT_LIMIT)))
        looked_at.add(file)
        words, sections = data.get("launch_command"), data.get("sections")
        line = " ".join(map(str, words)) if isinstance(words, list) else None
        names = [str(name)[:80] for name in sections[:40]] if isinstance(sections, list) else []
        return _time(data.get("timestamp")), line and line[:4000], names
    except Missing:
        return None, None, []
    except InvalidFile as error:
        looked_at.add(file)
        skipped.append(Skipped(file, str(error)))
        return None, None, []


def _time(stamp: object) -> str | None:
    try:
        moment = datetime.fromisoformat(str(stamp))
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC).isoformat(timespec="seconds")
    except OverflowError:
        return None


def launch_rows(found: Sequence[Launch]) -> dict[str, list[Row]]:
    """Launches as rows of the history's tables, numbered in their order."""
    rows: dict[str, list[Row]] = {"kernel_launches": [], "kernel_metrics": [], "kernel_rules": []}
    for number, launch in enumerate(found):
        of = {"number": number, "kernel": launch.kernel, "launch": launch.id}
        rows["kernel_launches"].append(
            of
            | {
                "stage": launch.stage.value if launch.stage else None,
                "block": launch.block,
                "grid": launch.grid,
                "device": launch.device,
                "compute_capability": launch.compute_capability,
            }
        )
        rows["kernel_metrics"] += [
            of
            | {"section": metric.section, "metric": metric.name, "value": metric.value, "unit": metric.unit,
               "text": metric.text}
            for metric in launch.metrics
        ]  # fmt: skip
        rows["kernel_rules"] += [
            of
            | {"section": rule.section, "rule": rule.name, "type": rule.type, "text": rule.text,
               "speedup_type": rule.speedup_type, "speedup_percent": rule.speedup_percent}
            for rule in launch.rules
        ]  # fmt: skip
    return rows


def _count(found: Sequence[Launch]) -> str:
    names = len({launch.kernel for launch in found})
    launched = "1 launch" if len(found) == 1 else f"{len(found):,} launches"
    return f"{launched} of {names:,} kernel{'s' if names != 1 else ''}"


def kernel_folders(directory: Path) -> list[Path]:
    """The folders of kernels in a folder, in their order."""
    try:
        below = sorted(path for path in directory.iterdir() if not path.is_symlink() and path.is_dir())
    except OSError:
        return []
    return [path for path in below if is_kernel_folder(path)]


def _tables(folder: Path) -> list[Path]:
    """A kernel's tables, the one with everything first."""
    try:
        files = [
            path
            for path in folder.iterdir()
            if path.name.startswith("ncu.") and path.suffix == ".csv" and not path.is_symlink()
        ]
    except OSError:
        return []
    return sorted(files, key=lambda path: (path.name != DETAILS, path.name))
