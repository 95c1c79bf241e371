"""Repetition loops by tokens, their rate, and what n-gram rules would have done to them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dsocr_core.reading.ngram_rule import forbidden_steps, same_choices
from dsocr_core.reading.records import NgramPolicy
from dsocr_core.review.loops import (
    FEWEST_TOKENS,
    FEWEST_TURNS,
    LoopPage,
    TokenLoop,
    backend_loops,
    in_cell,
    page_loop,
    policies_for,
    token_loop,
)


def longest_by_trying(tokens: list[int]) -> int:
    """Tokens of the longest loop, every start and period tried."""
    best = 0
    for period in range(1, len(tokens) // FEWEST_TURNS + 1):
        for start in range(len(tokens) - period):
            end = start + period
            while end < len(tokens) and tokens[end] == tokens[end - period]:
                end += 1
            turns = (end - start) // period
            if turns >= FEWEST_TURNS and turns * period >= FEWEST_TOKENS:
                best = max(best, turns * period)
    return best


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 3), max_size=20), st.lists(st.integers(0, 3), min_size=1, max_size=9),
    st.integers(1, 12), st.lists(st.integers(0, 3), max_size=9),
)  # fmt: skip
def test_the_longest_loop_is_found(before: list[int], unit: list[int], turns: int, after: list[int]) -> None:
    tokens = before + unit * turns + after
    found = token_loop(tokens)
    assert (found.end - found.start if found else 0) == longest_by_trying(tokens)
    if found is not None:
        inside = tokens[found.start : found.end]
        assert inside == inside[: found.period] * found.count


def test_a_loop_by_hand() -> None:
    assert token_loop([9, 8, *[1, 2, 3, 4, 5, 6] * 5, 7]) == TokenLoop(2, 6, 5)
    assert token_loop([1, 2, 3, 4, 5, 6] * 3) is None
    assert token_loop([1] * 23) is None
    assert token_loop([]) is None


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 2), max_size=40), st.integers(0, 5), st.integers(0, 15), st.integers(0, 5),
    st.integers(0, 15),
)  # fmt: skip
def test_rules_that_choose_alike_forbid_the_same_steps(
    tokens: list[int], size: int, window: int, other_size: int, other_window: int
) -> None:
    a, b = NgramPolicy(size, window), NgramPolicy(other_size, other_window)
    assert same_choices(a, a, tokens)
    if same_choices(a, b, tokens):
        assert forbidden_steps(a, tokens) == forbidden_steps(b, tokens)


def test_which_rule_stops_a_loop() -> None:
    """A unit of 36 tokens: windows of 50 hold no repetition of it, windows of 90 hold one of 30 tokens."""
    unit = list(range(36))
    page = LoopPage("a", "", (99, *unit * 5), ("x",) * 181)
    loop = page_loop(page, policies_for(page))
    assert loop is not None and (loop.from_token, loop.period_tokens, loop.count) == (1, 36, 5)
    assert loop.from_character == 1 and loop.unit == "x" * 36
    cells = ", except <td> </td>"
    assert loop.stopped_by == ("20", "35", f"30, window 90{cells}", f"40, window 90{cells}")


def test_the_rate_and_the_cost_elsewhere() -> None:
    """One page of three loops; on the table a rule of 20 forbids a cell, the whitelisted ones do not."""
    row = ("<tr>", "<td>", "0", "</td>", "<td>", "</td>", "</tr>")
    ids = {text: number for number, text in enumerate(dict.fromkeys(row))}
    texts = row * 3 + ("end",)
    table = LoopPage("table", "".join(texts), (*(ids[text] for text in row * 3), 99), texts)
    loop = LoopPage("loop", "abc def " * 20, (7, 8, 9, 10, 11, 12) * 20, ("ab",) * 120)
    found = backend_loops("run", "fast", [table, loop, LoopPage("plain", "no tokens are known")])
    assert (found.pages, len(found.loops), round(found.rate, 3)) == (3, 1, 0.333)
    costs = {cost.policy: (cost.stopped, cost.pages, cost.cells) for cost in found.costs}
    assert costs["20"] == (1, 0, 0) and costs["35"] == (1, 0, 0)
    dense = LoopPage(
        "table", "".join(row * 3 + row), tuple(ids[text] for text in row * 4)[:27], (row * 4)[:27]
    )
    assert forbidden_steps(20, dense.tokens or ()) == (26,)
    assert [in_cell(texts, step) for step in range(8)] == [False, True, True, True, True, True, False, False]


def test_by_text_where_no_tokens_are_known() -> None:
    found = page_loop(LoopPage("a", "start " + "the same line again. " * 8))
    assert found is not None and found.from_token is None and found.stopped_by is None
    assert found.count >= 7 and "same line" in found.unit


def test_rules_of_dots_are_no_loop() -> None:
    assert page_loop(LoopPage("a", "." * 400, (1,) * 400, (".",) * 400)) is None
