"""Values and words of two readings of a text, compared one to one.

A value is a run of characters with a digit in it, with its sign, separators, currency and unit, at its place:
a block, a row and column of a table. Spelling of markup (HTML or Markdown, entities, emphasis, bullets, LaTeX
delimiters), blanks and line breaks are no difference. Thousands separators of another locale are one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import NamedTuple

from rapidfuzz.distance import Levenshtein

from dsocr_core.reading.lexicon import decides, is_slip
from dsocr_core.reading.spelling import FORMULA, joined, marked, tidy
from dsocr_core.reading.tables import Table, split_tables
from dsocr_core.reading.tokens import APART, Token, apart, is_value, shown, tokens, unmarked

MOST_CHARACTERS = 100_000
"""Limit of each text; what lies beyond is not compared here."""

_SHORT = 4
"""Words of a cell that names something."""
_LINE, _FIELD = 120, 45
"""Characters around words that are looked at, and those of a short line; Chinese ones count twice."""

_NEAR = 4
"""Tokens of a stretch with one value on each side that are named together: a unit read as a word."""

_NAME = re.compile(
    r"[^\W\d_]{1,2}[+-]|-?[^\W\d_]|(?-i:(?:[A-Z][a-z]?){2,4})"
    r"|m{0,3}(?:c[md]|d?c{0,3})(?:x[cl]|l?x{0,3})(?:i[xv]|v?i{0,3})",
    re.IGNORECASE,
)
"""A letter, a grade, an abbreviation or a Roman number, where it stands against another one."""


@dataclass(frozen=True)
class Change:
    """A value or some words that are not the same. An absent side is empty."""

    a: str
    b: str
    place: str = ""
    """Row and column, or empty in prose."""
    weight: int = 2
    """Rank of changed words: 0 where one side denies the other, 1 where they decide or name a value, or 2."""

    @property
    def decides(self) -> bool:
        """Beyond tolerance, as a value is."""
        return self.weight < 2

    @property
    def words(self) -> str:
        """The change for people: `row 3, Price: 1.20 -> 0.80`."""
        a, b = _around_difference(self.a, self.b)
        return f"{self.place}: {a} -> {b}" if self.place else f"{a} -> {b}"


@dataclass(frozen=True)
class TextChanges:
    """Differences between two texts."""

    values: tuple[Change, ...] = ()
    structures: tuple[str, ...] = ()
    """Tables that have other rows or cells, in words."""
    words: tuple[Change, ...] = ()

    @property
    def deciding(self) -> tuple[Change, ...]:
        """Words that decide what is said, denials first."""
        return tuple(sorted((one for one in self.words if one.decides), key=lambda change: change.weight))

    @property
    def in_words(self) -> list[str]:
        """Every difference for people, what decides first."""
        rest = (change for change in self.words if not change.decides)
        return [
            *(change.words for change in self.values),
            *self.structures,
            *(change.words for change in (*self.deciding, *rest)),
        ]

    def __add__(self, other: TextChanges) -> TextChanges:
        return TextChanges(
            self.values + other.values, self.structures + other.structures, self.words + other.words
        )


def text_changes(a: str, b: str) -> TextChanges:
    """The values, tables and words in which two texts differ; nothing where only their spelling does."""
    parts_a, parts_b = (split_tables(text[:MOST_CHARACTERS]) for text in (a, b))
    kinds = [[isinstance(part, Table) for part in parts] for parts in (parts_a, parts_b)]
    if kinds[0] == kinds[1]:
        pairs: list[tuple[str | Table, str | Table]] = list(zip(parts_a, parts_b, strict=True))
        return sum((_part_changes(x, y) for x, y in pairs), TextChanges())
    tables = [[part for part in parts if isinstance(part, Table)] for parts in (parts_a, parts_b)]
    prose = ["\n".join(part for part in parts if isinstance(part, str)) for parts in (parts_a, parts_b)]
    if len(tables[0]) == len(tables[1]):
        pairs = [(prose[0], prose[1]), *zip(tables[0], tables[1], strict=True)]
        return sum((_part_changes(x, y) for x, y in pairs), TextChanges())
    structure = f"{_counted(len(tables[0]), 'table')} and {len(tables[1])}"
    flat = ["\n".join(map(_flat, parts)) for parts in (parts_a, parts_b)]
    return _prose_changes(flat[0], flat[1]) + TextChanges(structures=(structure,))


def plain(text: str) -> str:
    """Give what a text says without blanks and spelling of markup."""
    return "".join(joined(tidy(_flat(part))) for part in split_tables(text[:MOST_CHARACTERS]))


def _part_changes(a: str | Table, b: str | Table) -> TextChanges:
    if isinstance(a, Table) and isinstance(b, Table):
        return _table_changes(a, b)
    return _prose_changes(str(a), str(b))


def _table_changes(a: Table, b: Table) -> TextChanges:
    if a.bars or b.bars:  # Markdown has no cells that span others
        a, b = a.grid(), b.grid()
    if a.shape != b.shape:
        return _prose_changes(_flat(a), _flat(b)) + TextChanges(structures=(_structure_words(a, b),))
    header = [tidy(cell[0]) for cell in a.rows[0]] if a.rows else []
    named = bool(header) and not any(re.search(r"\d", text) for text in header)
    changed: list[tuple[str, str, str]] = []
    for number, (row_a, row_b) in enumerate(zip(a.rows, b.rows, strict=True), start=0 if named else 1):
        for column, ((text_a, *_), (text_b, *_)) in enumerate(zip(row_a, row_b, strict=True)):
            if text_a != text_b:
                place = _place(number, header[column] if named and column < len(header) else "", column)
                changed.append((text_a, text_b, place))
    texts_a, texts_b = ({joined(tidy(texts[side])) for texts in changed} for side in (0, 1))
    moved = (texts_a & texts_b) - {""}
    return sum((_cell_changes(*texts, moved) for texts in changed), TextChanges())


def _cell_changes(a: str, b: str, place: str, moved: Set[str]) -> TextChanges:
    """Changes of a cell. A text that left it, came from another cell or is quite another one is as good as a
    value."""
    found = _prose_changes(a, b, place)
    a, b = tidy(a), tidy(b)
    other = max(len(a.split()), len(b.split())) <= _SHORT and not is_slip(a, b)
    if found.words and not found.values and (other or not (a and b) or {joined(a), joined(b)} & moved):
        return TextChanges(values=(Change(a, b, place),))
    return found


def _place(row: int, header: str, column: int) -> str:
    return f"{f'row {row}' if row else 'header'}, {_cut(header) or f'column {column + 1}'}"


def _structure_words(a: Table, b: Table) -> str:
    if len(a.rows) != len(b.rows):
        return f"a table has {_counted(len(a.rows), 'row')} and {len(b.rows)}"
    counts = [[sum(span[0] for span in row) for row in table.shape] for table in (a, b)]
    rows = [number for number, (x, y) in enumerate(zip(*counts, strict=True), start=1) if x != y]
    if rows:
        x, y = (side[rows[0] - 1] for side in counts)
        return f"row {rows[0]} of a table has {_counted(x, 'cell')} and {y}"
    return "cells of a table span other rows or columns"


def _prose_changes(a: str, b: str, place: str = "") -> TextChanges:
    """Words are aligned by the fewest edits; values in what differs are paired in order."""
    a, b = marked(a), marked(b)
    return TextChanges() if joined(a) == joined(b) else _compared(apart(a), apart(b), place)


def _compared(a: str, b: str, place: str) -> TextChanges:
    """Changes between two texts of `apart`."""
    sides = _Side(a, tokens(a)), _Side(b, tokens(b))
    values: list[Change] = []
    words: list[Change] = []
    for i, j, k, m in _regions(*([token.text for token in side.tokens] for side in sides)):
        start = _number_start(sides[0].tokens, i)
        texts = sides[0].between(start, j), sides[1].between(k - (i - start), m)
        if joined(texts[0]) == joined(texts[1]):
            continue  # blanks alone
        if texts[0].count(FORMULA) != texts[1].count(FORMULA):  # a formula here may be prose there
            within = _compared(unmarked(texts[0]), unmarked(texts[1]), place)
            values += within.values
            words += within.words
            continue
        left, right = (
            [token.text for token in side] for side in (sides[0].tokens[i:j], sides[1].tokens[k:m])
        )
        values_a, values_b = ([token for token in side if is_value(token)] for side in (left, right))
        if values_a != values_b and len(values_a) == len(values_b) == 1 and len(left) + len(right) <= _NEAR:
            values.append(Change(" ".join(map(shown, left)), " ".join(map(shown, right)), place))
            continue
        if values_a != values_b:
            values += _paired(values_a, values_b, place)
        words_a, words_b = ([token for token in side if not is_value(token)] for side in (left, right))
        if words_a == words_b:
            continue
        change = Change(" ".join(words_a), " ".join(words_b), place)
        absent = not words_a or not words_b
        other = absent or not is_slip(change.a, change.b)
        lines = values_a == values_b and sides[0].are_lines(i, j) and sides[1].are_lines(k, m)
        if (other and lines) or (not absent and _other_names(change.a, change.b)):
            values.append(change)
            continue
        if any(map(APART.fullmatch, (*words_a, *words_b))):  # no blanks: a word is several tokens
            words_a, words_b = sides[0].around(i, j), sides[1].around(k, m)
        weight = decides(words_a, words_b)
        named = sides[0].names_value(i, j) if words_a else sides[1].names_value(k, m)
        if weight == 2 and other and named:
            weight = 1
        words.append(replace(change, weight=weight))
    moved = {change.a for change in words} & {change.b for change in words} - {""}
    words = [replace(one, weight=1) if one.weight == 2 and {one.a, one.b} & moved else one for one in words]
    return TextChanges(tuple(values), (), tuple(words))


class _Side(NamedTuple):
    """A text of `apart` with its tokens."""

    text: str
    tokens: list[Token]

    def between(self, start: int, end: int) -> str:
        """The text of some tokens with what stands before and after them."""
        first = self.tokens[start - 1].end if start else 0
        return self.text[first : self.tokens[end].start if end < len(self.tokens) else len(self.text)]

    def are_lines(self, start: int, end: int) -> bool:
        """Tell whether some tokens are lines by themselves; none are."""
        if start == end:
            return True
        before = start == 0 or "\n" in self.between(start, start)
        return before and (end == len(self.tokens) or "\n" in self.between(end, end))

    def around(self, start: int, end: int) -> list[str]:
        """Tokens with two before and after them."""
        return [token.text for token in self.tokens[max(0, start - 2) : end + 2]]

    def names_value(self, start: int, end: int) -> bool:
        """Tell whether words stand beside a value, or in a short line that has a value or a colon."""
        before = self.tokens[max(0, start - 2) : start]
        if before and "\n" not in self.between(start, start):
            first, last = before[0].text, before[-1].text
            if is_value(last) or (is_value(first) and APART.fullmatch(last)):
                return True
        if end < len(self.tokens) and is_value(self.tokens[end].text) and "\n" not in self.between(end, end):
            return True
        left, right = self.tokens[start].start, self.tokens[end - 1].end
        begin = self.text[max(0, left - _LINE) : left].rpartition("\n")[2]
        line = begin + self.text[left : right + _LINE].partition("\n")[0]
        width = sum(1 + (character > "\u2fff") for word in line.split() for character in word)
        return width <= _FIELD and any(character == ":" or character.isdigit() for character in line)


def _other_names(a: str, b: str) -> bool:
    """Tell whether one letter, grade or Roman number stands for another, alone or in a compound: x-axis."""
    parts = [re.split("[-/]", side) if len(side) > 3 else [side] for side in (a, b)]
    differing = [pair for pair in zip(*parts, strict=False) if pair[0].casefold() != pair[1].casefold()]
    return len(parts[0]) == len(parts[1]) and any(
        _NAME.fullmatch(x) and _NAME.fullmatch(y) and x and y for x, y in differing
    )


def _number_start(found: Sequence[Token], start: int) -> int:
    """The start of the number whose last groups a stretch may be: +49 30 before 123 45."""
    first = start
    while first and start - first < 3 and found[first - 1].text[-1].isdigit():
        first -= 1
    return first


def _regions(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
    """Stretches that differ: from where to where in A, and in B."""
    left = right = 0
    open_at: tuple[int, int] | None = None
    for block in Levenshtein.opcodes(a, b):
        if block.tag == "equal":
            if open_at is not None:
                yield open_at[0], left, open_at[1], right
            open_at = None
        elif open_at is None:
            open_at = (left, right)
        left, right = block.src_end, block.dest_end
    if open_at is not None:
        yield open_at[0], left, open_at[1], right


def _paired(a: Sequence[str], b: Sequence[str], place: str) -> list[Change]:
    return [
        Change(shown(x), shown(y), place)
        for i, j, k, m in _regions(a, b)
        for x, y in zip_longest(a[i:j], b[k:m], fillvalue="")
    ]


# --- small things ---------------------------------------------------------------------------------


def _flat(part: str | Table) -> str:
    if isinstance(part, str):
        return part
    return "\n".join("  \n".join(cell[0] for cell in row) for row in part.rows)


def _around_difference(a: str, b: str) -> tuple[str, str]:
    """Both sides, cut where they are long so that the first difference is in sight."""
    alike = next((i for i, (x, y) in enumerate(zip_longest(a, b)) if x != y), 0)
    start = alike - 20 if max(len(a), len(b)) > 60 and alike > 30 else 0
    left, right = (f"…{side[start:]}" if start and side else side for side in (a, b))
    return _cut(left) or "(nothing)", _cut(right) or "(nothing)"


def _cut(text: str, most: int = 60) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _counted(count: int, one: str) -> str:
    return f"{count} {one}{'' if count == 1 else 's'}"
