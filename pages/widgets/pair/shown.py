"""View of a pair: its rows as the pages number them, the selected one, and what the page itself says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr_core.base.formatting import duration, plural
from dsocr_core.reading.artifacts import label_colour
from dsocr_core.reading.markup import Box, Span, page_texts
from dsocr_core.reading.parity_records import Cause
from dsocr_core.reading.records import OcrResult, Side
from dsocr_core.reading.text_diff import Runs, plain, squeezed, text_difference
from pages.widgets.shared import sources

if TYPE_CHECKING:
    from dsocr_core.reading.parity import Comparison
    from dsocr_core.reading.parity_records import ParityReport

Results = Mapping[Side, OcrResult]
"""The results that are there, A's first."""
MOST_ROWS = 4000
"""Most boxes, or pairs of boxes, that a page shows."""
"""A page has a hundred boxes; a hostile text may have any number."""
_MOST_WORDS = 20_000
"""Characters of one block whose words are compared; the rest of a longer one is shown as it is."""


# --- what the page says ---------------------------------------------------------------------------


@dataclass(frozen=True)
class TrueBlock:
    """A block of a sample, whose text is known. `box` is (x1, y1, x2, y2) in pixels."""

    box: tuple[int, int, int, int]
    text: str

    def says(self, text: str) -> bool:
        """Tell whether the block says this, whatever the blanks and the spelling of markup."""
        return _bare(text) == _bare(self.text)

    def covered(self, box: Box) -> float:
        """Share that a box covers."""
        x1, y1, x2, y2 = self.box
        across, down = min(x2, box.x2) - max(x1, box.x1), min(y2, box.y2) - max(y1, box.y1)
        return max(across, 0) * max(down, 0) / max((x2 - x1) * (y2 - y1), 1)


_STRUCTURE = dict.fromkeys(range(0xE000, 0xE020))
"""Marks of headings, list items and cells in a plain text, which the page does not write."""


def _bare(text: str) -> str:
    return squeezed(plain(text).translate(_STRUCTURE))


Truth = tuple[TrueBlock, ...]


def truth_of(picture: Path | None) -> Truth:
    """The blocks of a page that is one of the samples; empty for any other page."""
    if picture is None or picture.parent.resolve() != sources.SAMPLES:
        return ()
    return _samples(sources.SAMPLES).get(picture.name, ())


@cache
def _samples(folder: Path) -> dict[str, Truth]:
    try:
        pages = json.loads((folder / "ground_truth.json").read_text("utf-8"))
    except OSError:  # without the samples nothing is known
        return {}
    return {
        name: tuple(TrueBlock(tuple(block["box"]), block["text"]) for block in page["blocks"])
        for name, page in pages.items()
    }


# --- rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One block of the comparison: a BoxPair, or one side's box alone ("single").

    Boxes that match and whose texts differ have the state "text".
    """

    state: str
    a: Box | None
    b: Box | None
    iou: float | None = None
    shift_percent: float | None = None

    @property
    def box(self) -> Box:
        """A's box, or B's where only B has one."""
        box = self.a or self.b
        assert box is not None
        return box

    @property
    def text_differs(self) -> bool:
        return self.a is not None and self.b is not None and self.a.text.strip() != self.b.text.strip()

    def of(self, side: Side) -> Box | None:
        return self.a if side == "a" else self.b

    def has(self, a: Iterable[int | None], b: Iterable[int | None]) -> bool:
        """Tell whether one of A's boxes with these numbers, or of B's, is in it."""
        return bool((self.a and self.a.index in a) or (self.b and self.b.index in b))


def rows_of(comparison: Comparison | None, sheet: int = 0) -> list[Row]:
    """Pairs of boxes of a page in reading order; else the boxes of the first side that has some."""
    if comparison is None:
        return []
    if comparison.report is not None and comparison.report.pairs:
        rows = [
            Row(pair.state, pair.a, pair.b, pair.iou, pair.shift_percent)
            for pair in comparison.report.pairs if pair.page == sheet
        ]  # fmt: skip
        rows = [
            replace(row, state="text") if row.state == "matched" and row.text_differs else row for row in rows
        ]
        # By A's box, a box that only B has after the one before it.
        return sorted(rows, key=lambda row: (row.box.index, row.a is None))[:MOST_ROWS]
    for side, result in comparison.results.items():
        if result.boxes:
            boxes = [box for box in result.boxes if box.page == sheet][:MOST_ROWS]
            return [Row("single", *((box, None) if side == "a" else (None, box))) for box in boxes]
    return []


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


def label_colours(rows: Iterable[Row]) -> dict[str, str]:
    """The colour of every label on the page as #rrggbb."""
    labels = {box.label for row in rows for box in (row.a, row.b) if box}
    return {label: "#{:02x}{:02x}{:02x}".format(*label_colour(label)) for label in labels}


def sheet_text(result: OcrResult, sheet: int) -> tuple[str, Sequence[Span]]:
    """Text and spans of one page of a prompt. The first page's begin with the text before it."""
    if result.request.form.pages is None:
        return result.text_raw, result.blocks
    head, *pages = page_texts(result.text_raw, result.blocks)
    text, spans = pages[sheet] if sheet < len(pages) else ("", ())
    if sheet or not head[0].strip():
        return text, spans
    before = len(head[0])
    moved = (replace(span, start=span.start + before, end=span.end + before) for span in spans)
    return head[0] + text, [*head[1], *moved]


# --- the pair -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PairView:
    """A pair and its rows as viewer, texts and tables number them."""

    comparison: Comparison
    names: Mapping[Side, str]
    """Words over the panes."""
    rows: list[Row]
    selected: int | None
    select: Callable[[int | None], None]
    """Takes the row that was clicked, None for none."""
    prefix: str = ""
    """Start of the names of the session's keys."""
    sheet: int = 0
    """Number of the page shown among those of one prompt."""
    truth: Truth = ()
    """The blocks of the page, where they are known."""
    known_causes: tuple[Cause, ...] = ()
    """Causes that were reproduced, in place of likely ones."""

    @property
    def results(self) -> Results:
        """The results that are there, A's first."""
        return self.comparison.results

    @property
    def report(self) -> ParityReport | None:
        return self.comparison.report

    @property
    def causes(self) -> tuple[Cause, ...]:
        """Likely causes, the surest first."""
        return self.known_causes or (self.report.causes if self.report else ())

    def row_of(self, a: int | None, b: int | None) -> int | None:
        """The row of A's box or of B's, by their `Box.index`."""
        return next((number for number, row in enumerate(self.rows) if row.has((a,), (b,))), None)

    def true_block(self, row: Row) -> TrueBlock | None:
        """The block that a row's box covers most of; None where it covers less than half of any."""
        found = max(self.truth, key=lambda block: block.covered(row.box), default=None)
        return found if found and found.covered(row.box) > 0.5 else None

    @cached_property
    def differing(self) -> set[int]:
        """Rows that some difference is about."""
        found = self.report.differences if self.report else ()
        a = {box for item in found for box in item.boxes_a}
        b = {box for item in found for box in item.boxes_b}
        return {number for number, row in enumerate(self.rows) if row.has(a, b)}


def result_words(result: OcrResult) -> str:
    """Say how much a backend read and in what time, as far as it tells."""
    found = [plural(len(result.boxes), "box", "boxes") if result.boxes_known else "boxes not known"]
    if result.token_ids is not None:
        found.append(plural(len(result.token_ids), "token"))
    if result.finish_reason == "length":
        found.append("stopped at the token limit")
    found += result.notes
    return ", ".join([*found, *([duration(result.total_ms)] if result.timings else [])])
