"""Tables of Nsight Systems and Nsight Compute in a text, found by their columns, whatever stands around them.

Rows are read by `csv`, strictly, and kept as a frame of texts: `pandas.read_csv` fills up a row that is cut
short and moves one that is too long, without a word.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from dsocr_core.base.bounded_json import InvalidFile
from dsocr_core.runs.importers.reading import FileProbe

NCU_DETAILS, NCU_SUMMARY, NCU_RAW = NCU = ("ncu details", "ncu summary", "ncu raw")
REPORTS: Mapping[str, str] = {
    NCU_DETAILS: "id,kernel name,metric name,metric value",
    NCU_SUMMARY: "kernel name,invocations,metric name,avg",
    NCU_RAW: "id,kernel name",
    "cuda_gpu_kern_gb_sum": "total time,instances,gridxyz,blockxyz,name",
    "nvtx_gpu_proj_sum": "total time,instances,total range time,range",
    "nvtx_sum": "total time,instances,style,range",
    "nvtx_pushpop_sum": "total time,instances,range",
    "cuda_gpu_sum": "total time,instances,category,operation",
    "cuda_gpu_kern_sum": "total time,instances,name",
    "cuda_api_sum": "total time,calls,name",
    "cuda_gpu_trace": "start,duration,grid,name",
}
"""Columns that tell a report from the others; the first whose columns are there is meant."""
_SYNONYMS = {
    "average": "avg", "proj avg": "avg", "median": "med", "proj med": "med", "minimum": "min",
    "proj min": "min", "maximum": "max", "proj max": "max", "proj stddev": "stddev",
    "range instances": "instances", "total proj time": "total time", "num calls": "calls", "grdx": "grid",
}  # fmt: skip
"""Names of Nsight Systems' columns in some report or version, and here."""
_COLUMN = re.compile(r"\s*(.*?)\s*(?:\(([^()]*)\))?\s*")
_MAY_BE_HEAD = re.compile(r"Name|Range|Operation|Event")
_UNREAD = frozenset({"time", "total", "start", "duration", "range", "count"})
"""First columns of Nsight Systems' other reports."""
_ANNOUNCED = re.compile(r"Processing \[.*/(\w+)\.py|^\s*\*\* [^(]*\((\w+)\):")
_NSYS_SPEAKS = (
    "Processing [", "Generating ", "Exporting ", "Using ", "NOTICE", "SKIPPED", "WARNING", "ERROR", "**",
)  # fmt: skip
_NCU_SPEAKS = "=="
_HEAD_LIMIT = 200_000
"""Characters of a head: a raw page has a column a metric."""

