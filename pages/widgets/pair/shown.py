"""View of a pair: its rows as the pages number them, the selected one, the words over both panes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from dsocr_core.base.formatting import duration, plural
from dsocr_core.reading import render
from dsocr_core.reading.markup import Box
from dsocr_core.reading.parity_records import BoxPair
from dsocr_core.reading.records import OcrResult, Side
from dsocr_core.reading.text_diff import Runs, text_changes, text_difference

if TYPE_CHECKING:
    from dsocr_core.reading.parity import Comparison
    from dsocr_core.reading.parity_records import ParityReport

Results = Mapping[Side, OcrResult]
"""The results that are there, A's first."""
MOST_PAIRS = 4000
"""A page has a hundred boxes; a hostile text may have any number."""
_MOST_WORDS = 20_000
"""Characters of one block whose words are compared; the rest of a longer one is shown as it is."""


@dataclass(frozen=True)
class Pairing:
    """One row of the comparison as the page shows it: a BoxPair, or one side's box alone ("single").

    Boxes that match and hold another text have the state "text".
    """

    state: str
    a: Box | None
    b: Box | None
    iou: float | None
    shift_percent: float | None

    def box(self, side: Side) -> Box | None:
        return self.a if side == "a" else self.b


def pairings(pairs: Iterable[BoxPair]) -> list[Pairing]:
    """Pairs in reading order: by A's box, a box that only B has after the one before it."""
    rows = [Pairing(_state(pair), pair.a, pair.b, pair.iou, pair.shift_percent) for pair in pairs]
    return sorted(rows, key=_reading_order)[:MOST_PAIRS]


def _state(pair: BoxPair) -> str:
    return "text" if pair.state == "matched" and _other_text(pair.a, pair.b) else pair.state


def _other_text(a: Box | None, b: Box | None) -> bool:
    return a is not None and b is not None and a.text.strip() != b.text.strip()


def lone_pairings(boxes: Iterable[Box], side: Side) -> list[Pairing]:
    """The boxes of the only side that has a result."""
    return [
        Pairing("single", box if side == "a" else None, box if side == "b" else None, None, None)
        for box in boxes
    ][:MOST_PAIRS]


def _reading_order(row: Pairing) -> tuple[int, int]:
    if row.a is not None:
        return row.a.index, 0
    assert row.b is not None
    return row.b.index, 1


def other_texts(rows: Iterable[Pairing]) -> set[int]:
    """Rows whose two boxes hold another text, wherever they stand."""
    return {number for number, row in enumerate(rows) if _other_text(row.a, row.b)}


@lru_cache(maxsize=512)
def compared(left: str, right: str) -> tuple[Runs, Runs]:
    """Two texts as runs of what both have and what one has alone."""
    if left == right:
        return [(left, "same")], [(right, "same")]
    runs = text_difference(left[:_MOST_WORDS], right[:_MOST_WORDS])
    for of_side, text in zip(runs, (left, right), strict=True):
        if text[_MOST_WORDS:]:
            of_side.append((text[_MOST_WORDS:], "same"))
    return runs


@lru_cache(maxsize=512)
def changes(left: str, right: str) -> list[str]:
    """Name what differs between two texts for people, what has digits first."""
    return [change.words for change in text_changes(left[:_MOST_WORDS], right[:_MOST_WORDS])]


def label_colours(rows: Iterable[Pairing]) -> dict[str, str]:
    """The colour of every label on the page as #rrggbb."""
    labels = {box.label for row in rows for box in (row.a, row.b) if box}
    return {label: "#{:02x}{:02x}{:02x}".format(*render.label_colour(label)) for label in labels}


@dataclass(frozen=True)
class Shown:
    """A pair and its rows as viewer, texts and tables number them."""

    comparison: Comparison
    names: Mapping[Side, str]
    """Words that stand over the panes."""
    rows: list[Pairing]
    selected: int | None
    select: Callable[[int | None], None]
    """Takes the row that was clicked, None for none."""
    prefix: str = ""
    """Before the names of the session's keys."""
    sheet: int = 0
    """Number of the page shown among those of one prompt."""

    @property
    def results(self) -> Results:
        """The results that are there, A's first."""
        return self.comparison.results

    @property
    def report(self) -> ParityReport | None:
        return self.comparison.report

    def row_of(self, a: int | None, b: int | None) -> int | None:
        """The row of A's box or of B's, by their `Box.index`."""
        for number, row in enumerate(self.rows):
            if (row.a and row.a.index == a) or (row.b and row.b.index == b):
                return number
        return None

    @cached_property
    def differing(self) -> set[int]:
        """Rows that some difference is about."""
        found = self.report.differences if self.report else ()
        a = {box for item in found for box in item.where.boxes_a}
        b = {box for item in found for box in item.where.boxes_b}
        return {
            number
            for number, row in enumerate(self.rows)
            if (row.a and row.a.index in a) or (row.b and row.b.index in b)
        }


def rows_of(comparison: Comparison | None, sheet: int = 0) -> list[Pairing]:
    """Pairs of boxes of a page in reading order; else the boxes of the first side that has some."""
    if comparison is None:
        return []
    if comparison.report is not None and comparison.report.pairs:
        return pairings(pair for pair in comparison.report.pairs if pair.page == sheet)
    for side, result in comparison.results.items():
        if result.boxes:
            return lone_pairings((box for box in result.boxes if box.page == sheet), side)
    return []


def result_words(result: OcrResult) -> str:
    """Say how much a backend read and in what time, as far as it tells."""
    found = [plural(len(result.boxes), "box", "boxes") if result.boxes_known else "boxes not known"]
    if result.token_ids is not None:
        found.append(plural(len(result.token_ids), "token"))
    if result.finish_reason == "length":
        found.append("stopped at the token limit")
    found += result.notes
    return ", ".join([*found, *([duration(result.total_ms)] if result.timings else [])])
