"""Tables of Nsight Systems and Nsight Compute in a text, found by their columns, whatever stands around them.

Rows are read by `csv`, strictly, and become a frame of texts: `pandas.read_csv` fills up a row that is cut
short without a word.
"""

from __future__ import annotations

import csv
import re
import sys
from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeAlias

import pandas as pd

from dsocr_core.base.bounded_json import InvalidFile

NCU_DETAILS, NCU_SUMMARY, NCU_RAW = NCU = ("ncu details", "ncu summary", "ncu raw")
REPORTS = {
    NCU_DETAILS: {"id", "kernel", "metric", "text"},
    NCU_SUMMARY: {"kernel", "invocations", "metric", "avg_ns"},
    NCU_RAW: {"id", "kernel"},
    "nvtx_sum": {"total_ns", "instances", "style", "range"},
    "nvtx_pushpop_sum": {"total_ns", "instances", "range"},
    "cuda_gpu_sum": {"total_ns", "instances", "category", "operation"},
    "cuda_gpu_kern_sum": {"total_ns", "instances", "name"},
    "cuda_gpu_trace": {"start", "took", "grdx", "name"},
}
"""Columns that tell a report from the others; the first whose columns are there is meant."""
_SYNONYMS = {
    "total time": "total_ns", "avg": "avg_ns", "average": "avg_ns", "med": "med_ns", "median": "med_ns",
    "min": "min_ns", "minimum": "min_ns", "max": "max_ns", "maximum": "max_ns", "stddev": "stddev_ns",
    "duration": "took", "time": "time_percent", "process id": "process", "kernel name": "kernel",
    "block size": "block", "grid size": "grid", "cc": "compute_capability", "section name": "section",
    "metric name": "metric", "metric unit": "unit", "metric value": "text",
}  # fmt: skip
"""Columns as some version prints them, without a unit, and here."""
_OF_OTHERS = {"source", "gridxyz"}
"""Columns of reports that else look as one of kernels: events of MPI, kernels by grid and block."""
_UNREAD = {"time_percent", "total", "start", "took", "range", "count"}
"""First columns of Nsight Systems' other reports."""
_MAY_BE_HEAD = re.compile(r"Name|Range|Operation|Event")
_ANNOUNCED = re.compile(r"Processing \[.*/(\w+)\.py|^\s*\*\* [^(]*\((\w+)\):")
_SPEAKS = re.compile(
    r"\s*$|==|\s*(Processing \[|Generating |Exporting |Using |NOTICE|SKIPPED|WARNING|ERROR|\*\*)"
)
"""Begin of lines in which the tools speak of themselves, and blank ones."""
_HEAD_LINES, _HEAD_LIMIT, _TEXT_LIMIT = 2_000, 200_000, 4_000
"""Lines in which a head is looked for, and characters of one (ncu's raw page is wide) and of a cell."""
_NUMBER = r"[-+]?(?:[0-9]+|[1-9][0-9]{{0,2}}(?:{0}[0-9]{{3}})+)(?:{1}[0-9]+)?(?:[eE][-+]?[0-9]+)?"
_POINT, _COMMA = _NUMBER.format(",", r"\."), _NUMBER.format(r"\.", ",")
_DIGITS = r"[-+]?[0-9][0-9.,]*(?:[eE][-+]?[0-9]+)?"


Table: TypeAlias = pd.DataFrame
"""A report's rows as texts, by their line in the file; None where a row is shorter than the head. Its `attrs`
have the report's name and the units that the head names.
"""


class _Head(NamedTuple):
    report: str  # empty for one of Nsight Systems that is not read
    columns: list[str]
    units: set[str]
    mark: str  # separator of cells


def has_table(head: str) -> bool:
    """Tell whether a file begins with a table that is read, or has it after other lines."""
    return any(found is not None and found.report for found in map(_head, head.splitlines()[:_HEAD_LINES]))


def find_tables(text: str) -> tuple[dict[str, Table], list[str]]:
    """The tables of a text by report, and the names of those not read. Raises InvalidFile.

    The same table again changes nothing; two of one report that say different things are refused.
    """
    found: list[tuple[_Head, list[int]]] = []
    """Tables, and the numbers of their lines."""
    unread: dict[str, None] = {}
    table, announced, in_quotes, quoted = None, "", False, False
    lines = text.split("\n")
    for number, line in enumerate(lines):
        if not in_quotes:
            if (head := _head(line)) is not None:
                table, quoted = head, line.startswith('"')
                if table.report:
                    found.append((table, []))
                else:
                    unread[announced or f"the one with {', '.join(table.columns[:3])}"[:60]] = None
                announced = ""
                continue
            if (match := _ANNOUNCED.search(line)) is not None:
                announced = match[1] or match[2]
            if table is not None and table.report not in NCU and _SPEAKS.match(line):
                table = None
            elif line.startswith("==") or (quoted and not line.startswith('"')):
                continue  # a line of the program that Nsight Compute profiled, between rows
        if table is not None:
            in_quotes ^= line.count('"') % 2 == 1
            if table.report:
                found[-1][1].append(number)
    tables: dict[str, Table] = {}
    for head, numbers in found:
        rows = _rows(head, numbers, lines)
        same = tables.setdefault(head.report, rows)
        if same.attrs != rows.attrs or same.to_numpy().tolist() != rows.to_numpy().tolist():
            raise InvalidFile(f"two tables of {head.report}, of two profiles: give each a file of its own")
    return tables, list(unread)


