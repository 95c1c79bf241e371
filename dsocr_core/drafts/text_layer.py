"""A PDF's text layer as the model writes a page: paragraphs, headings, in reading order. No boxes.

Nothing of it is trusted or shown: it is a draft. What is wrong in it costs time, never text.
"""

from __future__ import annotations

import statistics
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Protocol


class Run(Protocol):
    """Text on one line, in points from the page's lower left corner."""

    @property
    def left(self) -> float: ...
    @property
    def bottom(self) -> float: ...
    @property
    def right(self) -> float: ...
    @property
    def top(self) -> float: ...
    @property
    def text(self) -> str: ...


_HEADING = 1.2
"""Times the page's usual height of a line."""
_PARAGRAPH = 0.75
"""Of a line's height, empty between two lines of one column."""
_WORD = 0.15


class _Line:
    """Runs side by side."""

    def __init__(self, run: Run) -> None:
        self.left, self.right, self.bottom, self.top, self.text = (
            run.left, run.right, run.bottom, run.top, _plain(run.text)
        )  # fmt: skip

    @property
    def height(self) -> float:
        return max(self.top - self.bottom, 0.1)

    def takes(self, run: Run) -> bool:
        """Whether a run goes on with this line: at its height, a word's distance to its right."""
        middle = (run.bottom + run.top) / 2
        return self.bottom <= middle <= self.top and -self.height <= run.left - self.right <= 2 * self.height

    def take(self, run: Run) -> None:
        gap = run.left - self.right > _WORD * self.height
        text = _plain(run.text)
        self.text += (" " if gap and not self.text.endswith(" ") and not text.startswith(" ") else "") + text
        self.right, self.top = max(self.right, run.right), max(self.top, run.top)
        self.bottom = min(self.bottom, run.bottom)


def markup(runs: Sequence[Run]) -> str:
    """The page's text as markdown; empty where the layer has none."""
    return "\n\n".join(_paragraphs(list(_lines(runs))))


def _lines(runs: Sequence[Run]) -> Iterator[_Line]:
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


def _paragraphs(lines: list[_Line]) -> Iterator[str]:
    if not lines:
        return
    usual = statistics.median(line.height for line in lines)
    words, before = "", lines[0]
    for line in lines:
        below = before.bottom - line.top
        apart = not -line.height <= below <= _PARAGRAPH * usual or line.left > before.right
        sized = abs(line.height - before.height) > (_HEADING - 1) * usual
        if words and (apart or sized):
            yield _marked(words, before, usual)
            words = ""
        text = line.text.strip()
        if words.endswith("-") and text[:1].islower():
            words = words[:-1] + text
        else:
            words = f"{words} {text}" if words else text
        before = line
    yield _marked(words, before, usual)


def _marked(words: str, line: _Line, usual: float) -> str:
    return f"## {words}" if line.height > _HEADING * usual and len(words) < 200 else words


def _plain(text: str) -> str:
    """Characters that a page shows: ligatures taken apart, no controls, nothing without a glyph."""
    # PDFium writes the hyphen at a line's end so.
    shown = unicodedata.normalize("NFKC", text.replace("\x02", "-"))
    return "".join(c if c.isprintable() else " " for c in shown if c != "\ufffe")
