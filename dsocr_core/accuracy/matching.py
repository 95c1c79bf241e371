"""The benchmark's hybrid matching: which written parts answer which true blocks, texts and formulas as one.

In turns: what is like a block that may be missing (a header, a caption) is put aside; neighbours that were
written apart are merged; a cheap pair is a match; a true block inside a longer written part joins it; what is
left on both sides is paired whatever it costs, and true blocks that remain have no answer. Written parts that
remain cost nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dsocr_core.accuracy.distances import Budget, OverBudget, distances, nearest_window
from dsocr_core.accuracy.elements import Element
from dsocr_core.accuracy.ground_truth import FORMULA, IGNORED, TrueBlock
from dsocr_core.accuracy.merging import CLEAR_MATCH, Span, merged_spans
from dsocr_core.accuracy.normal_forms import formula_form, text_form

_MOST_OF_A_MATCH = 0.7
"""Pairs above this distance are left unmatched in the first pass."""
_INSIDE = 0.4
"""A true block lies in a written part in which some stretch of its length is nearer than this."""
_ARRAY = re.compile(r"\\begin\{array\}\{([^}]*)\}(.*?)\\end\{array\}", re.DOTALL)
_COLUMN_MARKS = re.compile(r"\s+|\||[@!]\{[^}]*\}")


@dataclass(frozen=True)
class Match:
    """True blocks and what answers them; either may be without the other."""

    category: str
    orders: tuple[float | None, ...]
    """Reading orders of the true blocks."""
    true: str
    true_form: str
    written: str
    written_form: str
    written_kind: str
    """Kind of the first written part; empty without one."""
    start: int | None
    """Begin of the first written part."""


@dataclass(frozen=True)
class _Side:
    """Texts of one side with their normal forms, those that are empty left out."""

    texts: list[str]
    forms: list[str]


def match_page(blocks: Sequence[TrueBlock], written: Sequence[Element]) -> tuple[list[Match], bool]:
    """The matches of a page that have true blocks, and whether they are whole.

    They are not where a page costs too much: then each true block is paired with one part at most, as the
    benchmark does after its time limit.
    """
    parts = sorted(written, key=lambda part: (part.kind == "inline formula", part.start))
    try:
        return _Hybrid(_split_blocks(blocks), _split_parts(parts)).matches(), True
    except OverBudget:
        return _paired(blocks, written), False


# --- rows of an array are formulas of their own ---------------------------------------------------


def _rows(latex: str) -> list[tuple[str, int]] | None:
    """Rows of an array of one column, and where each begins; None for anything else."""
    found = _ARRAY.search(latex)
    if found is None or _COLUMN_MARKS.sub("", found[1]) not in ("l", "c", "r"):
        return None
    rows, position = [], 0
    for row in (row.strip() for row in found[2].split("\\\\")):
        if row:
            at = max(found[2].find(row, position), position)
            position = at + len(row)
            rows.append((f"\\[{row}\\]", found.start(2) + at))
    return rows


def _split_blocks(blocks: Sequence[TrueBlock]) -> list[TrueBlock]:
    split: list[TrueBlock] = []
    for block in blocks:
        rows = _rows(block.content) if block.category == FORMULA else None
        if rows is None:
            split.append(block)
        else:
            split += [
                replace(block, content=row, order=round((block.order or 0) + number / 10, 1))
                for number, (row, _) in enumerate(rows, 1)
            ]
    return split


def _split_parts(parts: Sequence[Element]) -> list[Element]:
    split: list[Element] = []
    for part in parts:
        rows = _rows(part.content) if part.kind in ("formula", "inline formula") else None
        if rows is None:
            split.append(part)
        else:
            split += [replace(part, content=row, start=part.start + at) for row, at in rows]
    return split


# --- matching -------------------------------------------------------------------------------------


def _true_side(blocks: Sequence[TrueBlock]) -> tuple[_Side, list[str]]:
    """Texts and categories of the true blocks that are not empty."""
    forms = [formula_form if block.category == FORMULA else text_form for block in blocks]
    shaped = [
        (block.content, form(block.content), block.category)
        for block, form in zip(blocks, forms, strict=True)
    ]
    full = [item for item in shaped if item[0] and item[1]]
    return _Side([text for text, _, _ in full], [form for _, form, _ in full]), [name for *_, name in full]


def _written_side(parts: Sequence[Element]) -> _Side:
    forms = [text_form(part.content) if part.kind == "text" else formula_form(part.content) for part in parts]
    full = [(part.content, form) for part, form in zip(parts, forms, strict=True) if part.content and form]
    return _Side([text for text, _ in full], [form for _, form in full])


class _Hybrid:
    """One page. Numbers of blocks and parts are those of the texts that are not empty.

    The benchmark looks positions, kinds and orders up with these numbers in its lists with the empty ones, so
    after an empty text they are those of a neighbour. Kept: reading order would differ otherwise.
    """

    def __init__(self, blocks: Sequence[TrueBlock], parts: Sequence[Element]) -> None:
        self._blocks, self._parts = blocks, parts
        self._true, self._categories = _true_side(blocks)
        self._written = _written_side(parts)
        self._budget = Budget()

    def matches(self) -> list[Match]:
        true, written = self._true.forms, self._written.forms
        if len(true) == 1 and len(written) == 1:
            return [self._match([0], [0])]
        asides = [number for number, name in enumerate(self._categories) if name in IGNORED]
        rows = [number for number, name in enumerate(self._categories) if name not in IGNORED]
        near = distances([true[row] for row in asides], written) < CLEAR_MATCH
        columns = [column for column in range(len(written)) if not near[:, column].any()]
        groups = self._groups([true[row] for row in rows], [written[column] for column in columns])
        return [
            self._match([rows[row] for row in of_true], [columns[column] for column in of_written])
            for of_true, of_written in groups
        ]

    def _groups(self, true: Sequence[str], written: Sequence[str]) -> list[tuple[list[int], Span]]:
        """Groups of true blocks with the written parts that answer them, none for the last ones."""
        groups, unmatched = self._cheap(true, written)
        for column, text in enumerate(written):
            inside = [row for row in unmatched if self._is_inside(true[row], text)]
            if inside:
                group = groups.setdefault((column,), [])
                group += [row for row in inside if not any(row in other for other in groups.values())]
        answered = {row for group in groups.values() for row in group}
        used = {column for span in groups for column in span}
        # In the order of the benchmark's sets, which is not that of the numbers: it decides ties.
        left = list(set(range(len(true))) - answered)
        free = list(set(range(len(written))) - used)
        if left and free:
            costs = distances([true[row] for row in left], [written[column] for column in free])
            for row, column in _assignment(costs):
                groups[free[column],] = [left[row]]
        answered = {row for group in groups.values() for row in group}
        found = [(sorted(group), span) for span, group in groups.items() if group]
        return found + [([row], ()) for row in range(len(true)) if row not in answered]

    def _cheap(self, true: Sequence[str], written: Sequence[str]) -> tuple[dict[Span, list[int]], list[int]]:
        """Cheap pairs by their written parts, neighbours merged, and the true blocks that have none."""
        costs = distances(true, written)
        merged = merged_spans(true, written, costs, self._budget)
        inside = {column for span in merged for column in span}
        spans = sorted([*merged, *((column,) for column in range(len(written)) if column not in inside)])
        if merged:
            costs = distances(true, [" ".join(written[column] for column in span) for span in spans])
        groups: dict[Span, list[int]] = {}
        for row, column in _assignment(costs):
            if costs[row, column] <= _MOST_OF_A_MATCH:
                groups[spans[column]] = [row]
        matched = {row for group in groups.values() for row in group}
        return groups, [row for row in range(len(true)) if row not in matched]

    def _is_inside(self, true: str, written: str) -> bool:
        nearest = nearest_window(true, written, _INSIDE, self._budget)
        return nearest is not None and nearest < _INSIDE

    def _match(self, rows: Sequence[int], columns: Sequence[int]) -> Match:
        category = Counter(self._categories[row] for row in rows).most_common(1)[0][0]
        true = [self._true.texts[row] for row in rows]
        return Match(
            category=category,
            orders=tuple(self._blocks[row].order for row in rows),
            true=_stacked(true) if category == FORMULA and len(true) > 1 else "".join(true),
            true_form="".join(self._true.forms[row] for row in rows),
            written="".join(self._written.texts[column] for column in columns),
            written_form="".join(self._written.forms[column] for column in columns),
            written_kind=self._parts[columns[0]].kind if columns else "",
            start=self._parts[columns[0]].start if columns else None,
        )


def _stacked(formulas: Sequence[str]) -> str:
    """Formulas as the rows of one."""
    rows = " \\\\ ".join("{" + formula.strip("$").strip("\n") + "}" for formula in formulas)
    return "\\begin{array}{l} " + rows + " \\end{array}"


def _assignment(costs: npt.NDArray[np.float64]) -> list[tuple[int, int]]:
    """Pairs (row, column), one to one, of least cost together."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(costs)
    return list(zip(rows.tolist(), columns.tolist(), strict=True))


def _paired(blocks: Sequence[TrueBlock], parts: Sequence[Element]) -> list[Match]:
    """Each true block with one part or none."""
    true, categories = _true_side(blocks)
    written = _written_side(parts)
    pairs = dict(_assignment(distances(true.forms, written.forms)))
    found = []
    for row, category in enumerate(categories):
        column = pairs.get(row)
        # The benchmark takes the first written part for none where it asks what it is and where it begins.
        part = parts[column] if column else None
        found.append(
            Match(
                category=category,
                orders=(blocks[row].order,),
                true=true.texts[row],
                true_form=true.forms[row],
                written="" if column is None else written.texts[column],
                written_form="" if column is None else written.forms[column],
                written_kind=part.kind if part else "",
                start=part.start if part else None,
            )
        )
    return found


def pair_tables(true: Sequence[str], written: Sequence[str]) -> tuple[list[str], list[int]]:
    """Find what answers each true table, "" for none; and the numbers of written tables that answer
    nothing.
    """
    pairs = dict(_assignment(distances(true, written)))
    answers = [written[pairs[row]] if row in pairs else "" for row in range(len(true))]
    return answers, [column for column in range(len(written)) if column not in pairs.values()]