def _head(line: str) -> _Head | None:
    """The head of a table that a line is; None of another line."""
    if len(line) > _HEAD_LIMIT or not _MAY_BE_HEAD.search(line):
        return None
    mark = "\t" if "\t" in line else ";" if line.count(";") > line.count(",") else ","
    try:
        (cells,) = csv.reader([line], delimiter=mark, strict=True)
    except (csv.Error, ValueError):
        return None
    cells = [cell.strip() for cell in cells]
    whole = [_SYNONYMS.get(cell.lower(), cell.lower()) for cell in cells]
    if report := next((name for name in NCU if REPORTS[name] <= {*whole}), ""):
        return _Head(report, whole, set(), mark)  # of a raw page the other columns are metrics
    parts = [cell.lower().rstrip(")").partition("(") for cell in cells]
    names = [_SYNONYMS.get(name.strip(), name.strip()) for name, *_ in parts]
    units = {unit for *_, unit in parts if unit}
    report = next((name for name, columns in REPORTS.items() if columns <= {*names} and name not in NCU), "")
    if not report or len({*names}) < len(names) or {*names} & _OF_OTHERS:
        return _Head("", cells, units, mark) if len(names) > 3 and names[0] in _UNREAD and units else None
    return _Head(report, names, units, mark)


def _rows(head: _Head, numbers: Sequence[int], lines: Sequence[str]) -> Table:
    """The rows in the lines of a table. Raises InvalidFile."""
    width, may_be_short = len(head.columns), head.report in (NCU_DETAILS, NCU_SUMMARY)
    if len({*head.columns}) < width:
        raise InvalidFile("a column appears twice")
    rows: dict[int, list[str | None]] = {}
    number = numbers[0] if numbers else 0
    reader = csv.reader((lines[number] + "\n" for number in numbers), delimiter=head.mark, strict=True)
    try:
        for cells in reader:
            number = numbers[reader.line_num - 1] + 1
            if len(cells) > width or (0 < len(cells) < width and not may_be_short):
                raise InvalidFile(f"not whole: row {number} has {len(cells)} of {width} cells")
            if cells:  # few texts stand in many cells
                known = [sys.intern(cell.strip()[:_TEXT_LIMIT]) for cell in cells]
                rows[number] = [*known, *[None] * (width - len(cells))]
    except csv.Error as error:
        raise InvalidFile(f"not whole: row {number + 1}: {error}") from error
    if not rows:
        raise InvalidFile(f"{head.report}: a head and no rows")
    if lines[-1] and number == len(lines) and rows[number][-1] is None:
        raise InvalidFile(f"not whole: row {number} is cut short")
    table = pd.DataFrame([*rows.values()], [*rows], head.columns, dtype=object)
    table.attrs = {"report": head.report, "units": sorted(head.units)}
    return table


def parse_figures(cells: pd.Series, units: Sequence[str | None], counts: Collection[str]) -> pd.Series:
    """Numbers that cells hold, NaN where a cell holds none; all written 1,234.5, or all 1.234,5.

    Where both can be meant, a percentage is below 1,000 and a value whose unit is in `counts` has no
    decimals. Raises InvalidFile.
    """
    texts, unit = cells.astype(object).fillna(""), pd.Series(units, cells.index, dtype=object)
    texts = texts.where(texts.str.len() <= 40, "")
    number, point, comma = (texts.str.fullmatch(pattern) for pattern in (_DIGITS, _POINT, _COMMA))
    only_point, only_comma = number & ~comma, number & ~point
    of_another = "row {}: '{}' is a figure of another locale than others"
    refuse(only_point & only_comma.any(), of_another, texts)
    percentages = number & (unit == "%") & texts.str.contains(",", regex=False)
    with_comma = only_comma.any() or (not only_point.any() and percentages.any())
    counted = number & unit.isin([*counts]) & texts.str.contains(".", regex=False)
    no_count = (
        "row {}: '{}' is no count, and every figure may have a decimal comma: print the table with LC_ALL=C"
    )
    refuse(counted & (not only_point.any() and not with_comma), no_count, texts)
    plain = texts.str.translate(str.maketrans(".,", " .") if with_comma else {ord(","): " "})
    plain = plain.str.replace(" ", "", regex=False)
    return pd.to_numeric(plain.where(comma if with_comma else point), errors="coerce")


def refuse(wrong: pd.Series, reason: str, *cells: pd.Series) -> None:
    """Raises InvalidFile for the first line that is wrong, with what its cells say."""
    if wrong.any():
        at = wrong.to_numpy().argmax()
        raise InvalidFile(reason.format(wrong.index[at], *(column.iloc[at] for column in cells)))
