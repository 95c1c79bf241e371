"""Pages of both sides paired, and a page's comparison made into a `PageReview`: differences, reading order,
hints, and the score for the queue, a sum whose parts are shown. Pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import PurePath

from rapidfuzz.distance import Levenshtein

from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.parity import comparable, sized
from dsocr_core.reading.parity_records import BoxPair, ParityReport, Verdict
from dsocr_core.reading.records import OcrResult
from dsocr_core.review.differences import block_texts, differences, unread
from dsocr_core.review.hints import hints
from dsocr_core.review.page import Difference, Kind, PageReview, ReadingOrder, shared
from dsocr_core.runs.results import Readings


def pair_pages(
    a: tuple[Readings, str | None], b: tuple[Readings, str | None], folder: bool
) -> list[tuple[str | None, str | None]]:
    """Pages of both sides, given with their backends, as pairs; those that only one side has last.

    `folder`: a side is an output folder of the vendor, one page under another name.
    """
    left, right = (
        [page for page, backend in readings.requests if backend == wanted] for readings, wanted in (a, b)
    )
    pairs: list[tuple[str | None, str | None]] = []

    def match(name_a: Callable[[str], str | None], name_b: Callable[[str], str | None]) -> None:
        """Pair what is left by a name that is not ambiguous on either side."""
        there, doubled = _unambiguous(right, name_b)
        here, twice = _unambiguous(left, name_a)
        for name, page in here.items():
            if name in there and name not in doubled | twice:
                pairs.append((page, there[name]))
                left.remove(page)
                right.remove(there[name])

    match(str, str)
    if left and right:
        match(lambda page: _content(*a, page), lambda page: _content(*b, page))
        match(lambda page: PurePath(page).stem, lambda page: PurePath(page).stem)
        if folder and len(left) == len(right) == 1:
            match(lambda _: "", lambda _: "")
    # A page of B under the name of an unmatched page of A cannot be: equal names were matched first.
    return [*pairs, *((page, None) for page in left), *((None, page) for page in right)]


def _content(readings: Readings, backend: str | None, page: str) -> str | None:
    file = readings.requests[page, backend].file
    return None if file is None else file.sha256


def _unambiguous(pages: list[str], name_of: Callable[[str], str | None]) -> tuple[dict[str, str], set[str]]:
    """Name -> page, and the names that several pages have."""
    names: dict[str, str] = {}
    doubled: set[str] = set()
    for page in pages:
        name = name_of(page)
        if name is not None:
            doubled |= {name} & names.keys()
            names[name] = page
    return names, doubled


def compare_page(names: tuple[str | None, str | None], comparison: Comparison) -> PageReview:
    """Everything about a page that the queue needs. `names` are the page's in both runs."""
    a, b, report = comparison.a, comparison.b, comparison.report
    light = replace(comparison, a=_light(a, b), b=_light(b, a))
    if a is None or b is None or report is None:
        return _not_compared(names, light)
    left, right = comparable(a, b)
    order = reading_order(report.pairs)
    blocks = block_texts(left, right, report.pairs)
    found = differences(left, right, report.pairs, order, blocks, report.inputs)
    lengths = (len(left.token_ids or ()), len(right.token_ids or ()))
    parts = score_parts(report.verdict, report, found, order, lengths)
    return PageReview(
        names=names,
        comparison=light,
        report=report,
        reasons=report.reasons,
        differences=found,
        order=order,
        blocks=blocks,
        hints=hints(a, b, report, found),
        score=round(sum(parts.values()), 3),
        parts=parts,
    )


def _not_compared(names: tuple[str | None, str | None], comparison: Comparison) -> PageReview:
    found = unread(names, comparison)
    report: ParityReport | None = None
    parts = score_parts("not_comparable", report, found, NO_ORDER, (0, 0))
    absent = tuple(item.words for item in found if item.kind == "absent")
    return PageReview(
        names=names,
        comparison=comparison,
        report=report,
        reasons=(*comparison.reasons, *absent),
        differences=found,
        order=NO_ORDER,
        blocks=(),
        hints=(),
        score=round(sum(parts.values()), 3),
        parts=parts,
    )


def _light(result: OcrResult | None, other: OcrResult | None) -> OcrResult | None:
    """A result without what is read when its page is shown, on a page of a known size if any side has it."""
    if result is None:
        return None
    if other is not None and not all(result.image_size) and all(other.image_size):
        result = sized(result, other)
    return replace(result, token_texts=(), top_two=(), timings=())


NO_ORDER = ReadingOrder(0, 0, 0, ())

