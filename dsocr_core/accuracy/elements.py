"""A page's Markdown taken apart as the benchmark does: texts, formulas, tables, each with where it begins."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["text", "formula", "inline formula", "html table", "latex table"]


@dataclass(frozen=True)
class Element:
    """A part of what was written. `start` orders the parts and is not always an index into the text."""

    kind: Kind
    start: int
    content: str


_IMAGE = re.compile(r"!\[.*?\]\(.*?\)")
_FENCES = re.compile(r"^```(?:markdown|html|latex)\n?|```\n?$", re.MULTILINE)
_LONG_RULES = re.compile(r"_{4,}")
_LONG_GAPS = re.compile(r" {4,}")
_PAGE_TAGS = re.compile(r"</?(?:html|body)>")
_LATEX_TABLE = re.compile(r"\\begin\{table\}.*?\\end\{table\}", re.DOTALL)
_TABULAR = re.compile(r"\\(begin|end)\{tabular\}")
_HTML_TABLE = re.compile(r"<table[^>]*>|</table>")
_Marks = tuple[tuple[str, str], ...]
_INLINE: _Marks = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"))
_FORMULA: _Marks = (_INLINE[0], ("\\[", "\\]"), *_INLINE[1:])
"""Pairs that open and close a formula; of two that open at one place the first that is closed counts."""
_OPENS = re.compile(r"\$|\\\[|\\\(")
_MARKUP_TABLE = re.compile(r"<table.*?</table>", re.DOTALL)
_CODE = re.compile(r"```\w+\n(.*?)```", re.DOTALL)
_WRAPPERS = (
    re.compile(r"\\title\{(.*?)\}"),
    re.compile(r"\\title\s*\{\s*(.*?)\s*\}", re.DOTALL),
    re.compile(r"\\text\s*\{\s*(.*?)\s*\}", re.DOTALL),
    re.compile(r"\\section\*?\{(.*?)\}"),
    re.compile(r"\\section\*?\{\s*(.*?)\s*\}", re.DOTALL),
)
"""Commands of LaTeX around words that are text."""


def elements(markdown: str) -> list[Element]:
    """The elements of a page, in the order of where they begin."""
    text = _replaced(_IMAGE, "", markdown, ")")
    text = _FENCES.sub("", text)
    text = _LONG_GAPS.sub("    ", _LONG_RULES.sub("____", text))
    content = _Blanked(_PAGE_TAGS.sub("", text))
    found = [*_latex_tables(content), *_html_tables(content), *_formulas(content)]
    with_tables = with_html_tables(content.text)
    if with_tables is not None:
        content = _Blanked(with_tables)
        found += [
            Element("html table", *content.take(match.start(), match.end()))
            for match in list(_MARKUP_TABLE.finditer(content.text))
        ]
    found += _code(content)
    words = content.text
    for wrapper in _WRAPPERS:
        words = _replaced(wrapper, r"\1", words, "}")
    found += _texts(words)
    return sorted(found, key=lambda element: element.start)


def _replaced(pattern: re.Pattern[str], by: str, text: str, closing: str) -> str:
    """`pattern.sub`, for a pattern that ends with `closing`: nothing is tried where nothing closes any more.

    There every opening would be followed to the end of the text.
    """
    end = text.rfind(closing) + 1
    return pattern.sub(by, text[:end]) + text[end:]


class _Blanked:
    """A text from which parts are taken; spaces stay where they were, so that indices hold."""

    def __init__(self, text: str) -> None:
        self.text = text

    def take(self, start: int, end: int) -> tuple[int, str]:
        """Blank a part; where it was and what it was."""
        part = self.text[start:end]
        self.text = self.text[:start] + " " * len(part) + self.text[end:]
        return start, part


def _latex_tables(content: _Blanked) -> Iterator[Element]:
    spans = [match.span() for match in _LATEX_TABLE.finditer(content.text)]
    outside = _LATEX_TABLE.sub(lambda match: " " * len(match[0]), content.text)
    spans += _outermost(outside, _TABULAR, "\\begin", _TABULAR_STEP)
    for start, end in sorted(spans):
        yield Element("latex table", *content.take(start, end))


def _html_tables(content: _Blanked) -> Iterator[Element]:
    for start, end in _outermost(content.text, _HTML_TABLE, "<table", _HTML_STEP):
        yield Element("html table", *content.take(start, end))


_HTML_STEP = len("</table>")
_TABULAR_STEP = len("\\end{tabular}") + 1
"""Distance at which the benchmark goes on from a tag's begin: a tabular takes the character after it along,
and the closing tag of an empty HTML table is overlooked.
"""
_PAST_UNCLOSED = 16
"""Distance at which it looks again, from the begin of a table that nothing closes."""


def _outermost(text: str, tags: re.Pattern[str], opening: str, step: int) -> list[tuple[int, int]]:
    """Spans of tables, not of those inside others."""
    found: list[tuple[int, int]] = []
    open_at: list[int] = []
    position = 0
    while True:
        while match := tags.search(text, position):
            position = match.start() + step
            if match[0].startswith(opening):
                open_at.append(match.start())
            elif open_at:
                start = open_at.pop()
                if not open_at:
                    found.append((start, position))
        if not open_at:
            return found
        position, open_at = open_at[0] + _PAST_UNCLOSED, []


def _formulas(content: _Blanked) -> Iterator[Element]:
    """Displayed formulas are taken out of the text; inline ones stay in it and are elements, too."""
    text = content.text
    for _, start, end in _delimited(text, _FORMULA):
        line = " ".join(text[start:end].strip().split("\n"))
        inside = list(_delimited(line, _INLINE))
        if not inside:
            content.take(start, end)
            yield Element("formula", start, line)
            continue
        (opening, _), first, last = inside[0]
        is_displayed = opening == "$$" and last - first > len("$$$$")
        if is_displayed:
            content.take(start, end)
        yield Element(
            "formula" if is_displayed else "inline formula", start, _bracketed(line, inside, is_displayed)
        )


def _delimited(text: str, marks: _Marks) -> Iterator[tuple[tuple[str, str], int, int]]:
    """Spans from a mark to the nearest that closes it, left to right, with the pair of marks.

    A lazy regular expression finds the same, but in quadratic time where much is opened and nothing closed.
    """
    unclosed: set[str] = set()  # what closes nothing from here on
    position = 0
    while found := _OPENS.search(text, position):
        position = found.start() + 1
        for opening, closing in marks:
            if closing in unclosed or not text.startswith(opening, found.start()):
                continue
            end = text.find(closing, found.start() + len(opening))
            if end < 0:
                unclosed.add(closing)
                continue
            position = end + len(closing)
            yield (opening, closing), found.start(), position
            break


def _bracketed(line: str, spans: Iterable[tuple[tuple[str, str], int, int]], displayed: bool) -> str:
    """A line with formulas in brackets, displayed ones or the others; those of the other kind are empty."""
    parts, position = [], 0
    for (opening, closing), start, end in spans:
        words = line[start + len(opening) : end - len(closing)] if (opening == "$$") == displayed else ""
        parts += [line[position:start], f"\\[{words}\\]"]
        position = end
    return "".join((*parts, line[position:]))


def _code(content: _Blanked) -> Iterator[Element]:
    for match in list(_CODE.finditer(content.text)):
        content.take(*match.span())
        yield Element("text", match.start(), match[1].strip())


def _texts(text: str) -> Iterator[Element]:
    """Paragraphs; lines where there is no empty one. Separators do not count for where they begin."""
    parts = text.split("\n\n")
    if len(parts) == 1:
        parts = text.split("\n")
    start = 0
    for part in parts:
        lines = [line.strip() for line in part.strip().split("\n")]
        paragraph = "\n".join(line for line in lines if line)
        if paragraph.startswith("<table") and paragraph.endswith("</table>"):
            yield Element("html table", start, paragraph)
        elif paragraph.startswith("$") and paragraph.endswith("$"):
            if paragraph.replace("$", "").strip():
                yield Element("formula", start, paragraph)
        elif paragraph:
            yield Element("text", start, paragraph)
        start += len(part)


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
