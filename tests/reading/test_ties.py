"""Ties of a run: one explains a divergence, many are a finding."""

from dataclasses import replace

import pytest

from dsocr_core.reading.margins import count_ties
from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.parity_records import ParityReport, reproduced
from dsocr_core.reading.records import TopTwo
from tests.support.results import make_result


def report(kind: str) -> ParityReport:
    """A page of that kind: equal, tie, bug (no tie), ended, plain (no logits), unknown (no tokens)."""
    a, b = make_result("abcd", dtype="bfloat16"), make_result("abXd", "vendor", dtype="bfloat16")
    if kind == "equal":
        return compare_results(b, b)
    if kind == "ended":
        return compare_results(make_result("ab"), b)
    if kind == "unknown":
        return compare_results(replace(a, token_ids=None), b)
    margin = {"tie": 0.03125, "reproduced": 0.03125, "bug": 3.0}.get(kind)
    top = tuple(TopTwo((ord(letter), 0), (7.5, 7.5 - margin)) for letter in "abcd") if margin else ()
    found = compare_results(replace(a, top_two=top), b)
    return (
        replace(found, causes=reproduced(found.causes, "with n-gram 35")) if kind == "reproduced" else found
    )


@pytest.mark.parametrize(
    ("kinds", "counts", "finding"),
    [
        ([], (0, 0, 0), None),
        (["equal"] * 5, (5, 0, 0), None),
        (["equal", "tie"], (2, 1, 1), None),
        (["tie", "unknown", None], (1, 1, 1), None),
        (["bug", "bug", "tie", "plain", "ended"], (5, 5, 1), None),
        (["tie", "equal", "tie"], (3, 2, 2), "All 2 divergences (on 3 pages) are ties"),
        (["tie"] * 12, (12, 12, 12), "All 12 divergences (on 12 pages) are ties"),
        (["tie"] * 3 + ["bug"], (4, 4, 3), "3 of 4 divergences (on 4 pages) are ties"),
        (["tie"] * 2 + ["plain"], (3, 3, 2), "2 of 3 divergences (on 3 pages) are ties"),
        (["tie"] + ["reproduced"] * 2, (3, 3, 1), None),
    ],
)
def test_many_ties_are_a_finding_and_one_is_not(
    kinds: list[str | None], counts: tuple[int, int, int], finding: str | None
) -> None:
    ties = count_ties(report(kind) if kind else None for kind in kinds)
    assert (ties.pages, ties.divergences, ties.ties) == counts
    if finding is None:
        assert ties.finding is None
    else:
        assert ties.finding is not None and ties.finding.startswith(finding + ". That many are a finding")
        assert "a systematic rounding difference looks exactly like this" in ties.finding