ORDER_LIMIT = 5000
"""Boxes whose order is compared: a page has a hundred, a hostile text may have any number."""


def reading_order(pairs: Iterable[BoxPair]) -> ReadingOrder:
    """The order of matched boxes on both sides, A's order of appearance against B's."""
    both = sorted((pair.a.index, pair.b.index) for pair in pairs if pair.a and pair.b)
    del both[ORDER_LIMIT:]
    of_b = [b for _, b in both]
    in_order = sorted(of_b)
    if of_b == in_order:
        return ReadingOrder(len(both), 0, 0, ())
    in_place = set(longest_increasing(of_b))
    return ReadingOrder(
        matched=len(both),
        inversions=inversions(of_b),
        edit_distance=Levenshtein.distance(of_b, in_order),
        out_of_order=tuple(a for index, (a, _) in enumerate(both) if index not in in_place),
    )


def inversions(values: Sequence[int]) -> int:
    """Pairs of values that stand in reversed order."""
    passed: list[int] = []
    count = 0
    for value in values:
        count += len(passed) - bisect_right(passed, value)
        insort(passed, value)
    return count


def longest_increasing(values: Sequence[int]) -> list[int]:
    """Indices of the longest strictly increasing subsequence, in order."""
    ends: list[int] = []
    indices: list[int] = []
    before: list[int | None] = []
    for index, value in enumerate(values):
        length = bisect_left(ends, value)
        before.append(indices[length - 1] if length else None)
        if length == len(ends):
            ends.append(value)
            indices.append(index)
        else:
            ends[length], indices[length] = value, index
    chain: list[int] = []
    at = indices[-1] if indices else None
    while at is not None:
        chain.append(at)
        at = before[at]
    return chain[::-1]


FAILED, NOT_COMPARED = 1000.0, 1500.0
"""A page that differs comes before all that pass; one that cannot be compared before those."""
ABSENT = 0.5
"""A page that only one run has is no difference of what was read: it comes after all that are."""

FOUND, WHOLE = 20.0, 100.0
"""Any difference of boxes, text or order counts `FOUND`; to it comes up to `WHOLE` by how much differs. Both
together outweigh what tokens, inputs and small shifts can add up to (12)."""

_OF_VERDICT: dict[Verdict, float] = {"differs": FAILED, "not_comparable": NOT_COMPARED}
_ENDS: dict[Kind, float] = {"loop": 80.0, "truncated": 60.0, "no_eos": 40.0}


def score_parts(
    verdict: Verdict,
    report: ParityReport | None,
    found: Iterable[Difference],
    order: ReadingOrder,
    lengths: tuple[int, int],
) -> dict[str, float]:
    """Parts of the score that are not 0. `lengths` are both sides' new tokens.

    verdict: 1000 where it differs, 1500 where it cannot be compared, 0.5 where one run lacks the page. boxes:
    by the share of boxes that have no partner, moved or changed their label. text: by the character error
    rate. order: by edit distance per box, half as much. end: a loop 80, the token limit 60, no end token 40,
    the gravest of one side. inputs: 5. tokens: up to 5, more the earlier they diverge. shift: percent of the
    page, up to 2.
    """
    found = [difference for difference in found if not shared(difference)]
    kinds = {difference.kind for difference in found}
    parts = {
        "verdict": ABSENT if "absent" in kinds else _OF_VERDICT.get(verdict, 0.0),
        "boxes": _boxes(report.pairs) if report else 0.0,
        "text": FOUND + WHOLE * min(1.0, report.character_error_rate) if report and "text" in kinds else 0.0,
        "order": FOUND + WHOLE / 2 * min(1.0, order.normalised) if "order" in kinds else 0.0,
        "end": max((_ENDS.get(kind, 0.0) for kind in kinds), default=0.0),
        "inputs": 5.0 if "inputs" in kinds else 0.0,
        "tokens": _tokens(report, lengths),
        "shift": min(2.0, (report.max_coordinate_difference_percent or 0.0) if report else 0.0),
    }
    return {name: round(value, 3) for name, value in parts.items() if value}


def _boxes(pairs: Sequence[BoxPair]) -> float:
    bad = sum(pair.state != "matched" for pair in pairs)
    return FOUND + WHOLE * bad / len(pairs) if bad else 0.0


def _tokens(report: ParityReport | None, lengths: tuple[int, int]) -> float:
    if report is None or report.first_divergence is None:
        return 0.0
    return 2.0 + 3.0 * (1 - min(1.0, report.first_divergence.index / max(1, *lengths)))
