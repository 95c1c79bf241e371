"""The queue of a review: pages worst first, filters, and how many pages each filter value has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from dsocr_core.reading.parity_records import KINDS, VERDICT_WORDS
from dsocr_core.review.page import SIZE_CLASSES, PageReview
from dsocr_core.review.verdicts import VERDICTS, Judgement, VerdictWord

UNREVIEWED, DISAGREEMENT = "not reviewed", "disagreement"
DECISIONS = (UNREVIEWED, *VERDICTS, DISAGREEMENT)
"""Decision of the reviewers on a page."""
REJECTED: VerdictWord = "wrong"


@dataclass(frozen=True)
class Filters:
    """Filters of the pages to show. Empty sets mean any; several values of one filter mean any of them."""

    failing: bool = False
    """Only pages that do not pass parity."""
    parity: frozenset[str] = frozenset()
    """Some of `parity_records.VERDICTS`."""
    labels: frozenset[str] = frozenset()
    """Pages with a box of such a label."""
    presets: frozenset[str] = frozenset()
    sizes: frozenset[str] = frozenset()
    """Some of `page.SIZE_CLASSES`."""
    kinds: frozenset[str] = frozenset()
    """Some of `parity_records.KINDS`; `loop` and `truncated` find pages where both sides show it, too."""
    verdicts: frozenset[str] = frozenset()
    """Some of `DECISIONS`."""
    text: str = ""
    """Part of the page's name, whatever its case."""


Given = Mapping[str, Mapping[str, Judgement]]
"""Page name -> reviewer -> the row that counts: `Verdicts.current()`."""


def select(pages: Iterable[PageReview], filters: Filters, given: Given) -> list[PageReview]:
    """The pages that pass all filters, in the order given (a review's own is worst first)."""
    return [page for page in pages if not _missed(page, filters, given)]


def counts(pages: Iterable[PageReview], filters: Filters, given: Given) -> dict[str, dict[str, int]]:
    """For each filter its values and how many pages choosing that value alone would leave.

    The other filters stay as they are. Every value that some page of the review has is there, with 0 where
    the other filters leave none; parity and verdicts are all there.
    """
    found: dict[str, dict[str, int]] = {name: {} for name in _VALUES}
    found["failing"] = {"all": 0, "fail": 0}
    found["parity"] = dict.fromkeys(VERDICT_WORDS, 0)
    found["verdicts"] = dict.fromkeys(DECISIONS, 0)
    for page in pages:
        missed = _missed(page, filters, given)
        for name, values_of in _VALUES.items():
            counted = missed <= {name}
            for value in values_of(page, given):
                found[name][value] = found[name].get(value, 0) + counted
    order = {name: {value: rank for rank, value in enumerate(values)} for name, values in _ORDER.items()}
    return {
        name: dict(sorted(values.items(), key=lambda item: (order.get(name, {}).get(item[0], 0), item[0])))
        for name, values in found.items()
    }


def decision(page: str, given: Given) -> str:
    """Return what the reviewers of a page decided: one verdict, a disagreement, or UNREVIEWED."""
    found = {row.verdict for row in given.get(page, {}).values() if row.verdict is not None}
    return DISAGREEMENT if len(found) > 1 else next(iter(found), UNREVIEWED)


def rejected(page: str, given: Given) -> bool:
    """Tell whether any reviewer's verdict on a page is "wrong"; one that others contradict counts, too."""
    return any(row.verdict == REJECTED for row in given.get(page, {}).values())


Outcome = Literal["passed", "failed", "error", "only in one run"]


def outcome(page: PageReview, given: Given) -> Outcome:
    """Say as what a page counts, in every report: it fails parity, or a reviewer's verdict is "wrong"."""
    if page.in_one_run and not rejected(page.name, given):
        return "only in one run"
    if page.fails and page.verdict == "not_comparable":
        return "error"
    return "failed" if page.fails or rejected(page.name, given) else "passed"


def _missed(page: PageReview, filters: Filters, given: Given) -> set[str]:
    """Names of the filters that the page does not pass."""
    missed = set()
    if filters.failing and not page.fails:
        missed.add("failing")
    for name in ("parity", "labels", "presets", "sizes", "kinds", "verdicts"):
        wanted: frozenset[str] = getattr(filters, name)
        if wanted and wanted.isdisjoint(_VALUES[name](page, given)):
            missed.add(name)
    if filters.text.casefold() not in page.name.casefold():
        missed.add("text")
    return missed


_VALUES: dict[str, Callable[[PageReview, Given], Iterable[str]]] = {
    "failing": lambda page, _: ("all", "fail") if page.fails else ("all",),
    "parity": lambda page, _: (page.verdict,),
    "labels": lambda page, _: page.labels,
    "presets": lambda page, _: (page.preset,) if page.preset else (),
    "sizes": lambda page, _: (page.size_class,),
    "kinds": lambda page, _: {*page.kinds, *page.shared},
    "verdicts": lambda page, given: (decision(page.name, given),),
}
_ORDER: dict[str, Iterable[str]] = {
    "failing": ("all", "fail"),
    "parity": VERDICT_WORDS,
    "sizes": SIZE_CLASSES,
    "kinds": KINDS,
    "verdicts": DECISIONS,
}
