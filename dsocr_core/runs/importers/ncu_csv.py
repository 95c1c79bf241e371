"""Nsight Compute: the CSV that `ncu --csv --page details` or `--page raw` prints, of one kernel or many.

Also the averages of `--print-summary per-kernel`, a launch a kernel and shape. What the profiled program
printed before the table and between its rows is left out. Columns are found by name, so versions with more or
fewer of them are read alike; the unit of a metric is that of its own row. The table is taken whole or not at
all. Texts of rules are texts: nothing in them is followed.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.models.stages import Stage
from dsocr_core.runs.importers.launches import stage_of_range

LAUNCH_LIMIT = 20_000
METRIC_LIMIT = 2_000_000
"""Over all launches of a file."""
_TEXT_LIMIT = 4_000
"""Characters of a name, a unit or a rule's text."""
_BEFORE_LIMIT = 10_000
"""Lines of the profiled program and of ncu itself before the table."""
_OWN_LINE = "=="
"""Begin of what ncu says about itself, also between rows."""
_ID, _KERNEL = "ID", "Kernel Name"
_SECTION, _METRIC, _UNIT, _VALUE = "Section Name", "Metric Name", "Metric Unit", "Metric Value"
_RULE, _RULE_TYPE, _RULE_TEXT = "Rule Name", "Rule Type", "Rule Description"
_SPEEDUP_TYPE, _SPEEDUP = "Estimated Speedup Type", "Estimated Speedup"
_TIMES, _AVERAGE = "Invocations", "Average"
_LAUNCH_COLUMNS = frozenset(
    {
        _ID, _KERNEL, "Process ID", "Process Name", "Host Name", "Kernel Time", "Context", "Stream",
        "Block Size", "Grid Size", "Device", "CC",
    }
)  # fmt: skip
"""Columns of the raw page; every other column is a metric."""
_RANGES = ("Push/Pop_Range", "Start/Stop_Range")
"""In the names of columns that hold NVTX ranges."""
_RANGE_NAME = re.compile(r"<default domain>:([^:\"]+)|(?:^|[\s\"])[^:\"\s]+:([^:\"]+):")

