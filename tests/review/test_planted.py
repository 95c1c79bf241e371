"""A recorded run of 250 pages with 50 planted differences: found, first, and called by their names."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dsocr_core.reading.parity_records import passes
from dsocr_core.review.review import Review, open_review
from dsocr_core.runs.history import History
from tests.support.planted import RUN_ID, plant

PAGES, PLANTED, FIRST = 250, 50, 60
# A page that stops at the ceiling has another text in its last block: both are true.
Made = tuple[History, dict[str, str]]
CONSEQUENCES = {"truncated": {"text"}}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    with History(tmp_path_factory.mktemp("planted")) as history:
        yield history, plant(history, PAGES, PLANTED)


@pytest.fixture(scope="module")
def review(planted: Made) -> Review:
    return open_review(planted[0], RUN_ID)


def test_every_planted_page_is_among_the_first(review: Review, planted: Made) -> None:
    first = {page.name for page in review.pages[:FIRST]}
    assert len(planted[1]) == PLANTED
    assert planted[1].keys() <= first
    scores = [page.score for page in review.pages]
    assert scores == sorted(scores, reverse=True)
    # What was planted weighs more than all that means nothing.
    assert all(review.page(name).score >= 20 for name in planted[1])
    assert all(page.score < 12 for page in review.pages if page.name not in planted[1])


def test_every_kind_is_called_by_its_name(review: Review, planted: Made) -> None:
    for name, kind in planted[1].items():
        kinds = review.page(name).kinds
        assert kinds[0] == kind and {*kinds} <= {kind, "spelling"} | CONSEQUENCES.get(kind, set()), name


def test_what_means_nothing_passes_and_says_what_it_is(review: Review, planted: Made) -> None:
    others = [page for page in review.pages if page.name not in planted[1]]
    assert all(passes(page.verdict) and set(page.kinds) <= {"moved", "spelling"} for page in others)
    # F6: a page with other boxes counts as changed wherever it is counted.
    moved = [page for page in others if page.report is not None and not page.report.tokens_equal]
    assert all("moved" in page.kinds and page.changed for page in moved)
    assert 50 < sum(page.report is not None and not page.report.tokens_equal for page in others) < 150
