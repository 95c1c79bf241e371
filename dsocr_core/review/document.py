"""The report of a review as values: the numbers of the page, of the command line and of every file."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from dsocr_core.base.formatting import plural, speed_ratio
from dsocr_core.reading.parity import to_document
from dsocr_core.reading.parity_records import KINDS, VERDICT_WORDS
from dsocr_core.review.page import PageReview
from dsocr_core.review.review import RUN_FACTS, Review, Side, run_fact
from dsocr_core.review.verdicts import DECISIONS, Given, Judgement, decision, outcome, rejected
from dsocr_core.runs.statistics import NEUTRAL_BAND, TOTAL

MOST_PAGES = 1000
"""Pages that a document of several reviews has."""


def document(review: Review) -> dict[str, Any]:
    """The report as JSON-ready values: both sides, totals, verdict counts, stages, every page, worst first.

    `parity` counts the pages of each parity verdict, `verdicts` those of the reviewers' decisions. A page
    counts as `queue.outcome` says: `failed` are those that fail parity or that a reviewer calls "wrong", the
    latter also `rejected`; `only_a` and `only_b` are those that one run has. A figure that was not measured
    is null. A speed ratio above 1 means that A is faster.
    """
    given, comments = review.verdicts.current(), review.verdicts.comments()
    both = [page for page in review.pages if not page.in_one_run]
    outcomes = Counter(outcome(page, given) for page in review.pages)
    decisions = Counter(decision(page.name, given) for page in review.pages)
    kinds = Counter(kind for page in both for kind in page.kinds)
    parity = Counter(page.verdict for page in both)
    reviewers = sorted({reviewer for rows in given.values() for reviewer in rows})
    return {
        "review": review.key,
        "headline": headline(review),
        "a": _side(review.a),
        "b": _side(review.b),
        "passed": outcomes["passed"],
        "failed": outcomes["failed"] + outcomes["error"],
        "only_a": sum(page.names[1] is None for page in review.pages),
        "only_b": sum(page.names[0] is None for page in review.pages),
        "parity": {verdict: parity[verdict] for verdict in VERDICT_WORDS},
        "changed": sum(page.changed for page in review.pages),
        "rejected": sum(rejected(page.name, given) for page in review.pages),
        "kinds": {kind: kinds[kind] for kind in KINDS if kinds[kind]},
        "verdicts": {word: decisions[word] for word in DECISIONS} | {"reviewers": reviewers},
        "stages": [
            # What is not a number is null.
            {
                name: None if isinstance(value, float) and not math.isfinite(value) else value
                for name, value in row.items()
            }
            for row in review.stages.to_dict("records")
        ],
        "settings": review.settings().to_dict("records"),
        "pages": [page_row(page, given, comments.get(page.name, ())) for page in review.pages],
    }


def merged(documents: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """One document of reviews of the same two sides, each of other pages, with the worst MOST_PAGES of them.

    Of several it has no stages: their times are of parts of a run.
    """
    whole = next(documents)
    for one in documents:
        for name in ("passed", "failed", "only_a", "only_b", "changed", "rejected"):
            whole[name] += one[name]
        for name in ("parity", "kinds", "verdicts"):
            numbers = {key: count + whole[name].get(key, type(count)()) for key, count in one[name].items()}
            whole[name] |= numbers
        rows = sorted([*whole["pages"], *one["pages"]], key=lambda row: -row["score"])
        whole |= {"pages": rows[:MOST_PAGES], "stages": []}
        count, fails = sum(whole["parity"].values()), whole["failed"]
        whole["headline"] = counted(whole["changed"], count, fails, (whole["only_a"], whole["only_b"]))
    return whole


def page_row(page: PageReview, given: Given, comments: Sequence[Judgement]) -> dict[str, Any]:
    """One page, as `compare --json` names its figures."""
    return to_document(page.report, page.differences) | {
        "image": page.name,
        "outcome": outcome(page, given),
        "score": page.score,
        "kinds": list(page.kinds),
        "decision": decision(page.name, given),
        "reviews": {
            reviewer: {name: getattr(row, name) for name in ("verdict", "comment", "time")}
            for reviewer, row in sorted(given.get(page.name, {}).items())
        },
        "comments": [
            {name: getattr(row, name) for name in ("reviewer", "comment", "time")} for row in comments
        ],
    }


def headline(review: Review) -> str:
    """Say what came out in one line: "B is 1.31x slower than A, 3 of 500 pages changed, 1 fails"."""
    both = [page for page in review.pages if not page.in_one_run]
    alone = Counter(page.names.index(None) for page in review.pages if page.in_one_run)
    numbers = sum(page.changed for page in both), len(both), sum(page.fails for page in both)
    return f"{speed_words(review)}, {counted(*numbers, (alone[1], alone[0]))}"


def counted(differ: int, count: int, failed: int, only: tuple[int, int]) -> str:
    """Write "3 of 500 pages changed, 1 fails; 2 pages only in A"."""
    result = "none fails" if not failed else f"{failed} fail{'s' * (failed == 1)}"
    pages = f"{differ} of {plural(count, 'page')} changed"
    compared = f"{pages}, {result}" if count else "no page is in both runs"
    alone = ", ".join(f"{plural(n, 'page')} only in {side}" for side, n in zip("AB", only, strict=True) if n)
    return f"{compared}; {alone}" if alone else compared


def speed_words(review: Review) -> str:
    """Say how fast B, the later, is beside A, over whole pages, in the three outcomes that a speed has."""
    a, b = review.a.name, review.b.name
    stages = review.stages
    total = stages[stages["stage"] == TOTAL]
    if total.empty:
        return f"{a} against {b}: no times to compare"
    row = total.iloc[0]
    if row["verdict"] == "within":
        return f"{b} is as fast as {a} within {NEUTRAL_BAND:.0%}"
    if row["verdict"] == "inconclusive":
        why = f" ({row['why']})" if row["why"] else ""
        return f"{b} against {a}: speed inconclusive{why}"
    return f"{b} is {speed_ratio(float(row['ratio']), 1.0)} than {a}"


def _side(side: Side) -> dict[str, Any]:
    return {
        "name": side.name,
        "backend": side.backend,
        "command": side.record.command,
        **{name: run_fact(side, name) for name in RUN_FACTS},
    }