_POINT = re.compile(r"[-+]?(\d+|\d{1,3}(,\d{3})+)(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
_COMMA = re.compile(r"[-+]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?([eE][-+]?\d+)?", re.ASCII)
_DIGITS = re.compile(r"[-+]?\d[\d.,]*([eE][-+]?\d+)?", re.ASCII)
"""A figure in any of the two ways to write one; what is none is a text."""
_MOST = 1e18


@dataclass(frozen=True)
class Metric:
    """A figure of a launch. `value` None where it is a text, or was not measured; `text` is what stands."""

    section: str | None
    """None on the raw page, which has no sections."""
    name: str
    unit: str | None
    value: float | None
    text: str


@dataclass(frozen=True)
class Rule:
    """Finding of a rule of Nsight Compute about a launch."""

    section: str | None
    name: str
    type: str | None
    """OPT: worth a try; INF: for information; WRN: a warning."""
    text: str
    speedup_type: str | None
    speedup_percent: float | None
    """Estimated: of the kernel (local) or of the whole (global)."""


@dataclass
class Launch:
    """One launch of a kernel that was profiled."""

    id: int
    process: str
    kernel: str
    block: str | None
    grid: str | None
    device: str | None
    compute_capability: str | None
    stage: Stage | None
    """Stage of the innermost NVTX range that is a stage's."""
    metrics: list[Metric] = field(default_factory=list)
    rules: list[Rule] = field(default_factory=list)


def is_ncu(text: str) -> bool:
    """Tell whether a text holds the head of such a table, within the first lines of it."""
    return _head_at(text) is not None


def launches(text: str) -> tuple[Launch, ...]:
    """The launches of a table in its order. Raises InvalidFile, which names the row."""
    start = _head_at(text)
    if start is None:
        raise InvalidFile("not a table of Nsight Compute: no head with ID and Kernel Name")
    whole = text.endswith("\n")
    rows = _rows(text[start:])
    head = next(rows)
    if len(set(head)) != len(head):
        raise InvalidFile("a column appears twice")
    table = _Table(head)
    take = table.details if _METRIC in table.at else table.raw
    # One by one: a table may have a million rows. The last one shows whether the table is whole.
    last: tuple[int, list[str]] | None = None
    for number, row in enumerate(rows, start=2):
        if row:
            if last is not None:
                take(*last)
            last = number, row
    if last is None:
        raise InvalidFile("a head and no kernels")
    if not whole and len(last[1]) < len(head):
        raise InvalidFile(f"not whole: row {last[0]} is cut short")
    take(*last)
    return table.finished()


def _head_at(text: str) -> int | None:
    """Find where the table's head begins: after what the program and ncu itself printed."""
    at = 0
    for _ in range(_BEFORE_LIMIT):
        end = text.find("\n", at)
        line = text[at : end if end >= 0 else len(text)]
        cells = [cell.strip().strip('"') for cell in line.split(",")]
        if _KERNEL in cells and (cells[0] == _ID or {_TIMES, _METRIC, _AVERAGE} <= set(cells)):
            return at
        if end < 0:
            return None
        at = end + 1
    return None


def _rows(text: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(_own_lines(text), strict=True)
    except csv.Error as error:
        raise InvalidFile(f"not whole: {error}") from error


def _own_lines(text: str) -> Iterator[str]:
    """The table's lines: ncu quotes every cell, so in a row or after one nothing else begins with a quote."""
    quoted, inside = text.startswith('"'), False
    for line in io.StringIO(text, newline=""):
        if inside or not (
            line.startswith(_OWN_LINE) or (quoted and line.strip() and not line.startswith('"'))
        ):
            inside ^= line.count('"') % 2 == 1
            yield line


class _Table:
    """Rows on their way to launches; figures are read at the end, when it is clear how they are written."""

    def __init__(self, head: Sequence[str]) -> None:
        self.head = [name.strip() for name in head]
        self.at = {name: place for place, name in enumerate(self.head)}
        self.ranges = [place for name, place in self.at.items() if any(word in name for word in _RANGES)]
        self.found: dict[tuple[str, int], Launch] = {}
        self.figures: dict[tuple[str, int], dict[tuple[str | None, str], tuple[str | None, str, int]]] = {}
        self.said: list[tuple[Launch, Rule, str, int]] = []
        """Rules with their estimated speedup as it stands."""
        self.metrics = 0
        self.units: dict[str, str | None] | None = None
        """Units of the raw page's columns, which its first row has."""
        self.value = _VALUE if _ID in self.at else _AVERAGE
        self.shapes: dict[tuple[str | None, ...], int] = {}
        """Shapes of a summary, which has no launches: what stands for one, by its number."""
        self.metric_columns = [
            name for name in self.head if name not in _LAUNCH_COLUMNS and self.at[name] not in self.ranges
        ]

    def cell(self, row: Sequence[str], name: str) -> str | None:
        place = self.at.get(name)
        if place is None or place >= len(row):
            return None
        return row[place].strip()[:_TEXT_LIMIT] or None

    def launch(self, row: Sequence[str], number: int) -> Launch:
        identity, kernel = self.cell(row, _ID), self.cell(row, _KERNEL)
        if self.value == _AVERAGE:
            shape = tuple(self.cell(row, name) for name in ("Process ID", _KERNEL, "Block Size", "Grid Size"))
            identity = str(self.shapes.setdefault(shape, len(self.shapes)))
        if identity is None or not (identity.isascii() and identity.isdigit() and len(identity) < 10):
            raise InvalidFile(f"row {number}: '{(identity or '')[:40]}' is no launch's ID")
        if kernel is None:
            raise InvalidFile(f"row {number} names no kernel")
        key = (self.cell(row, "Process ID") or "", int(identity))
        known = self.found.get(key)
        if known is None:
            if len(self.found) >= LAUNCH_LIMIT:
                raise InvalidFile(f"more than {LAUNCH_LIMIT:,} launches")
            known = self.found[key] = Launch(
                key[1], key[0], kernel, self.cell(row, "Block Size"), self.cell(row, "Grid Size"),
                self.cell(row, "Device"), self.cell(row, "CC"), self.stage(row),
            )  # fmt: skip
            self.figures[key] = {}
        elif known.kernel != kernel:
            raise InvalidFile(f"row {number}: launch {identity} is another kernel above")
        return known

    def stage(self, row: Sequence[str]) -> Stage | None:
        """Name the stage of the innermost range that names one; ncu lists the outermost first."""
        found = None
        for place in self.ranges:
            for match in _RANGE_NAME.finditer(row[place] if place < len(row) else ""):
                found = stage_of_range(match[1] or match[2]) or found
        return found

    def details(self, number: int, row: Sequence[str]) -> None:
        if len(row) > len(self.head) or len(row) <= self.at.get(self.value, len(self.head)):
            raise InvalidFile(f"row {number} has {len(row)} of {len(self.head)} cells")
        launch = self.launch(row, number)
        section, metric = self.cell(row, _SECTION), self.cell(row, _METRIC)
        if metric is not None:
            self.metric(
                launch, section, metric, self.cell(row, _UNIT), self.cell(row, self.value) or "", number
            )
            if self.value == _AVERAGE:
                self.metric(launch, None, _TIMES, None, self.cell(row, _TIMES) or "", number)
        elif (rule := self.cell(row, _RULE)) is not None:
            self.rule(launch, section, rule, row, number)
        elif section is None:
            raise InvalidFile(f"row {number} has no metric and no rule")

    def rule(self, launch: Launch, section: str | None, name: str, row: Sequence[str], number: int) -> None:
        text = self.cell(row, _RULE_TEXT)
        if text is None:
            return
        said = Rule(section, name, self.cell(row, _RULE_TYPE), text, self.cell(row, _SPEEDUP_TYPE), None)
        self.said.append((launch, said, self.cell(row, _SPEEDUP) or "", number))

    def raw(self, number: int, row: Sequence[str]) -> None:
        """One row a launch, a column a metric; the first row has the units."""
        if self.units is None:
            if self.cell(row, _ID) is not None:
                raise InvalidFile(f"row {number} has no units")
            self.units = {name: self.cell(row, name) for name in self.metric_columns}
            return
        if len(row) != len(self.head):
            raise InvalidFile(f"row {number} has {len(row)} of {len(self.head)} cells")
        launch = self.launch(row, number)
        for name in self.metric_columns:
            value = self.cell(row, name)
            if value is not None:
                self.metric(launch, None, name[:_TEXT_LIMIT], self.units[name], value, number)

    def metric(
        self, launch: Launch, section: str | None, name: str, unit: str | None, text: str, number: int
    ) -> None:
        figures = self.figures[launch.process, launch.id]
        known = figures.get((section, name))
        if known is not None and known[:2] == (unit, text):
            return
        if known is not None and known[0] == unit:
            raise InvalidFile(
                f"row {number}: {name[:80]} of launch {launch.id} is {text[:40]}, above {known[1][:40]}"
            )
        self.metrics += 1
        if self.metrics > METRIC_LIMIT:
            raise InvalidFile(f"more than {METRIC_LIMIT:,} metrics")
        # A section may have two metrics of one name in different units.
        figures[section, name if known is None else f"{name} ({unit})"] = (unit, text, number)

    def finished(self) -> tuple[Launch, ...]:
        if not self.found:
            raise InvalidFile("no kernel follows the units")
        decimal_comma = self._decimal_comma()
        for key, figures in self.figures.items():
            for (section, name), (unit, text, _) in figures.items():
                value = figure_of(text, decimal_comma)
                self.found[key].metrics.append(Metric(section, name, unit, value, text))
        for launch, rule, speedup, _ in self.said:
            rule = replace(rule, speedup_percent=figure_of(speedup, decimal_comma))
            if rule not in launch.rules:
                launch.rules.append(rule)
        return tuple(self.found.values())

    def _decimal_comma(self) -> bool:
        """Tell how the table writes its figures: one way for all, ncu's own unless that cannot be."""
        written = [
            (text, number) for figures in self.figures.values() for _, text, number in figures.values()
        ]
        written += [(text, number) for _, _, text, number in self.said]
        numeric = [(text, number) for text, number in written if _DIGITS.fullmatch(text)]
        strange = [(text, number) for text, number in numeric if not _POINT.fullmatch(text)]
        if not strange:
            return False
        wrong = next(((text, number) for text, number in numeric if not _COMMA.fullmatch(text)), None)
        if wrong is not None:
            raise InvalidFile(
                f"row {wrong[1]}: '{wrong[0][:40]}' and '{strange[0][0][:40]}' in row {strange[0][1]} are "
                "figures of different locales"
            )
        return True


def figure_of(text: str, decimal_comma: bool = False) -> float | None:
    """A figure as ncu writes it: 1,234.5, or 1.234,5 where the locale says so. None for a text."""
    pattern = _COMMA if decimal_comma else _POINT
    if len(text) > 40 or not pattern.fullmatch(text):
        return None
    text = text.replace("." if decimal_comma else ",", "").replace(",", ".")
    value = float(text)
    return value if abs(value) <= _MOST else None
