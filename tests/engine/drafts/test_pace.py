"""When a draft is worth its passes, and where it stands while tokens come one by one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dsocr_core.engine.drafts.given import Given, simulated
from dsocr_core.engine.drafts.pace import COSTS, Pace, Place, costs_on, tokens_a_pass


def test_expected_tokens_by_hand() -> None:
    assert tokens_a_pass(4, 1.0) == 4
    assert tokens_a_pass(4, 0.0) == 1
    assert tokens_a_pass(3, 0.5) == 1.75


def test_rows_follow_what_was_right() -> None:
    pace = Pace({1: 1.0, 4: 2.0, 16: 6.0})
    for _ in range(6):
        pace.took(30, 0)
    assert pace.rows == 16
    for _ in range(8):
        pace.took(0, 2)
    assert pace.rows == 1
    pace.took(0, 0)  # nothing was drafted: nothing is known anew
    assert pace.rows == 1
    for _ in range(5):
        pace.took(16, 0)
    assert pace.rows == 16
    assert set(COSTS) == {1, 4, 8, 16, 32}


def test_a_card_that_was_measured_has_its_own_costs() -> None:
    assert costs_on("NVIDIA H200") != COSTS and costs_on("NVIDIA H100 80GB HBM3") == costs_on("") == COSTS
    assert costs_on("NVIDIA H200").keys() == COSTS.keys()


def followed(draft: list[int], tokens: list[int]) -> list[bool]:
    place = Place(draft)
    return [place.follow(tokens[: n + 1]) for n in range(len(tokens))]


@pytest.mark.parametrize(
    ("tokens", "right"),
    [
        ([1, 2, 9, 4, 5, 6], [1, 1, 0, 1, 1, 1]),  # another token
        ([1, 2, 9, 3, 4, 5, 6], [1, 1, 0, 0, 0, 1, 1]),  # one more: found after two that match
        ([1, 2, 5, 6, 7, 8], [1, 1, 0, 0, 1, 1]),  # two too many in the draft
    ],
)
def test_a_lost_place_is_found_again(tokens: list[int], right: list[int]) -> None:
    assert followed([1, 2, 3, 4, 5, 6, 7, 8], tokens) == list(map(bool, right))


def test_a_token_ten_thousand_times_is_looked_at_in_a_few_places() -> None:
    place = Place([7] * 10_000 + [1])
    assert not place.follow([5])
    assert place.follow([5, 7])


def test_a_page_that_says_again_what_it_said_drafts_itself() -> None:
    """The place is found after two tokens that came before, and never in the newest ones themselves."""
    place, said = Place(None), [1, 2, 3, 4, 5, 6, 9, 1, 2, 3, 4, 5, 6, 7]
    right = [place.follow(said[: n + 1]) for n in range(len(said))]
    assert right == [False] * 9 + [True] * 4 + [False]


def test_a_draft_of_little_hope_is_looked_at_first() -> None:
    pace = Pace(hopeful=False)
    assert pace.rows == 1
    pace.took(16, 0)
    assert pace.rows > 1


@pytest.mark.parametrize(
    ("draft", "rows", "passes"),
    [
        (range(20), 4, 5),  # 19 tokens by fours
        (range(20), 16, 2),
        ([], 4, 19),  # one a pass
        ([*range(10), 99, *range(11, 20)], 4, 6),  # known are 5, 9, 11 (the wrong one), 15, 19, 20
    ],
)
def test_what_a_draft_would_give_is_counted_as_the_kernel_accepts(
    draft: Sequence[int], rows: int, passes: int
) -> None:
    given = simulated(list(range(20)), list(draft), rows)
    assert (given.tokens, given.passes, given.accepted) == (19, passes, 19 - passes)
    assert given.cost == pytest.approx(passes * COSTS[rows])


def test_a_useless_draft_is_soon_left_to_single_steps() -> None:
    given = simulated(list(range(400)), [7000] * 400)
    assert given.passes <= 4 and given.won is not None and given.won > 0.97
    assert simulated(list(range(400)), list(range(400))).won == pytest.approx(3.6, abs=0.15)


def test_sums_over_pages_are_what_their_environments_say() -> None:
    given = Given()
    given.add({"draft_passes": "10", "draft_accepted": "30", "draft_won": "2.0"}, 41)
    given.add({"draft": "text-layer"}, 100)  # no draft of this page
    given.add({"draft_passes": "none", "draft_accepted": "1", "draft_won": "1"}, 3)  # of a stranger's run
    assert given.document() == {"passes": 10, "accepted": 30, "tokens_a_pass": 4.0, "won": 2.0}
    assert given.words == "drafts: 4.00 tokens a pass, decoding some 2.00x as fast"
    assert Given().document() is None and Given().words == ""
