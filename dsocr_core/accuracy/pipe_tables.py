"""Markdown's tables (`| a | b |`) as HTML, by the benchmark's rules.

What lies from a bar to the next bar that ends a line is a piece: its first line is a row, its second the rule
below a header, the others are rows. Pieces that follow each other are one table. A cell with a colon or three
dashes is taken for such a rule and left out, and so is the line right before a table: slips of the
benchmark's code, kept.
"""

from __future__ import annotations

import re

_PIECE = re.compile(r"\|\s*.*?\s*\|\n", re.DOTALL)
_COMMENT = re.compile(r"<!--[\s\S]*?-->")
_FEWEST_PIECES = 2


def with_html_tables(text: str) -> str | None:
    """A text with its tables as HTML; None when it has none."""
    if len(_PIECE.findall(text + "\n")) < _FEWEST_PIECES:
        return None
    whole = text.replace("\r", "") + "\n"
    lines: list[str] = []
    rows: list[str] = []
    end = 0
    for piece in _PIECE.finditer(whole):
        between = whole[end : piece.start()].split("\n")
        if end == 0 or len(between) > 1:
            if end:
                lines.append(_table(rows))
                rows = []
            elif len(between) > 1:
                lines.append("")
            lines += between[:-2]  # not the line before, nor what stands before the first bar
        if not _is_rule(between[-1]):  # words before the first bar, taken for a rule, cost the piece
            rows += _rows(piece[0])
        end = piece.end()
    lines.append(_table(rows))
    rest = whole[end:].split("\n")
    return "\n".join([*lines, *(rest if rest[-1] else rest[:-1])])


def _rows(piece: str) -> list[str]:
    """The lines of HTML of a piece; none when it has no cell."""
    lines = [line.strip() for line in piece.strip().split("\n")]
    found: list[str] = []
    for line in (lines[0], *lines[2:]):
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        marked = [f"      <td>{cell}</td>" for cell in cells if not _is_rule(cell)]
        found += ["    <tr>", *marked, "    </tr>"]
    return found if len(found) > 2 else []


def _is_rule(text: str) -> bool:
    return ":" in text or "---" in text


def _table(rows: list[str]) -> str:
    content = _COMMENT.sub("", "\n".join(rows)).replace("<td>", '<td colspan="1" rowspan="1">')
    return f'\n\n<table border="1" >\n{content}\n</table>\n\n'
