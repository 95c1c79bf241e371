"""Model text as plain blocks: headings, paragraphs, lists, tables, formulas. Pure and linear.

The text is hostile. Nothing here makes HTML or Markdown: blocks hold plain text, which a page writes with
textContent. Images and links become their words.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Literal

Kind = Literal["heading", "paragraph", "item", "table", "formula", "code", "image"]

_HEADING = re.compile(r"(#{1,6})[ \t]+(.*)")
_ITEM = re.compile(r"[ \t]*(?:[-*+]|\d{1,3}[.)])[ \t]+(.*)")
_IMAGE = re.compile(r"!\[([^\]\n]{0,200})\]\(([^)\n]{0,500})\)")
_LINK = re.compile(r"(?<!!)\[([^\]\n]{1,200})\]\(([^)\n]{0,500})\)")
_TABLE = re.compile(r"<table\b", re.IGNORECASE)
_TABLE_END = re.compile(r"</table\s*>", re.IGNORECASE)
_MAX_CELLS = 5000
_MAX_SPAN = 50


@dataclass(frozen=True)
class Block:
    """One block. `rows` is for tables; `box` the index of the pair whose text it is."""

    kind: Kind
    text: str = ""
    level: int = 0
    rows: tuple[tuple[str, ...], ...] = ()
    box: int | None = None


def parse_blocks(text: str, box: int | None = None) -> list[Block]:
    """Blocks of a piece of model text, in order."""
    blocks: list[Block] = []
    at = 0
    while start := _TABLE.search(text, at):
        end = _TABLE_END.search(text, start.end())
        stop = end.end() if end else len(text)
        blocks += _line_blocks(text[at : start.start()], box)
        blocks.append(_table_block(text[start.start() : stop], box))
        at = stop
    return blocks + _line_blocks(text[at:], box)


def _line_blocks(text: str, box: int | None) -> list[Block]:
    blocks: list[Block] = []
    paragraph: list[str] = []
    fenced: list[str] | None = None
    closing = ""

    def flush() -> None:
        if paragraph:
            blocks.append(Block("paragraph", _plain("\n".join(paragraph)), box=box))
            paragraph.clear()

    for line in text.split("\n"):
        stripped = line.strip()
        if fenced is not None:
            if stripped.endswith(closing):
                fenced.append(stripped.removesuffix(closing))
                kind: Kind = "code" if closing == "```" else "formula"
                blocks.append(Block(kind, "\n".join(fenced).strip("\n"), box=box))
                fenced = None
            else:
                fenced.append(line)
            continue
        opening = next((mark for mark in ("```", r"\[", "$$") if stripped.startswith(mark)), None)
        if opening:
            flush()
            closing = {"```": "```", r"\[": r"\]", "$$": "$$"}[opening]
            rest = stripped.removeprefix(opening)
            if opening != "```" and rest.endswith(closing) and rest:
                blocks.append(Block("formula", rest.removesuffix(closing).strip(), box=box))
            else:
                fenced = [] if opening == "```" else [rest]
        elif not stripped:
            flush()
        elif heading := _HEADING.fullmatch(stripped):
            flush()
            blocks.append(Block("heading", _plain(heading[2]), level=len(heading[1]), box=box))
        elif item := _ITEM.fullmatch(line):
            flush()
            blocks.append(Block("item", _plain(item[1]), box=box))
        elif image := _IMAGE.fullmatch(stripped):
            flush()
            blocks.append(Block("image", image[1] or image[2], box=box))
        else:
            paragraph.append(line)
    if fenced:
        blocks.append(Block("code" if closing == "```" else "formula", "\n".join(fenced), box=box))
    flush()
    return blocks


def _plain(text: str) -> str:
    """Words only: images and links lose their addresses, emphasis its asterisks."""
    text = _IMAGE.sub(lambda found: f"[image: {found[1] or found[2]}]", text)
    text = _LINK.sub(lambda found: found[1], text)
    return re.sub(r"\*\*([^*\n]{1,400})\*\*", r"\1", text)


class _Cells(HTMLParser):
    """Reads rows and cells, spans filled with empty cells; anything else is text or ignored."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[str]] = []
        self.count = 0
        self._open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th") and self.count < _MAX_CELLS:
            if not self.rows:
                self.rows.append([])
            width = dict(attrs).get("colspan") or "1"
            columns = (
                min(int(width), _MAX_SPAN)
                if width.isascii() and width[:4].isdigit() and len(width) < 5
                else 1
            )
            self.rows[-1] += [""] * max(columns, 1)
            self._at = len(self.rows[-1]) - max(columns, 1)
            self.count += columns
            self._open = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th", "tr", "table"):
            self._open = False

    def handle_data(self, data: str) -> None:
        if self._open:
            self.rows[-1][self._at] += data


def _table_block(markup: str, box: int | None) -> Block:
    reader = _Cells()
    reader.feed(markup)
    reader.close()
    rows = [row for row in reader.rows if row]
    if not rows:
        return Block("paragraph", re.sub(r"<[^<>]{0,200}>", " ", markup).strip(), box=box)
    width = max(map(len, rows))
    padded = tuple(tuple([cell.strip() for cell in row] + [""] * (width - len(row))) for row in rows)
    return Block("table", rows=padded, box=box)


# --- difference -----------------------------------------------------------------------------------

Change = Literal["same", "word", "letter"]
"""Standing of a run of text: both have it; both have it, in a word that differs; only this side has it."""
Runs = list[tuple[str, Change]]
_CJK = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"\s+|[{_CJK}]|[^\s{_CJK}]+")
"""Blanks, a character of a script without blanks, or what stands between them."""
_MOST_LETTERS = 400
"""Characters of a stretch of words whose letters are compared: that is quadratic in them."""
_ALIKE = 0.5
"""Similarity of two words from which on their letters are compared; less alike, all of both is other."""


def text_difference(a: str, b: str) -> tuple[Runs, Runs]:
    """Both texts as runs, by words, then by the letters of words that differ; joined they give each text."""
    from rapidfuzz.distance import Levenshtein

    left, right = _WORD.findall(a), _WORD.findall(b)
    runs: tuple[Runs, Runs] = ([], [])
    for step in Levenshtein.opcodes(left, right):
        before = "".join(left[step.src_start : step.src_end])
        after = "".join(right[step.dest_start : step.dest_end])
        if step.tag == "equal":
            runs[0].append((before, "same"))
            runs[1].append((after, "same"))
            continue
        for side, found in zip(runs, _letters(before, after), strict=True):
            side += [run for run in found if run[0]]
    return runs


def _letters(a: str, b: str) -> tuple[Runs, Runs]:
    """Two stretches that differ: the letters that each has alone, where both are short and alike."""
    from rapidfuzz.distance import Levenshtein

    if max(len(a), len(b)) > _MOST_LETTERS or Levenshtein.normalized_similarity(a, b) < _ALIKE:
        return [(a, "letter")], [(b, "letter")]
    runs: tuple[Runs, Runs] = ([], [])
    for step in Levenshtein.opcodes(a, b):
        change: Change = "word" if step.tag == "equal" else "letter"
        runs[0].append((a[step.src_start : step.src_end], change))
        runs[1].append((b[step.dest_start : step.dest_end], change))
    return runs
