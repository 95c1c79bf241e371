"""The queue of a review: pages worst first, filters, and how many pages each filter value has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dsocr_core.review.page import PageReview
from dsocr_core.review.verdicts import Judgement

UNREVIEWED = "not reviewed"


@dataclass(frozen=True)
class Filters:
    """Which pages to show. Empty sets mean any; several values of one filter mean any of them."""

    failing: bool = False
    """Only pages whose parity verdict is fail."""
    labels: frozenset[str] = frozenset()
    """Pages with a box of such a label."""
    presets: frozenset[str] = frozenset()
    sizes: frozenset[str] = frozenset()
    """Of `page.SIZE_CLASSES`."""
    kinds: frozenset[str] = frozenset()
    """Of `page.KINDS`; `loop`, `truncated` and `no_eos` find pages where both sides show it, too."""
    verdicts: frozenset[str] = frozenset()
    """Of `verdicts.VERDICTS`, or UNREVIEWED; by the latest word of any reviewer."""
    text: str = ""
    """Part of the page's name, whatever its case."""


Given = Mapping[str, Mapping[str, Judgement]]
"""Page name -> reviewer -> what counts of him: `Verdicts.current()`."""


def select(pages: Iterable[PageReview], filters: Filters, given: Given) -> list[PageReview]:
    """The pages that pass all filters, in the order given (a review's own is worst first)."""
    raise NotImplementedError


def counts(pages: Iterable[PageReview], filters: Filters, given: Given) -> dict[str, dict[str, int]]:
    """For each filter its values and how many pages choosing that value alone would leave.

    The other filters stay as they are. Keys: failing ("all", "fail"), labels, presets, sizes, kinds,
    verdicts.
    Every value that some page of the review has is there, with 0 where the other filters leave none.
    """
    raise NotImplementedError
