"""The n-gram rule against transformers' own, and greedy choice."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor

from dsocr_core.engine.generate import greedy
from dsocr_core.engine.ngram_rule import NgramRule
from dsocr_core.reading.records import NgramPolicy

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


def banned_by_a_window(ids: list[int], policy: NgramPolicy) -> set[int]:
    """The rule of the vendor's vLLM scripts, n-gram after n-gram of the last `window` tokens."""
    last = ids[len(ids) - policy.size + 1 :] if policy.size > 1 else []
    if len(ids) < policy.size:
        return set()
    starts = range(max(0, len(ids) - policy.window), len(ids) - policy.size + 1)
    ngrams = [ids[start : start + policy.size] for start in starts]
    return {ngram[-1] for ngram in ngrams if ngram[:-1] == last} - set(policy.exempt)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(0, VOCABULARY - 1), max_size=10),
    st.lists(st.integers(0, VOCABULARY - 1), max_size=40),
    st.integers(1, 6), st.integers(1, 30), st.sets(st.integers(0, VOCABULARY - 1), max_size=2), st.booleans(),
)  # fmt: skip
def test_a_window_bans_what_a_search_of_it_finds(
    prompt: list[int], new: list[int], size: int, window: int, exempt: set[int], over: bool
) -> None:
    """Over the new tokens, or over the prompt too."""
    policy = NgramPolicy(size, window, tuple(exempt), over)
    rule = NgramRule(policy, prompt)
    for end in range(len(new) + 1):
        assert rule.banned() == banned_by_a_window([*(prompt if over else ()), *new[:end]], policy)
        if end < len(new):
            rule.push(new[end])


def test_greedy_takes_the_best_allowed_and_leaves_the_logits_alone() -> None:
    logits = torch.tensor([0.1, 3.0, 2.0, 3.0])
    assert greedy(logits, set()) == 1
    assert greedy(logits, {1}) == 3
    assert greedy(logits, {1, 3}) == 2
    assert logits.tolist() == pytest.approx([0.1, 3.0, 2.0, 3.0])
