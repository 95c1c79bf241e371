"""Tables of Nsight Systems and Nsight Compute in a text, found by their columns, whatever stands around them.

Rows are read by `csv`, strictly, and become a frame of texts: `pandas.read_csv` fills up a row that is cut
short and shifts one that is too long, without a word.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass

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
"""Names of columns in some report or version, and here."""
_COLUMN = re.compile(r"\s*(.*?)\s*(?:\(([^()]*)\))?\s*")
_MAY_BE_HEAD = re.compile(r"Name|Range|Operation|Event")
_UNREAD = frozenset({"time", "total", "start", "duration", "range", "count"})
"""First columns of Nsight Systems' other reports."""
_ANNOUNCED = re.compile(r"Processing \[.*/(\w+)\.py|^\s*\*\* [^(]*\((\w+)\):")
_SPEAKS = re.compile(r"==|\s*(Processing \[|Generating |Exporting |Using |NOTICE|SKIPPED|WARNING|ERROR|\*\*)")
"""Begin of lines in which the tools speak of themselves."""
_HEAD_LIMIT, _TEXT_LIMIT = 200_000, 4_000
"""Characters of a head, as a raw page has a column a metric, and of a cell of ncu's."""

_POINT = re.compile(r"[-+]?(\d+|[1-9]\d{0,2}(,\d{3})+)(\.\d+)?([eE][-+]?\d+)?", re.ASCII)
_COMMA = re.compile(r"[-+]?(\d+|[1-9]\d{0,2}(\.\d{3})+)(,\d+)?([eE][-+]?\d+)?", re.ASCII)
_DIGITS = re.compile(r"[-+]?\d[\d.,]*([eE][-+]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class Table:
    """A report's rows as texts, by their line in the file; None where a row is shorter than the head."""

    report: str
    """Empty for one of Nsight Systems that is not read."""
    units: Mapping[str, str]
    """By column, where the head names one."""
    rows: pd.DataFrame


def has_table(probe: FileProbe, reports: Container[str]) -> bool:
    """Tell whether a file begins with a table of one of these reports, or has it after other lines."""
    return any((head := _head(line)) is not None and head[0].report in reports for line in probe.lines)


def find_tables(text: str) -> tuple[list[Table], list[str]]:
    """The tables of a text in its order, and the names of those not read. Raises InvalidFile."""
    found: list[Table] = []
    unread: dict[str, None] = {}
    lines, at, announced = text.split("\n"), 0, ""
    while at < len(lines):
        if (match := _ANNOUNCED.search(lines[at])) is not None:
            announced = match[1] or match[2]
        head, at = _head(lines[at]), at + 1
        if head is None:
            continue
        table, mark = head
        end = _end(table, lines, at)
        if table.report:
            found.append(_filled(table, mark, lines, range(at, end)))
        else:
            unread[announced or f"the one with {', '.join(table.rows.columns[:3])}"[:60]] = None
        at, announced = end, ""
    return found, list(unread)


def _head(line: str) -> tuple[Table, str] | None:
    """The table without rows that a line is the head of, and what separates cells; None of another line."""
    if len(line) > _HEAD_LIMIT or not _MAY_BE_HEAD.search(line):
        return None
    mark = "\t" if "\t" in line else ";" if line.count(";") > line.count(",") else ","
    try:
        (cells,) = csv.reader([line], delimiter=mark, strict=True)
    except (csv.Error, ValueError):
        return None
    named = [(match[1].lower(), match[2]) for cell in cells if (match := _COLUMN.fullmatch(cell)) is not None]
    names = [_SYNONYMS.get(name, name) for name, _ in named]
    there = set(names)
    report = next((report for report, of in REPORTS.items() if there.issuperset(of.split(","))), None)
    if report in NCU:
        return Table(report, {}, pd.DataFrame(columns=[cell.strip() for cell in cells])), mark
    # A source is what only the events of MPI have, in a table that else looks as one of kernels.
    if report is None or len(there) < len(names) or "source" in there:
        known = len(names) > 3 and names[0] in _UNREAD and any(unit for _, unit in named)
        return (Table("", {}, pd.DataFrame(columns=cells)), mark) if known else None
    units = {name: unit for name, (_, unit) in zip(names, named, strict=True) if unit}
    return Table(report, units, pd.DataFrame(columns=names)), mark


def _end(table: Table, lines: Sequence[str], at: int) -> int:
    """The line behind a table's last: another head, or for Nsight Systems a blank or its own words."""
    inside = False
    for place in range(at, len(lines)):
        line = lines[place]
        over = table.report not in NCU and (not line.strip() or _SPEAKS.match(line) is not None)
        if not inside and (over or _head(line) is not None):
            return place
        inside ^= line.count('"') % 2 == 1
    return len(lines)


def _filled(table: Table, mark: str, lines: Sequence[str], places: range) -> Table:
    """The table with its rows. Lines of a program between ncu's rows, which are quoted, have no quote."""
    columns, of_ncu = list(table.rows.columns), table.report in NCU
    if len(set(columns)) < len(columns):
        raise InvalidFile("a column appears twice")
    quoted, inside, kept = lines[places.start - 1].startswith('"'), False, []
    for place in places:
        if inside or not of_ncu or not (lines[place][:2] == "==" or (quoted and lines[place][:1] != '"')):
            kept.append(place)
            inside ^= lines[place].count('"') % 2 == 1
    reader = csv.reader((lines[place] + "\n" for place in kept), delimiter=mark, strict=True)
    numbers: list[int] = []
    rows: list[list[str | None]] = []
    texts: dict[str, str] = {}  # few texts stand in many cells
    try:
        for row in reader:
            number, width = kept[reader.line_num - 1] + 1, len(columns)
            if not row:
                continue
            if len(row) > width or (len(row) < width and table.report not in (NCU_DETAILS, NCU_SUMMARY)):
                raise InvalidFile(f"not whole: row {number} has {len(row)} of {width} cells")
            cells = (cell.strip()[: _TEXT_LIMIT if of_ncu else None] for cell in row)
            rows.append([*(texts.setdefault(cell, cell) for cell in cells), *[None] * (width - len(row))])
            numbers.append(number)
    except csv.Error as error:
        raise InvalidFile(f"not whole: row {(numbers or [places.start])[-1] + 1}: {error}") from error
    if not rows:
        raise InvalidFile(f"{table.report}: a head and no rows")
    if places.stop == len(lines) and lines[-1] and rows[-1][-1] is None:
        raise InvalidFile(f"not whole: row {numbers[-1]} is cut short")
    return Table(table.report, table.units, pd.DataFrame(rows, numbers, columns, dtype=object))


def decimal_comma(cells: pd.Series, units: Sequence[str | None], counts: Container[str]) -> bool:
    """Tell whether figures are written 1.234,5: one way for all, the tools' own unless that cannot be.

    Where both can be, no percentage is 1,000 and more, and what is counted, of a unit in `counts`, has no
    decimals. Raises InvalidFile.
    """
    found = pd.DataFrame({"text": cells.astype(object).fillna(""), "unit": list(units)}, cells.index)
    found = found[_matches(found["text"], _DIGITS)]
    point, comma = (_matches(found["text"], pattern) for pattern in (_POINT, _COMMA))
    if not point.all() and not comma.all():
        one, other = found[~comma].iloc[0], found[~point].iloc[0]
        raise InvalidFile(
            f"row {one.name}: '{one['text'][:40]}' and '{other['text'][:40]}' in row {other.name} are "
            "figures of different locales"
        )
    if not point.all() or not comma.all():
        return not point.all()
    if (found["text"].str.contains(",") & (found["unit"] == "%")).any():
        return True
    for number, text, unit in found.itertuples():
        if "." in text and unit in counts:
            raise InvalidFile(
                f"row {number}: '{text[:40]}' is no count, and every figure may have a decimal comma: print "
                "the table with LC_ALL=C"
            )
    return False


def figures(cells: pd.Series, comma: bool) -> pd.Series:
    """Numbers of cells, NaN for a text, nothing, or what is out of all bounds."""
    texts = cells.astype(object).fillna("").str.slice(0, 41)
    good = _matches(texts, _COMMA if comma else _POINT) & (texts.str.len() <= 40)
    plain = texts.str.replace("." if comma else ",", "", regex=False).str.replace(",", ".", regex=False)
    values = plain.where(good, "nan").astype(float)
    return values.where(values.abs() <= 1e18)


def _matches(cells: pd.Series, pattern: re.Pattern[str]) -> pd.Series:
    known = {cell: pattern.fullmatch(cell) is not None for cell in cells.unique()}
    return cells.map(known).astype(bool)