_POINT = re.compile(r"[-+]?(\d+|[1-9]\d{0,2}(,\d{3})+)(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
_COMMA = re.compile(r"[-+]?(\d+|[1-9]\d{0,2}(\.\d{3})+)(,\d+)?([eE][-+]?\d+)?", re.ASCII)
_DIGITS = re.compile(r"[-+]?\d[\d.,]*([eE][-+]?\d+)?", re.ASCII)
_MOST, _MOST_CHARACTERS = 1e18, 40


@dataclass(frozen=True)
class Head:
    """The first line of a table."""

    report: str | None
    """None for a report of Nsight Systems that is not read."""
    columns: tuple[str, ...]
    units: Mapping[str, str]
    mark: str
    quoted: bool


@dataclass(frozen=True)
class Table:
    """A report's rows as texts, by their line in the file; None where a row is shorter than the head."""

    report: str
    units: Mapping[str, str]
    """By column, where the head names one."""
    rows: pd.DataFrame


@dataclass(frozen=True)
class Tables:
    """All tables of a text."""

    read: tuple[Table, ...]
    unread: tuple[str, ...]
    """Names of reports of Nsight Systems that are not read."""


def has_table(probe: FileProbe, reports: Container[str]) -> bool:
    """Tell whether a file begins with a table of one of these reports, or has it after other lines."""
    return any((head := head_of(line)) is not None and head.report in reports for line in probe.lines)


def find_tables(text: str) -> Tables:
    """The tables of a text in its order. Raises InvalidFile for one that is broken."""
    lines = _Lines(text)
    read: list[Table] = []
    unread: list[str] = []
    announced = ""
    for line in lines:
        if (match := _ANNOUNCED.search(line)) is not None:
            announced = match[1] or match[2]
        if (head := head_of(line)) is None:
            continue
        if head.report is None:
            unread.append(announced or f"the one with {', '.join(head.columns[:3])}"[:60])
        else:
            read.append(_table(head, lines, text.endswith("\n")))
        announced = ""
    return Tables(tuple(read), tuple(dict.fromkeys(unread)))


def head_of(line: str) -> Head | None:
    """The head that a line is; None of another line."""
    if len(line) > _HEAD_LIMIT or not _MAY_BE_HEAD.search(line):
        return None
    mark = "\t" if "\t" in line else ";" if line.count(";") > line.count(",") else ","
    try:
        (cells,) = csv.reader([line], delimiter=mark, strict=True)
    except (csv.Error, ValueError):
        return None
    matches = [_COLUMN.fullmatch(cell) for cell in cells]
    named = [(match[1].lower(), match[2]) for match in matches if match]
    names = [_SYNONYMS.get(name, name) for name, _ in named]
    there = set(names)
    report = next((report for report, of in REPORTS.items() if there.issuperset(of.split(","))), None)
    quoted = line.startswith('"')
    if report in NCU:
        return Head(report, tuple(cell.strip() for cell in cells), {}, mark, quoted)
    # A source is what only the events of MPI have, in a table that else looks as one of kernels.
    if len(there) < len(names) or "source" in there or report is None:
        known = len(names) > 3 and names[0] in _UNREAD and any(unit for _, unit in named)
        return Head(None, tuple(cells), {}, mark, quoted) if known else None
    units = {name: unit for name, (_, unit) in zip(names, named, strict=True) if unit}
    return Head(report, tuple(names), units, mark, quoted)


class _Lines(Iterator[str]):
    """Lines of a text one by one, of which the last can be given back."""

    def __init__(self, text: str) -> None:
        self._text, self._at, self._before, self.number = text, 0, 0, 0

    def __next__(self) -> str:
        if self._at > len(self._text):
            raise StopIteration
        end = self._text.find("\n", self._at)
        self._before, end = self._at, len(self._text) if end < 0 else end
        self._at, self.number = end + 1, self.number + 1
        return self._text[self._before : end]

    def back(self) -> None:
        self._at, self.number = self._before, self.number - 1


def _body(head: Head, lines: _Lines) -> Iterator[str]:
    """The lines of a table's rows. ncu quotes every cell, so what begins without a quote is the program's."""
    inside = False
    for line in lines:
        if not inside:
            of_ncu = head.report in NCU
            if head_of(line) is not None:
                break
            if of_ncu and (line.startswith(_NCU_SPEAKS) or (head.quoted and not line.startswith('"'))):
                continue
            if not of_ncu and (not line.strip() or line.lstrip().startswith(_NSYS_SPEAKS)):
                break
        inside ^= line.count('"') % 2 == 1
        yield line + "\n"
    else:
        return
    lines.back()


def _table(head: Head, lines: _Lines, ends: bool) -> Table:
    if len(set(head.columns)) < len(head.columns):
        raise InvalidFile("a column appears twice")
    numbers: list[int] = []
    rows: list[list[str | None]] = []
    texts: dict[str, str] = {}  # few texts stand in many cells
    width, first = len(head.columns), lines.number
    try:
        for row in csv.reader(_body(head, lines), delimiter=head.mark, strict=True):
            if not row:
                continue
            if len(row) > width or (len(row) < width and head.report not in NCU[:2]):
                raise InvalidFile(f"not whole: row {lines.number} has {len(row)} of {width} cells")
            plain = [texts.setdefault(cell.strip(), cell.strip()) for cell in row]
            rows.append([*plain, *[None] * (width - len(row))])
            numbers.append(lines.number)
    except csv.Error as error:
        raise InvalidFile(f"not whole: row {(numbers[-1] if numbers else first) + 1}: {error}") from error
    if not rows:
        raise InvalidFile(f"{head.report}: a head and no rows")
    if not ends and rows[-1][-1] is None:
        raise InvalidFile(f"not whole: row {numbers[-1]} is cut short")
    frame = pd.DataFrame(rows, columns=list(head.columns), index=numbers, dtype=object)
    return Table(head.report or "", head.units, frame)


# --- figures ----------------------------------------------------------------------------------------


def decimal_comma(cells: pd.Series, units: Sequence[str | None], counts: frozenset[str]) -> bool:
    """Tell whether figures are written 1.234,5: one way for all, the tools' own unless that cannot be.

    Where both can be, no percentage is 1,000 and more; of `counts`, units of what is counted, none has
    decimals. Raises InvalidFile.
    """
    written = cells.fillna("")
    unit = pd.Series(list(units), index=cells.index)[numeric := _matches(written, _DIGITS)]
    written = written[numeric]
    point, comma = _matches(written, _POINT), _matches(written, _COMMA)
    if not point.all():
        if not comma.all():
            one, other = written[~comma].index[0], written[~point].index[0]
            raise InvalidFile(
                f"row {one}: '{written[~comma].iloc[0][:40]}' and '{written[~point].iloc[0][:40]}' in row "
                f"{other} are figures of different locales"
            )
        return True
    if not comma.all():
        return False
    if (written.str.contains(",") & (unit == "%")).any():
        return True
    if len(odd := written[written.str.contains(".", regex=False) & unit.isin(counts)]):
        raise InvalidFile(
            f"row {odd.index[0]}: '{odd.iloc[0][:40]}' is no count, and every figure may have a decimal "
            "comma: print the table with LC_ALL=C"
        )
    return False


def figures(cells: pd.Series, comma: bool) -> pd.Series:
    """Numbers of cells, NaN for a text, nothing, or what is out of all bounds."""
    written = cells.fillna("")
    good = _matches(written, _COMMA if comma else _POINT) & (written.str.len() <= _MOST_CHARACTERS)
    plain = written.str.replace("." if comma else ",", "", regex=False).str.replace(",", ".", regex=False)
    values = plain.where(good, "nan").astype(float)
    return values.where(values.abs() <= _MOST)


def _matches(cells: pd.Series, pattern: re.Pattern[str]) -> pd.Series:
    known: dict[str, bool] = {}
    found = (known.setdefault(cell, pattern.fullmatch(cell) is not None) for cell in cells)
    return pd.Series(np.fromiter(found, bool, len(cells)), index=cells.index)
