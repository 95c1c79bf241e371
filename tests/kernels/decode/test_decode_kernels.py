"""Every kernel against its plain reference, on fresh seeded inputs, poisoned outputs, odd sizes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dsocr_core.engine.ngram_rule import NgramRule
from dsocr_core.kernels.decode.attention_output import attention_output, attention_output_reference
from dsocr_core.kernels.decode.dense_gate_up import dense_gate_up, dense_gate_up_reference
from dsocr_core.kernels.decode.embed_token import NEVER, embed_token, matched_at_start
from dsocr_core.kernels.decode.expert_down import (
    dense_down,
    dense_down_reference,
    mixture_down,
    mixture_down_reference,
)
from dsocr_core.kernels.decode.expert_gate_up import gate_up, gate_up_reference
from dsocr_core.kernels.decode.lm_head import take_best
from dsocr_core.kernels.decode.qkv_rotary import qkv_rotary, qkv_rotary_reference
from dsocr_core.kernels.decode.router import route, route_reference, router_logits_reference
from dsocr_core.kernels.decode.split_attention import (
    join_parts_reference,
    split_attention,
    split_attention_reference,
)
from dsocr_core.kernels.launch import Launch
from dsocr_core.reading.records import NgramPolicy
from tests.kernels.random_tensors import DTYPES, Random, assert_close

EPS = 1e-6


# (hidden, heads, head dim, capacity, position)
ATTENTION_SIZES = [(64, 4, 16, 24, 0), (320, 5, 64, 80, 79), (60, 5, 12, 33, 20), (128, 1, 128, 9, 5)]


@DTYPES
@pytest.mark.parametrize(("width", "heads", "dim", "capacity", "position"), ATTENTION_SIZES)
def test_qkv_rotary_matches_its_reference(
    width: int, heads: int, dim: int, capacity: int, position: int, dtype: torch.dtype, device: torch.device
) -> None:
    new = Random(1, dtype, device)
    x, gain = new.normal(width), new.normal(width)
    weights = [new.matrix(heads * dim, width) for _ in range(3)]
    cos, sin = new.normal(capacity, dim), new.normal(capacity, dim)
    q, keys, values = new.poison(heads, dim), *(new.normal(heads, capacity, dim) for _ in range(2))
    before, state = (keys.clone(), values.clone()), new.state(position)

    qkv_rotary(x, gain, *weights, cos, sin, state, q, keys, values, EPS, Launch(16))

    expected = qkv_rotary_reference(x, gain, *weights, cos, sin, state, EPS)
    for actual, wanted in zip((q, keys[:, position], values[:, position]), expected, strict=True):
        assert_close(actual, wanted)
    others = torch.arange(capacity, device=device) != position
    assert torch.equal(keys[:, others], before[0][:, others])
    assert torch.equal(values[:, others], before[1][:, others])


@DTYPES
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("tiles", [1, 3])
@pytest.mark.parametrize("position", [0, 1, 40, 69])
def test_split_attention_matches_its_reference_and_reads_nothing_unwritten(
    splits: int, tiles: int, position: int, dtype: torch.dtype, device: torch.device
) -> None:
    new = Random(position, dtype, device)
    heads, dim, capacity = 2, 24, 70
    q, keys, values = new.normal(heads, dim), *(new.normal(heads, capacity, dim) for _ in range(2))
    # What lies beyond the position has never been written.
    keys[:, position + 1 :] = float("nan")
    values[:, position + 1 :] = float("nan")
    partial = new.poison(splits, heads, dim, dtype=torch.float32)
    log_sums = new.poison(splits, heads, dtype=torch.float32)

    split_attention(q, keys, values, new.state(position), partial, log_sums, tiles, Launch(8))

    expected = split_attention_reference(q, keys, values, new.state(position))
    torch.testing.assert_close(join_parts_reference(partial, log_sums), expected, rtol=1e-5, atol=1e-5)


@DTYPES
@pytest.mark.parametrize(("width", "heads", "dim"), [(64, 4, 16), (320, 5, 64), (60, 5, 12)])
@pytest.mark.parametrize(("position", "filled"), [(0, 1), (1, 1), (16, 1), (17, 2), (40, 3), (900, 3)])
def test_attention_output_matches_its_reference(
    width: int, heads: int, dim: int, position: int, filled: int, dtype: torch.dtype, device: torch.device
) -> None:
    """Of three parts, 16 positions read at once, those without positions are not even read."""
    new = Random(3, dtype, device)
    partial, log_sums = (Random(4, torch.float32, device).normal(*s) for s in ((3, heads, dim), (3, heads)))
    partial[filled:], log_sums[filled:] = float("nan"), float("nan")
    weight, x = new.matrix(width, heads * dim), new.normal(width)
    expected = attention_output_reference(partial[:filled], log_sums[:filled], weight, x)
    attention_output(partial, log_sums, weight, x, new.state(position), 16, Launch(32))
    assert_close(x, expected)


# (hidden, experts, chosen, expert width, shared parts)
MIXTURE_SIZES = [(64, 4, 2, 48, 2), (320, 8, 2, 224, 2), (60, 5, 3, 20, 1), (16, 64, 6, 8, 2)]
MIXTURES = pytest.mark.parametrize(("width", "experts", "chosen", "inner", "shared"), MIXTURE_SIZES)


@DTYPES
@pytest.mark.parametrize(("width", "inner"), [(64, 96), (320, 896), (60, 43)])
def test_a_dense_layer_matches_its_references(
    width: int, inner: int, dtype: torch.dtype, device: torch.device
) -> None:
    new = Random(5, dtype, device)
    inputs = new.normal(width), new.normal(width), new.matrix(inner, width), new.matrix(inner, width)
    gated, weight, x = new.poison(inner), new.matrix(width, inner), new.normal(width)
    dense_gate_up(*inputs, gated, EPS, Launch(32))
    assert_close(gated, dense_gate_up_reference(*inputs, EPS))
    expected = dense_down_reference(gated, weight, x)
    dense_down(gated, weight, x, Launch(16))
    assert_close(x, expected)


@DTYPES
@MIXTURES
def test_gate_up_matches_its_reference(
    width: int, experts: int, chosen: int, inner: int, shared: int, dtype: torch.dtype, device: torch.device
) -> None:
    new = Random(11, dtype, device)
    inputs = (
        new.normal(width), new.normal(width), new.some(chosen, experts),
        new.matrix(shared * inner, width), new.matrix(shared * inner, width),
        new.matrix(experts, inner, width), new.matrix(experts, inner, width),
    )  # fmt: skip
    expected = gate_up_reference(*inputs, EPS)
    # A program a block, and three programs that make all blocks in turn.
    for launch in (Launch(128), Launch(64 if inner > 64 else 16, programs=3)):
        found = new.poison(shared * inner), new.poison(chosen, inner)
        gate_up(*inputs, *found, EPS, launch)
        for actual, wanted in zip(found, expected, strict=True):
            assert_close(actual, wanted)


@DTYPES
@MIXTURES
def test_mixture_down_matches_its_reference(
    width: int, experts: int, chosen: int, inner: int, shared: int, dtype: torch.dtype, device: torch.device
) -> None:
    new = Random(7, dtype, device)
    arguments = (
        new.normal(chosen, inner), new.normal(shared * inner), new.some(chosen, experts),
        new.normal(chosen).to(torch.float32), new.matrix(experts, width, inner),
        new.matrix(width, shared * inner), new.normal(width),
    )  # fmt: skip
    expected = mixture_down_reference(*arguments)
    mixture_down(*arguments, Launch(16))
    assert_close(arguments[6], expected)


ROUTES = [(64, 64, 6), (320, 8, 2), (60, 5, 5), (16, 1, 1), (48, 70, 3)]


@DTYPES
@pytest.mark.parametrize(("width", "experts", "chosen"), ROUTES)
def test_route_matches_its_reference(
    width: int, experts: int, chosen: int, dtype: torch.dtype, device: torch.device
) -> None:
    new = Random(9, dtype, device)
    for _ in range(5):
        x, gain, router = new.normal(width), new.normal(width), new.matrix(experts, width)
        ids = torch.full((chosen,), -1, dtype=torch.int32, device=device)
        weights = new.poison(chosen, dtype=torch.float32)
        route(x, gain, router, ids, weights, EPS, 1.5, Launch())
        logits = router_logits_reference(x, gain, router, EPS)
        expected = route_reference(logits, chosen, 1.5)
        if dtype == torch.float32:
            assert ids.tolist() == expected[0].tolist()
        # In bfloat16 two logits may be a rounding apart: then either may be chosen.
        assert_close(logits[ids.long()].to(dtype), logits[expected[0]].to(dtype))
        assert len(set(ids.tolist())) == chosen
        assert_close(weights.to(dtype), expected[1].to(dtype))


def test_equal_logits_go_to_the_lowest_ids_and_nan_behind_all(device: torch.device) -> None:
    """By hand: x is its own norm, so the logits are 2.0 three times, for two places after the 3.0."""
    nan = float("nan")
    for values, places in (((2.0, 1.0, 2.0, 3.0, 2.0), [3, 0, 2]), ((nan, 0.0, 1.0, nan), [2, 1, 0])):
        logits, ones = torch.tensor(values, device=device), torch.ones(16, device=device)
        ids, weights = torch.full((3,), -1, dtype=torch.int32, device=device), torch.zeros(3, device=device)
        route(ones, ones, (logits / 16)[:, None] * ones, ids, weights, 0.0, 1.0, Launch())
        assert ids.tolist() == places
        if not logits.isnan().any():
            assert route_reference(logits, 3, 1.0)[0].tolist() == places
            torch.testing.assert_close(weights, logits.softmax(dim=0)[places])


def test_a_sequence_ends_at_the_end_token_and_at_its_last_position(device: torch.device) -> None:
    new = Random(11, torch.float32, device)
    logit = torch.tensor([0.0, 1.0], device=device)
    token = torch.tensor([7, 9], dtype=torch.int32, device=device)
    for last, eos, done in ((5, 1, 0), (4, 1, 1), (5, 9, 1)):
        tokens, state = torch.zeros(8, dtype=torch.int32, device=device), new.state(3, last)
        logits = torch.zeros(8, device=device)
        take_best(logit, token, tokens, logits, state, eos, 10, Launch(4))
        assert tokens.tolist() == [0, 0, 0, 0, 9, 0, 0, 0]
        assert logits.tolist() == [0, 0, 0, 0, 1, 0, 0, 0]
        assert state[:4].tolist() == [3 if done else 4, last, done, 0]
        if done:
            take_best(logit, torch.full_like(token, 8), tokens, logits, state, eos, 10, Launch(4))
            assert tokens[4] == 9
            assert state[:4].tolist() == [3, last, 1, 0]


REPEATS = torch.randint(0, 3, (60,), generator=torch.Generator().manual_seed(12), dtype=torch.int32)
REPEATS[30:45] = REPEATS[10:25].clone()
REPEATED: dict[str, Any] = {
    "ids": REPEATS.tolist(), "window": 0, "exempt": set(), "prompt": 9, "over": False,
}  # fmt: skip


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    ids=st.lists(st.integers(0, 2), min_size=12, max_size=30), size=st.integers(1, 4),
    window=st.integers(0, 12), exempt=st.sets(st.integers(0, 2), max_size=2), prompt=st.integers(1, 9),
    over=st.booleans(),
)  # fmt: skip
@example(size=0, **REPEATED)
@example(size=1, **REPEATED)
@example(size=3, **REPEATED)
@example(size=5, **REPEATED)
def test_banned_tokens_are_those_of_the_rule(
    ids: list[int], size: int, window: int, exempt: set[int], prompt: int, over: bool, device: torch.device
) -> None:
    """`embed_token` stamps what `NgramRule` forbids at every step; each step is run twice."""
    policy, new = NgramPolicy(size, window, tuple(exempt), over), Random(12, torch.float32, device)
    tokens = torch.tensor(ids, dtype=torch.int32, device=device)
    table, x, rule = new.normal(6, 20), new.poison(20), NgramRule(policy, ids[:prompt])
    banned_at = torch.full((6,), NEVER, dtype=torch.int32, device=device)
    matched = torch.full((2, len(ids)), 99, dtype=torch.int32, device=device)
    matched[(prompt - 1) % 2, :prompt] = matched_at_start(tokens[:prompt], size)
    for position in range(prompt, len(ids)):
        rule.push(ids[position])
        state = new.state(position, ngram=policy, first_new=prompt)
        for _ in range(2):
            embed_token(tokens, state, table, x, matched, banned_at, Launch(32))
        assert torch.equal(x, table[ids[position]])
        assert set((banned_at == position).nonzero().flatten().tolist()) == rule.banned()
