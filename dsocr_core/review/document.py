"""The report of a review as values: the numbers of the page, of the command line and of every file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from dsocr_core.base.formatting import plural
from dsocr_core.reading.parity_records import VERDICT_WORDS
from dsocr_core.reading.parity_row import parity_document
from dsocr_core.reading.ties import count_ties, ties_document
from dsocr_core.review.page import KINDS, PageReview
from dsocr_core.review.queue import UNREVIEWED, Given, page_fails, verdict_of
from dsocr_core.review.review import RUN_FACTS, Review, Side, run_fact
from dsocr_core.review.verdicts import VERDICTS, Judgement, VerdictWord
from dsocr_core.runs.statistics import NEUTRAL_BAND, TOTAL

REJECTED: VerdictWord = "wrong"


def document(review: Review) -> dict[str, Any]:
    """The report as JSON-ready values: both sides, totals, verdict counts, stages, every page, worst first.

    `parity` counts the pages of each parity verdict, `verdicts` those of the reviewers. `passed` are
    identical pages and those within tolerance, `failed` all others that both runs have, `only_a` and `only_b`
    those that one run has, `rejected` those whose latest verdict
    of a reviewer is "wrong". A figure that was not measured is null. A speed ratio above 1 means that A is
    faster.
    """
    given, comments = review.verdicts.current(), review.verdicts.comments()
    pages = [
        page_row(page, given) | {"comments": _comments(comments.get(page.name, []))} for page in review.pages
    ]
    compared = [page for page in review.pages if not page.in_one_run]
    failed = _failed(review)
    return {
        "review": review.key,
        "headline": headline(review),
        "a": _side(review.a),
        "b": _side(review.b),
        "passed": len(compared) - failed,
        "failed": failed,
        "only_a": sum(page.names[1] is None for page in review.pages),
        "only_b": sum(page.names[0] is None for page in review.pages),
        "parity": parity_counts(compared),
        "ties": ties_document(count_ties(page.report for page in review.pages)),
        "changed": sum(changed(page) for page in review.pages),
        "rejected": sum(verdict_of(page.name, given) == REJECTED for page in review.pages),
        "kinds": _kinds(compared),
        "verdicts": _verdicts(review, given),
        "stages": [_stage(row) for row in review.stages().to_dict("records")],
        "settings": review.settings().to_dict("records"),
        "pages": pages,
    }


def parity_counts(pages: Iterable[PageReview]) -> dict[str, int]:
    """Pages of each parity verdict, best first."""
    found = Counter(page.verdict for page in pages)
    return {verdict: found[verdict] for verdict in VERDICT_WORDS}


def _failed(review: Review) -> int:
    return sum(map(page_fails, review.pages))


def changed(page: PageReview) -> bool:
    """Tell whether what both runs read differs, not only what went in."""
    return not page.in_one_run and any(kind != "inputs" for kind in page.kinds)


def page_row(page: PageReview, given: Given) -> dict[str, Any]:
    """One page, as `compare --json` names its figures."""
    return {
        "image": page.name,
        **parity_document(page.report, page.reasons),
        "score": page.score,
        "score_parts": page.parts,
        "kinds": list(page.kinds),
        "differences": [asdict(difference) for difference in page.differences],
        "hints": [asdict(hint) for hint in page.hints],
        "order": {"inversions": page.order.inversions, "edit_distance": page.order.edit_distance},
        "reviews": {
            reviewer: {
                "verdict": row.verdict, "label": row.label, "comment": row.comment, "time": row.time
            }
            for reviewer, row in sorted(given.get(page.name, {}).items())
        },
    }  # fmt: skip


def _comments(rows: Iterable[Judgement]) -> list[dict[str, Any]]:
    return [{"reviewer": row.reviewer, "comment": row.comment, "time": row.time} for row in rows]


def headline(review: Review) -> str:
    """Say what came out in one line: "B is 1.31x slower than A, 3 of 500 pages changed, 1 fails"."""
    count = sum(not page.in_one_run for page in review.pages)
    failed = _failed(review)
    differ = sum(changed(page) for page in review.pages)
    outcome = "none fails" if not failed else f"{failed} fail{'s' * (failed == 1)}"
    pages = f"{differ} of {count} page{'s' * (count != 1)} changed"
    compared = f"{pages}, {outcome}" if count else "no page is in both runs"
    alone = one_run_words(review.pages)
    return f"{speed_words(review)}, {compared}{f'; {alone}' if alone else ''}"


def one_run_words(pages: Iterable[PageReview], noun: bool = True) -> str:
    """Pages that only one run has: "11 pages only in A, 1 page only in B"; empty without one."""
    missing = Counter(page.names.index(None) for page in pages if page.in_one_run)
    sides = (("A", missing[1]), ("B", missing[0]))
    return ", ".join(
        f"{plural(count, 'page') if noun else f'{count:,}'} only in {side}" for side, count in sides if count
    )


def speed_words(review: Review) -> str:
    """Say how fast B, the later, is beside A, over whole pages, in the three outcomes that a speed has."""
    a, b = review.a.name, review.b.name
    stages = review.stages()
    total = stages[stages["stage"] == TOTAL]
    if total.empty:
        return f"{a} against {b}: no times to compare"
    row = total.iloc[0]
    if row["verdict"] == "within":
        return f"{b} is as fast as {a} within {NEUTRAL_BAND:.0%}"
    if row["verdict"] == "inconclusive":
        why = f" ({row['why']})" if row["why"] else ""
        return f"{b} against {a}: speed inconclusive{why}"
    return f"{b} is {ratio_words(float(row['ratio']))} than {a}"


def ratio_words(ratio: float) -> str:
    """B's time over A's in words about B: "1.31x slower", "2.40x faster", "as fast"."""
    if 0.995 <= ratio < 1.005:
        return "as fast"
    word, times = ("slower", ratio) if ratio >= 1 else ("faster", 1 / ratio)
    return f"{times:#.3g}x {word}" if times < 100 else f"{times:.0f}x {word}"


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "backend": side.backend,
        "command": side.record.command,
        **{name: run_fact(side, name) for name in RUN_FACTS},
    }


def _kinds(pages: Iterable[PageReview]) -> dict[str, int]:
    found = Counter(kind for page in pages for kind in page.kinds)
    return {kind: found[kind] for kind in KINDS if found[kind]}


def _verdicts(review: Review, given: Given) -> dict[str, Any]:
    words = Counter(verdict_of(page.name, given) for page in review.pages)
    reviewers = {reviewer for rows in given.values() for reviewer in rows}
    return {word: words[word] for word in (*VERDICTS, UNREVIEWED)} | {"reviewers": sorted(reviewers)}


def _stage(row: dict[Any, Any]) -> dict[str, Any]:
    """A row of `Review.stages`; what is not a number is null."""
    return {
        str(name): None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in row.items()
    }
