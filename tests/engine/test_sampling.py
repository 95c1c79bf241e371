"""The n-gram rule against transformers' own, and greedy choice."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor

from dsocr_core.engine.sampling import NgramRule, greedy

VOCABULARY = 4


def banned_by_transformers(ids: list[int], size: int) -> set[int]:
    scores = NoRepeatNGramLogitsProcessor(size)(torch.tensor([ids]), torch.zeros(1, VOCABULARY))
    return set(torch.nonzero(scores[0] == float("-inf")).flatten().tolist())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=40), st.integers(1, 6))
def test_bans_what_transformers_bans_at_every_step(ids: list[int], size: int) -> None:
    rule = NgramRule(size)
    for end, token in enumerate(ids, start=1):
        rule.push(token)
        assert rule.banned() == banned_by_transformers(ids[:end], size)


def test_prompt_counts_as_part_of_the_sequence() -> None:
    assert NgramRule(2, [7, 8, 9, 7]).banned() == {8}


def test_size_zero_bans_nothing() -> None:
    assert NgramRule(0, [1, 1, 1, 1]).banned() == set()


def test_negative_size_is_refused() -> None:
    with pytest.raises(ValueError, match="-1"):
        NgramRule(-1)


def test_greedy_takes_the_best_allowed_and_leaves_the_logits_alone() -> None:
    logits = torch.tensor([0.1, 3.0, 2.0, 3.0])
    assert greedy(logits, set()) == 1
    assert greedy(logits, {1}) == 3
    assert greedy(logits, {1, 3}) == 2
    assert logits.tolist() == pytest.approx([0.1, 3.0, 2.0, 3.0])
