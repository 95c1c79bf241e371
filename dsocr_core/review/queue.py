"""The queue of a review: pages worst first, filters, and how many pages each filter value has."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from dsocr_core.reading.parity_records import VERDICT_WORDS, passes
from dsocr_core.review.page import KINDS, SIZE_CLASSES, PageReview
from dsocr_core.review.verdicts import VERDICTS, Judgement

UNREVIEWED = "not reviewed"


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
    """Some of `page.KINDS`; `loop`, `truncated` and `no_eos` find pages where both sides show it, too."""
    verdicts: frozenset[str] = frozenset()
    """Some of `verdicts.VERDICTS`, or UNREVIEWED; by the latest verdict of any reviewer."""
    text: str = ""
    """Part of the page's name, whatever its case."""


Given = Mapping[str, Mapping[str, Judgement]]
"""Page name -> reviewer -> the row that counts: `Verdicts.current()`."""


def select(pages: Iterable[PageReview], filters: Filters, given: Given) -> list[PageReview]:
    """The pages that pass all filters, in the order given (a review's own is worst first)."""
    return [page for page in pages if not _missed(page, filters, given)]


def counts(pages: Iterable[PageReview], filters: Filters, given: Given) -> dict[str, dict[str, int]]:
    """For each filter its values and how many pages choosing that value alone would leave.

    The other filters stay as they are. Keys: failing ("all", "fail"), parity, labels, presets, sizes,
    kinds, verdicts. Every value that some page of the review has is there, with 0 where the other filters
    leave none; parity and verdicts are all there.
    """
    found: dict[str, dict[str, int]] = {name: {} for name in _VALUES}
    found["failing"] = {"all": 0, "fail": 0}
    found["parity"] = dict.fromkeys(VERDICT_WORDS, 0)
    found["verdicts"] = dict.fromkeys((UNREVIEWED, *VERDICTS), 0)
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


def verdict_of(page: str, given: Given) -> str:
    """The latest verdict of any reviewer on a page, or UNREVIEWED."""
    latest = max(given.get(page, {}).values(), key=lambda row: row.time, default=None)
    return latest.verdict if latest is not None and latest.verdict is not None else UNREVIEWED


def page_fails(page: PageReview) -> bool:
    """Tell whether a page does not pass parity. What only one run has was not compared, and does not fail."""
    return not page.in_one_run and not passes(page.verdict)


def _missed(page: PageReview, filters: Filters, given: Given) -> set[str]:
    """Names of the filters that the page does not pass."""
    missed = set()
    if filters.failing and not page_fails(page):
        missed.add("failing")
    for name in ("parity", "labels", "presets", "sizes", "kinds", "verdicts"):
        wanted: frozenset[str] = getattr(filters, name)
        if wanted and wanted.isdisjoint(_VALUES[name](page, given)):
            missed.add(name)
    if filters.text.casefold() not in page.name.casefold():
        missed.add("text")
    return missed


_VALUES: dict[str, Callable[[PageReview, Given], Iterable[str]]] = {
    "failing": lambda page, _: ("all", "fail") if page_fails(page) else ("all",),
    "parity": lambda page, _: (page.verdict,),
    "labels": lambda page, _: page.labels,
    "presets": lambda page, _: (page.preset,) if page.preset else (),
    "sizes": lambda page, _: (page.size_class,),
    "kinds": lambda page, _: {*page.kinds, *page.marks},
    "verdicts": lambda page, given: (verdict_of(page.name, given),),
}
_ORDER: dict[str, Iterable[str]] = {
    "failing": ("all", "fail"),
    "parity": VERDICT_WORDS,
    "sizes": SIZE_CLASSES,
    "kinds": KINDS,
    "verdicts": (UNREVIEWED, *VERDICTS),
}
