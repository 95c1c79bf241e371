"""Markdown's tables (`| a | b |`) as HTML, by the benchmark's rules.

What lies from a bar to the next bar that ends a line is a piece: its first line is a row, its second the rule
below a header, the others are rows. Pieces that follow each other are one table, and so are a piece and a
`<table>` that nothing closed. Slips of the benchmark's code are kept: in a table a line with a colon or with
three dashes is taken for a rule and left out, the line right before a table is lost, and where a table is not
closed all that follows it.
"""

from __future__ import annotations

import re

_PIECE = re.compile(r"\|\s*.*?\s*\|\n", re.DOTALL)
_COMMENT = re.compile(r"<!--[\s\S]*?-->")
_CLOSED = re.compile(r"<table>.*?</table>", re.DOTALL)
_FRAME = re.compile(r"</?t(?:able|head|body)>")
_FEWEST_PIECES = 2


def with_html_tables(text: str) -> str | None:
    """A text with its tables as HTML; None when it has none."""
    if len(_PIECE.findall(text + "\n")) < _FEWEST_PIECES:
        return None
    *lines, last = ["", *_PIECE.sub(_marked_up, text.replace("\r", "") + "\n").split("\n")]
    done: list[str] = []
    table: list[str] | None = None
    for line, following in zip(lines, [*lines[1:], last], strict=True):
        if "<table>" in following:
            table = [*(table or ()), line]
        elif table is None:
            done.append(line)
        else:
            if not _is_rule(line) and "</thead>" not in line:
                table += "\n", line
            if "</table>" in line:
                done.append(_joined(table))
                table = None
    if last:
        is_in_table = table is not None or "</table>" in last
        done.append(_joined([*(table or ()), "\n", last]) if is_in_table else last)
    whole = "\n".join(done)
    return whole.replace("<table>", '<table border="1" >').replace("<td>", '<td colspan="1" rowspan="1">')


def _marked_up(piece: re.Match[str]) -> str:
    """A piece as HTML, line by line: those of a broken table are text, and give later texts their place."""
    header, *rows = (row.strip() for row in piece[0].strip().split("\n"))
    head, body = _row(header, "th"), [line for row in rows[1:] for line in _row(row, "td")]
    lines = "<table>", "  <thead>", *head, "  </thead>", "  <tbody>", *body, "  </tbody>", "</table>", ""
    return "\n".join(lines)


def _row(row: str, tag: str) -> list[str]:
    cells = (f"      <{tag}>{cell.strip()}</{tag}>" for cell in row.split("|")[1:-1])
    return ["    <tr>", *cells, "    </tr>"]


def _is_rule(line: str) -> bool:
    return ":" in line or "---" in line


def _joined(parts: list[str]) -> str:
    """The tables among lines as one, without those that have no cell."""
    rows: list[str] = []
    for table in _CLOSED.findall(_COMMENT.sub("", "".join(parts))):
        lines = [line for line in table.split("\n") if not _FRAME.search(line)]
        if len(lines) > 2:
            rows += [
                line.replace("<th>", "<td>").replace("</th>", "</td>") if "<th>" in line else line
                for line in lines
            ]
    return "\n\n<table>\n{}\n</table>\n\n".format("\n".join(rows))
