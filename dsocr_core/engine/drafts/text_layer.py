"""A PDF's text layer as the model writes a page: headings, paragraphs, tables, in reading order.

Nothing of it is trusted or shown: it is a draft. What is wrong in it costs time, never text.
"""

from __future__ import annotations

import statistics
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from dsocr_core.page.decode_pool import PageText, TextRun
from dsocr_core.page.rendering import CELL_GAP
from dsocr_core.reading.markup import SCALE

Box = tuple[float, float, float, float]
"""Left, bottom, right, top."""


class Block(NamedTuple):
    """A block under the label that the model gives it."""

    label: Literal["title", "sub_title", "text", "table"]
    text: str
    box: Box


_HEADING = 1.2
"""Times the page's usual height of a line."""
_PARAGRAPH = 0.75
"""Share of a line's height, empty between two lines of one column."""
_WORD = 0.15
_CELL = 24
"""Characters of a table's cells on average, at most: side by side, longer ones are columns of prose."""


class _Line:
    """Runs side by side."""

    def __init__(self, run: TextRun) -> None:
        self.left, self.right, self.bottom, self.top, self.text = (
            run.left, run.right, run.bottom, run.top, _plain(run.text)
        )  # fmt: skip

    @property
    def height(self) -> float:
        return max(self.top - self.bottom, 0.1)

    def takes(self, run: TextRun) -> bool:
        """Tell whether a run goes on with this line: at its height, a word's distance to its right."""
        return self.beside(run) and -self.height <= run.left - self.right <= CELL_GAP * self.height

    def beside(self, run: TextRun | _Line) -> bool:
        """Tell whether a run or a line lies at this one's height."""
        return self.bottom <= (run.bottom + run.top) / 2 <= self.top

    def take(self, run: TextRun) -> None:
        gap = run.left - self.right > _WORD * self.height
        text = _plain(run.text)
        self.text += (" " if gap and not self.text.endswith(" ") and not text.startswith(" ") else "") + text
        self.right, self.top = max(self.right, run.right), max(self.top, run.top)
        self.bottom = min(self.bottom, run.bottom)


def drafted(layer: PageText, grounded: bool) -> str:
    """The page's text as the model writes it, with labels, boxes and marks where `grounded`."""
    found = blocks(layer.runs)
    if not grounded:
        return "\n\n".join(block.text for block in found)
    return "\n\n".join(
        f"<|ref|>{block.label}<|/ref|><|det|>[[{_numbers(block.box, layer)}]]<|/det|>\n"
        f"{_MARKS.get(block.label, '')}{block.text}"
        for block in found
    )


_MARKS = {"title": "# ", "sub_title": "## "}


def _numbers(box: Box, layer: PageText) -> str:
    left, bottom, right, top = box
    width, height = max(layer.width, 0.1), max(layer.height, 0.1)
    parts = left / width, 1 - top / height, right / width, 1 - bottom / height
    # A page may lie outside of itself, or have numbers that are none.
    return ", ".join(str(round(SCALE * part)) if 0 <= part <= 1 else "0" for part in parts)


def blocks(runs: Sequence[TextRun]) -> list[Block]:
    """List what the page has, in reading order."""
    lines = list(_lines(runs))
    if not lines:
        return []
    usual = statistics.median(line.height for line in lines)
    highest = max((line.height for line in lines if line.height > _HEADING * usual), default=0.0)
    found: list[Block] = []
    prose: list[_Line] = []
    for rows in _rows(lines):
        cells = [cell for row in rows for cell in row]
        if len(rows) == 1:
            prose += cells
        elif sum(len(cell.text) for cell in cells) > _CELL * len(cells):
            prose += [row[column] for column in range(len(rows[0])) for row in rows]
        else:
            found += _paragraphs(prose, usual, highest)
            prose = []
            marked = ("".join(f"<td>{cell.text.strip()}</td>" for cell in row) for row in rows)
            table = f"<table>{''.join(f'<tr>{row}</tr>' for row in marked)}</table>"
            found.append(Block("table", table, _around(cells)))
    return [*found, *_paragraphs(prose, usual, highest)]


def _around(lines: Sequence[_Line]) -> Box:
    return (
        min(line.left for line in lines), min(line.bottom for line in lines),
        max(line.right for line in lines), max(line.top for line in lines),
    )  # fmt: skip


def _lines(runs: Sequence[TextRun]) -> Iterator[_Line]:
    line: _Line | None = None
    for run in runs:
        if not _plain(run.text).strip():
            continue
        if line is not None and line.takes(run):
            line.take(run)
            continue
        if line is not None:
            yield line
        line = _Line(run)
    if line is not None:
        yield line


def _rows(lines: list[_Line]) -> Iterator[list[list[_Line]]]:
    """Rows of as many cells, one below the other in the same columns; a line by itself is a row alone."""
    rows: list[list[_Line]] = []
    for row in _side_by_side(lines):
        if rows and (len(row) == 1 or not _same_columns(rows[-1], row)):
            yield rows
            rows = []
        rows.append(row)
        if len(row) == 1:
            yield rows
            rows = []
    if rows:
        yield rows


def _side_by_side(lines: list[_Line]) -> Iterator[list[_Line]]:
    row: list[_Line] = []
    for line in lines:
        if row and not (row[-1].beside(line) and line.left >= row[-1].right):
            yield row
            row = []
        row.append(line)
    yield row


def _same_columns(above: list[_Line], row: list[_Line]) -> bool:
    return len(above) == len(row) and all(
        high.left < low.right and low.left < high.right and low.top <= high.top
        for high, low in zip(above, row, strict=True)
    )


def _paragraphs(lines: list[_Line], usual: float, highest: float) -> Iterator[Block]:
    if not lines:
        return
    part = [lines[0]]
    for line in lines[1:]:
        before = part[-1]
        below = before.bottom - line.top
        apart = not -line.height <= below <= _PARAGRAPH * usual or line.left > before.right
        if apart or abs(line.height - before.height) > (_HEADING - 1) * usual:
            yield _block(part, usual, highest)
            part = []
        part.append(line)
    yield _block(part, usual, highest)


def _block(lines: list[_Line], usual: float, highest: float) -> Block:
    words = ""
    for line in lines:
        text = line.text.strip()
        if words.endswith("-") and text[:1].islower():
            words = words[:-1] + text
        else:
            words = f"{words} {text}" if words else text
    height, box = lines[-1].height, _around(lines)
    if not height > _HEADING * usual or len(words) >= 200:
        return Block("text", words, box)
    return Block("title" if height == highest else "sub_title", words, box)


def _plain(text: str) -> str:
    """Characters that a page shows: ligatures taken apart, no controls, nothing without a glyph."""
    # PDFium writes the hyphen at a line's end so.
    shown = unicodedata.normalize("NFKC", text.replace("\x02", "-"))
    return "".join(c if c.isprintable() else " " for c in shown if c != "\ufffe")
