"""What is shown of a pair: its rows, the selected one, and the words over both panes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dsocr_core.outputs.parity import is_plain
from dsocr_core.records import OcrResult, Side
from dsocr_core.words import duration, plural
from pages.widgets.shared.pairing import Pairing, lone_pairings, other_texts, pairings
from pages.widgets.shared.result_tables import Results, token_count

if TYPE_CHECKING:
    from dsocr_core.outputs.comparison import Comparison
    from dsocr_core.parity_records import ParityReport


@dataclass(frozen=True)
class Shown:
    """A pair and its rows as viewer, texts and tables number them."""

    comparison: Comparison
    names: Mapping[Side, str]
    """What stands over the panes."""
    rows: list[Pairing]
    selected: int | None
    select: Callable[[int | None], None]
    """Takes the row that was clicked, None for none."""
    prefix: str = ""
    """Before the names of the session's keys."""

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
        """Rows whose texts differ."""
        return other_texts(self.rows)


def rows_of(comparison: Comparison | None) -> list[Pairing]:
    """Pairs of boxes in reading order; else the boxes of the first side that has some."""
    if comparison is None:
        return []
    if comparison.report is not None and comparison.report.pairs:
        return pairings(comparison.report.pairs)
    for side, result in comparison.results.items():
        if result.boxes:
            return lone_pairings(result.boxes, side)
    return []


def result_words(result: OcrResult) -> str:
    """How much a backend read and in what time, as far as it tells."""
    found = ["boxes not known" if is_plain(result) else plural(len(result.boxes), "box", "boxes")]
    if result.token_ids is not None:
        found.append(plural(token_count(result), "token"))
    if result.finish_reason == "length":
        found.append("stopped at the token limit")
    return ", ".join([*found, *([duration(result.total_ms)] if result.timings else [])])
