"""The figures of a page and of all pages, as the benchmark counts them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dsocr_core.accuracy.distances import distance
from dsocr_core.accuracy.elements import Element, elements
from dsocr_core.accuracy.ground_truth import FORMULA, SCORED, TruePage
from dsocr_core.accuracy.matching import Match, match_page, pair_tables
from dsocr_core.accuracy.normal_forms import latex_words, table_form, text_form
from dsocr_core.accuracy.teds import TooLarge, teds

MARKDOWN_LIMIT = 60_000
"""Characters of a page that are measured: taking it apart is quadratic on hostile text."""


@dataclass(frozen=True)
class PageScore:
    """The figures of one page; None where it has nothing to count."""

    text_edit: float | None
    """Edit distance of its texts over the longer lengths together, 0 is best."""
    order_edit: float | None
    """Edit distance of the reading order, 0 is best."""
    formula_edit: float | None
    """Edit distance of its displayed formulas that were written as formulas or not at all, 0 is best."""
    table_teds: float | None
    """Mean over its tables, 1 is best."""
    table_structure: float | None
    """The same without what the cells say."""
    tables: int
    notes: tuple[str, ...] = ()
    """Measures that were not taken in full, and why."""


@dataclass(frozen=True)
class Total:
    """Means over the pages that have the figure, as the benchmark's overall table has them."""

    pages: int
    """Pages that were measured."""
    text_edit: float | None
    order_edit: float | None
    formula_edit: float | None
    table_teds: float | None
    table_structure: float | None


def score_page(page: TruePage, markdown: str) -> PageScore:
    """Score how a page was read."""
    notes = []
    if len(markdown) > MARKDOWN_LIMIT:
        notes.append(f"of {len(markdown):,} characters the first {MARKDOWN_LIMIT:,} are measured")
    found = elements(markdown[:MARKDOWN_LIMIT])
    answers, extra = _tables(page, found)
    mixed = [*_by_kind(part for part in found if not part.kind.endswith("table")), *extra]
    matches, is_whole = match_page(page.blocks, mixed)
    if not is_whole:
        notes.append("too much text to match in full: each block is paired with one part at most")
    likeness = []
    for true, written in answers:
        try:
            forms = table_form(true), table_form(written)
            likeness.append((teds(*forms), teds(*forms, structure_only=True)))
        except TooLarge as error:
            notes.append(str(error))
    return PageScore(
        text_edit=_edit(filter(None, map(_as_text, matches))),
        order_edit=_order_edit(matches),
        formula_edit=_edit((match.true_form, match.written_form) for match in matches if _is_formula(match)),
        table_teds=_mean(whole for whole, _ in likeness),
        table_structure=_mean(structure for _, structure in likeness),
        tables=len(answers),
        notes=tuple(notes),
    )


def total(scores: Iterable[PageScore]) -> Total:
    """The means over pages."""
    pages = list(scores)
    return Total(
        len(pages),
        _mean(page.text_edit for page in pages),
        _mean(page.order_edit for page in pages),
        _mean(page.formula_edit for page in pages),
        _mean(page.table_teds for page in pages),
        _mean(page.table_structure for page in pages),
    )


def _mean(values: Iterable[float | None]) -> float | None:
    counted = [value for value in values if value is not None]
    return sum(counted) / len(counted) if counted else None


def _by_kind(parts: Iterable[Element]) -> list[Element]:
    """Texts before formulas or after them, as the first of each comes: it counts for what begins alike."""
    groups: dict[bool, list[Element]] = {}
    for part in parts:
        groups.setdefault(part.kind == "text", []).append(part)
    return [part for group in groups.values() for part in group]


# --- tables -----------------------------------------------------------------------------------------


def _tables(page: TruePage, found: Sequence[Element]) -> tuple[list[tuple[str, str]], list[Element]]:
    """True tables with what answers them, and the cells of written tables that answer none, as texts.

    LaTeX tables count as not written where there are more of them than of HTML: the benchmark blanks them,
    once they are matched by the LaTeX of the truth. A true table without what is matched does not count.
    """
    true = [table.content for table in page.tables if table.content]
    written = [part for part in found if part.kind == "html table"]
    latex = [part for part in found if part.kind == "latex table"]
    if len(latex) > len(written):
        asked = [table for table in page.tables if table.content and table.latex != ""]
        names = [table.content if table.latex is None else table.latex for table in asked]
        extra = pair_tables(names, [part.content for part in latex])[1] if asked else []
        return [(table.content, "") for table in asked], _cells([latex[number] for number in extra])
    if not true:
        return [], []
    answers, extra = pair_tables(true, [part.content for part in written])
    return list(zip(true, answers, strict=True)), _cells([written[number] for number in extra])


def _cells(tables: Iterable[Element]) -> list[Element]:
    from bs4 import BeautifulSoup

    found = []
    for table in tables:
        for cell in BeautifulSoup(table.content, "html.parser").find_all("td"):
            if cell.string:
                words = re.sub(r"\$\\cdot\$", "", cell.string).strip()
                found.append(Element("text", table.start, words))
    return found


# --- texts and their order --------------------------------------------------------------------------


def _is_formula(match: Match) -> bool:
    return match.category == FORMULA and match.written_kind != "text"


def _as_text(match: Match) -> tuple[str, str] | None:
    """Give what is compared as text, true and written."""
    if match.category in SCORED:
        return match.true_form, match.written_form
    if match.category != FORMULA or _is_formula(match):
        return None
    # A formula that was written as text is judged as one.
    words = latex_words(match.true)
    true = text_form(match.true if words is None else words)
    return true or (words or ""), match.written_form


def _edit(pairs: Iterable[tuple[str, str]]) -> float | None:
    """Edits of all pairs over the longer lengths together."""
    edits = lengths = 0.0
    for true, written in pairs:
        longer = max(len(true), len(written))
        edits += distance(true, written) * longer
        lengths += longer
    return edits / lengths if lengths else None


def _order_edit(matches: Sequence[Match]) -> float | None:
    """Orders of the true blocks as their answers follow each other, against their own order."""
    texts = [match for match in matches if match.category in SCORED and any(match.orders)]
    answered = sorted(
        ((match.start, match.orders) for match in texts if match.start is not None), key=lambda item: item[0]
    )
    written = [order for _, orders in answered for order in orders if order]
    true = sorted(order for match in texts for order in match.orders if order)
    return distance(true, written) if true or written else None
