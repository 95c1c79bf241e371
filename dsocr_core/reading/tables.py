"""Tables in a page's text, HTML or Markdown, as rows of cells. Linear in its length."""

from __future__ import annotations

import re
from dataclasses import dataclass

Cell = tuple[str, int, int]
"""Text, columns and rows that it spans."""

_TABLE = re.compile(r"<table\b[^>]*>|</table\s*>", re.IGNORECASE)
_ROW = re.compile(r"<tr\b[^>]*>", re.IGNORECASE)
_CELL = re.compile(r"<t[dh]\b([^>]*)>", re.IGNORECASE)
_CELL_END = re.compile(r"</?t(?:[dhr]|head|body|foot|able)\b[^>]*>|</?caption\b[^>]*>", re.IGNORECASE)
_SPAN = re.compile(r"(col|row)span\s*=\s*[\"']?\s*(\d{1,4})", re.IGNORECASE)
_RULE_LINE = re.compile(r"[ \t]*\|?(?:[ \t]*:?-+:?[ \t]*\|)*[ \t]*:?-+:?[ \t]*\|?[ \t]*")
_MOST_COLUMNS, _MOST_CELLS = 100, 50_000
"""Limits of a grid: spans are a model's."""
_BAR = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True)
class Table:
    """Rows of cells as written; a cell that spans several columns or rows stands once."""

    rows: tuple[tuple[Cell, ...], ...]
    bars: bool = False
    """True where it is written in Markdown."""

    @property
    def shape(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Spans of the cells of each row: what makes the structure."""
        return tuple(tuple(cell[1:] for cell in row) for row in self.rows)

    def grid(self) -> Table:
        """The table as Markdown can write it: no cell spans others, and all rows are as long."""
        rows: list[list[Cell]] = []
        count = 0
        below: dict[int, int] = {}  # column -> rows that a cell above still takes of it
        for row in self.rows:
            cells: list[Cell] = []
            for text, across, down in row:
                _fill(cells, below)
                for i in range(min(across, _MOST_COLUMNS)):
                    if down > 1:
                        below[len(cells)] = down - 1
                    cells.append((text if i == 0 else "", 1, 1))
            _fill(cells, below)
            rows.append(cells)
            count += len(cells)
            if count > _MOST_CELLS:
                return self
        width = max(map(len, rows), default=0)
        if width * len(rows) > _MOST_CELLS:
            return self
        return Table(tuple((*cells, *[("", 1, 1)] * (width - len(cells))) for cells in rows))


def _fill(cells: list[Cell], below: dict[int, int]) -> None:
    while below.get(len(cells), 0):
        below[len(cells)] -= 1
        cells.append(("", 1, 1))


def split_tables(text: str) -> list[str | Table]:
    """The parts of a text in order: prose as text, tables read."""
    parts: list[str | Table] = []
    position = depth = start = 0
    for tag in _TABLE.finditer(text):
        if tag[0][1] != "/":
            if depth == 0:
                parts += _with_bar_tables(text[position : tag.start()])
                start = tag.end()
            depth += 1
        elif depth:
            depth -= 1
            if depth == 0:
                parts.append(_html_table(text[start : tag.start()]))
                position = tag.end()
    if depth:  # never closed: a page that was cut off
        parts.append(_html_table(text[start:]))
    else:
        parts += _with_bar_tables(text[position:])
    return parts


def _html_table(markup: str) -> Table:
    return Table(tuple(row for part in _ROW.split(markup) if (row := _html_row(part))))


def _html_row(markup: str) -> tuple[Cell, ...]:
    cells: list[Cell] = []
    for opening in _CELL.finditer(markup):
        end = _CELL_END.search(markup, opening.end())
        spans = {side.lower(): int(number) for side, number in _SPAN.findall(opening[1])}
        content = markup[opening.end() : end.start() if end else len(markup)]
        cells.append((content, spans.get("col", 1) or 1, spans.get("row", 1) or 1))
    return tuple(cells)


def _with_bar_tables(text: str) -> list[str | Table]:
    """Prose with Markdown's tables: lines between bars of which the second is the rule below a header."""
    if "|" not in text:
        return [text] if text.strip() else []
    parts: list[str | Table] = []
    lines = text.split("\n")
    prose: list[str] = []
    i = 0
    while i < len(lines):
        if i + 1 < len(lines) and "|" in lines[i] and _is_rule(lines[i + 1]):
            if any(line.strip() for line in prose):
                parts.append("\n".join(prose))
            prose, rows = [], [lines[i]]
            i += 2
            while i < len(lines) and "|" in lines[i]:
                rows.append(lines[i])
                i += 1
            parts.append(Table(tuple(_bar_row(row) for row in rows), bars=True))
        else:
            prose.append(lines[i])
            i += 1
    if any(line.strip() for line in prose):
        parts.append("\n".join(prose))
    return parts


def _is_rule(line: str) -> bool:
    return "|" in line and _RULE_LINE.fullmatch(line) is not None


def _bar_row(line: str) -> tuple[Cell, ...]:
    cells = _BAR.split(line.strip().removeprefix("|").removesuffix("|"))
    return tuple((cell.replace("\\|", "|"), 1, 1) for cell in cells)
