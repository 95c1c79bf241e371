"""Verdicts: appended, taken back, of several reviewers."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dsocr_core.review.review import open_review
from dsocr_core.review.verdicts import DISAGREEMENT, VerdictError, Verdicts, decision, outcome
from dsocr_core.runs.history import History
from tests.support.made_up_runs import HOSTILE
from tests.support.review_sides import both, changed, markup, write

OTHER = markup(changed(1, text="other words"))


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    with History(tmp_path_factory.mktemp("h")) as history:
        yield history


@pytest.fixture
def run(history: History, request: pytest.FixtureRequest) -> str:
    """A run of the test's own."""
    name = re.sub(r"\W", "-", request.node.name)
    write(history, name, {"p1": both(OTHER), "p2": both(markup()), "p3": both(OTHER)})
    return name


@pytest.fixture
def verdicts(history: History, run: str) -> Verdicts:
    return open_review(history, run).verdicts


def words(verdicts: Verdicts) -> dict[str, dict[str, str | None]]:
    return {
        page: {name: row.verdict for name, row in rows.items()} for page, rows in verdicts.current().items()
    }


def test_an_undo_is_a_row_and_goes_back_step_by_step(verdicts: Verdicts) -> None:
    assert verdicts.undo("ann") is None
    for page, verdict, reviewer in (
        ("p1", "wrong", "ann"), ("p2", "same", "ann"), ("p1", "unsure", "ann"), ("p1", "same", "bob"),
    ):  # fmt: skip
        verdicts.give(page, verdict, reviewer)  # type: ignore[arg-type]
    taken = verdicts.undo("ann")
    assert taken is not None and (taken.page, taken.verdict) == ("p1", "unsure")
    assert words(verdicts) == {"p1": {"ann": "wrong", "bob": "same"}, "p2": {"ann": "same"}}
    assert verdicts.undo("ann") is not None and verdicts.undo("ann") is not None
    assert words(verdicts) == {"p1": {"bob": "same"}} and len(verdicts.rows()) == 7
    # Nothing was ever rewritten: a later word stands.
    verdicts.give("p1", "acceptable", "ann")
    assert words(verdicts)["p1"] == {"ann": "acceptable", "bob": "same"}


def test_two_processes_do_not_overwrite_each_other(tmp_path: Path) -> None:
    with History(tmp_path) as history, History(tmp_path) as other:
        write(history, "run-1", {"p1": both(markup())})
        other.refresh()
        mine, theirs = (open_review(place, "run-1").verdicts for place in (history, other))
        for number in range(3):
            mine.give("p1", "same" if number % 2 else "wrong", "ann")
            theirs.give("p1", "unsure", "bob")
        history.refresh()
        other.refresh()
        assert mine.rows() == theirs.rows() and len(mine.rows()) == 6
        assert words(mine) == {"p1": {"ann": "wrong", "bob": "unsure"}}


def test_what_cannot_be_recorded_is_refused(verdicts: Verdicts) -> None:
    for values, cause in (
        (("p1", "fine", "ann"), "none of same"),
        (("p1", "same", "  "), "no name"),
        (("p1", "same", "x" * 101), "at most 100"),
        (("p1", "same", "ann", "c" * 4001), "comment has 4,001"),
        (("", "same", "ann"), "no page"),
    ):
        with pytest.raises(VerdictError, match=cause):
            verdicts.give(*values)  # type: ignore[arg-type]
    assert verdicts.rows() == ()


def test_foreign_rows_a_pinned_comment_and_another_review_are_no_verdicts(
    history: History, verdicts: Verdicts, run: str
) -> None:
    given = verdicts.give("p1", "same", "ann")
    late = "2030-01-01T00:00:00+00:00"
    pin = row(run, id="pin", verdict=None, label="cut", comment="the unit", region="0,60,145,303,172")
    undone = row(run, id="gone", verdict=None, comment="no", region="0,1,1,9,9")
    undo = row(run, id="undo", verdict=None, undoes="gone", time=late)
    # Nobody takes back the word of another.
    forged = row(run, id="f", verdict=None, undoes=given.id, time=late)
    texts = [*map(json.dumps, (pin, undone, undo, forged)), "no JSON {", "[1]"]
    history.annotate(run, "verdict", [("p1", "bob", text) for text in texts])
    write(history, f"{run}-2", {"p1": both(markup())})
    pair = open_review(history, run, f"{run}-2").verdicts
    pair.give("p1", "wrong", "ann")
    found = {page: [each.comment for each in rows] for page, rows in verdicts.comments().items()}
    assert found == {"p1": ["cut: the unit"]}
    assert words(verdicts) == {"p1": {"ann": "same"}} and verdicts.undo("bob") is None
    assert words(pair) == {"p1": {"ann": "wrong"}}


def test_a_spreadsheet_runs_no_cell_of_the_exported_rows(verdicts: Verdicts) -> None:
    for text in (*HOSTILE, "=1+1", "+x", "a\r\nb", "@"):
        verdicts.give("p1", "unsure", "ann", text[:4000])
    verdicts.give("p2", "wrong", "=cmd()")
    document = verdicts.to_csv()
    assert "\n=" not in document and ",=" not in document
    assert len(list(csv.reader(io.StringIO(document)))) == len(verdicts.rows()) + 1


def row(run: str, **changes: object) -> dict[str, object]:
    return {
        "id": "i", "time": "2026-01-01T00:00:00+00:00", "review": run, "run_id": run, "page": "p1",
        "reviewer": "bob", "verdict": "same", "label": "", "comment": "", "undoes": None,
    } | changes  # fmt: skip


def test_two_reviewers_who_disagree_are_a_disagreement(
    history: History, verdicts: Verdicts, run: str
) -> None:
    """F10: the last verdict counted, and nothing showed that another had said otherwise."""
    page = open_review(history, run).page("p2")
    for verdict, reviewer, decided, counted in (
        ("same", "ann", "same", "passed"),
        ("acceptable", "bob", DISAGREEMENT, "passed"),
        ("wrong", "bob", DISAGREEMENT, "failed"),
        ("same", "ann", DISAGREEMENT, "failed"),
    ):
        verdicts.give("p2", verdict, reviewer)  # type: ignore[arg-type]
        given = verdicts.current()
        assert (decision("p2", given), outcome(page, given)) == (decided, counted)
    verdicts.undo("bob")
    verdicts.undo("bob")
    assert decision("p2", verdicts.current()) == "same"
