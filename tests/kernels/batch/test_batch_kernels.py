"""The batch's kernels against their plain references: fresh seeded inputs, odd sizes, some slots finished."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dsocr_core.engine.ngram_rule import NgramRule
from dsocr_core.kernels.batch.attention import (
    attend_rows,
    attend_rows_reference,
    join_rows,
    join_rows_reference,
)
from dsocr_core.kernels.batch.embed import embed_rows, embed_rows_reference
from dsocr_core.kernels.batch.head import (
    ban_repeats,
    ban_repeats_reference,
    best_of_parts,
    best_of_parts_reference,
    head_parts,
    take_best_rows,
    take_best_rows_reference,
)
from dsocr_core.kernels.batch.rotary import rotary_rows, rotary_rows_reference
from dsocr_core.kernels.batch.router import gated_rows, gated_rows_reference, route_rows, route_rows_reference
from dsocr_core.kernels.decode.embed_token import matched_at_start
from dsocr_core.kernels.launch import Launch
from dsocr_core.reading.records import NgramPolicy
from tests.kernels.random_tensors import DTYPES, Random, assert_close, state_rows

AT = Launch(16)


def states(device: torch.device, *rows: tuple[int, int, int, int]) -> Tensor:
    return state_rows(device, *[(*row, 0) for row in rows])


@DTYPES
@pytest.mark.parametrize(("slots", "width", "vocabulary"), [(1, 64, 9), (3, 60, 77)])
def test_embed_rows_matches_its_reference(
    slots: int, width: int, vocabulary: int, dtype: torch.dtype, device: torch.device
) -> None:
    new = Random(1, dtype, device)
    table, x, wanted = new.normal(vocabulary, width), new.poison(slots, width), new.poison(slots, width)
    tokens = torch.randint(0, vocabulary, (slots, 7), generator=new.generator, dtype=torch.int32).to(device)
    at = states(device, *[(2 * slot, 9, slot % 2, 0) for slot in range(slots)])
    embed_rows(tokens, at, None, table, x, AT)
    embed_rows_reference(tokens, at, None, table, wanted)
    assert torch.equal(x, wanted)
    assert torch.equal(x[0], table[tokens[0, 0]])


@DTYPES
@pytest.mark.parametrize(("heads", "dim", "capacity"), [(4, 16, 24), (1, 128, 9), (5, 12, 33)])
def test_rotary_rows_matches_its_reference_and_spares_finished_slots(
    heads: int, dim: int, capacity: int, dtype: torch.dtype, device: torch.device
) -> None:
    new = Random(2, dtype, device)
    at = states(device, (0, 99, 0, 0), (capacity - 1, 99, 0, 0), (5, 99, 1, 0))
    qkv, cos, sin = new.normal(3, 3 * heads * dim), new.normal(capacity, dim), new.normal(capacity, dim)
    cache = [new.normal(3, heads, capacity, dim) for _ in range(2)]
    actual = [new.poison(3, heads, dim), *(half.clone() for half in cache)]
    wanted = [new.poison(3, heads, dim), *(half.clone() for half in cache)]
    rotary_rows(qkv, cos, sin, at, *actual, AT)
    rotary_rows_reference(qkv, cos, sin, at, *wanted)
    for got, expected in zip(actual, wanted, strict=True):
        assert_close(got, expected)
    # A finished slot's cache is its next page's already; of the others one row is new.
    for half, before in zip(actual[1:], cache, strict=True):
        changed = (half != before).any(dim=-1).any(dim=1).nonzero().tolist()
        assert changed == [[0, 0], [1, capacity - 1]]


@DTYPES
@pytest.mark.parametrize("splits", [1, 3])
@pytest.mark.parametrize("stages", [1, 2])
def test_attention_rows_matches_its_reference_and_reads_nothing_unwritten(
    splits: int, stages: int, dtype: torch.dtype, device: torch.device
) -> None:
    new = Random(splits, dtype, device)
    positions, heads, dim, capacity = (0, 1, 40, 69, 30), 2, 24, 70
    at = states(device, *[(position, 99, int(slot == 4), 0) for slot, position in enumerate(positions)])
    slots = len(positions)
    q = new.normal(slots, heads, dim)
    keys, values = (new.normal(slots, heads, capacity, dim) for _ in range(2))
    for slot, position in enumerate(positions):  # what lies beyond has never been written
        keys[slot, :, position + 1 :] = float("nan")
        values[slot, :, position + 1 :] = float("nan")
    found = []
    for attend, join in ((attend_rows, join_rows), (attend_rows_reference, join_rows_reference)):
        partial = new.poison(slots, splits, heads, dim, dtype=torch.float32)
        log_sums = new.poison(slots, splits, heads, dtype=torch.float32)
        mixed = new.poison(slots, heads * dim)
        attend(q, keys, values, at, partial, log_sums, AT, stages)
        join(partial, log_sums, mixed, AT)
        found.append(mixed)
    assert_close(found[0], found[1])
    assert (found[0][4] == 0).all()
    # By hand: one position weighs all.
    assert_close(found[0][0], values[0, :, 0].flatten())


@DTYPES
@pytest.mark.parametrize(("experts", "chosen", "inner"), [(4, 2, 48), (64, 6, 20), (5, 3, 7)])
def test_router_and_gated_rows_match_their_references(
    experts: int, chosen: int, inner: int, dtype: torch.dtype, device: torch.device
) -> None:
    new = Random(experts, dtype, device)
    products = new.normal(3, experts + 2 * inner)
    products[0, :4] = 2.0  # equal logits: the lower ids
    at = states(device, (3, 9, 0, 0), (3, 9, 0, 0), (3, 9, 1, 0))
    found = []
    for route in (route_rows, route_rows_reference):
        ids = torch.full((3, chosen), -7, dtype=torch.int32, device=device)
        weights = new.poison(3, chosen, dtype=torch.float32)
        route(products, experts, at, ids, weights, 1.5, AT)
        found.append((ids, weights))
    assert torch.equal(found[0][0], found[1][0])
    torch.testing.assert_close(found[0][1], found[1][1])
    assert found[0][0][2].tolist() == list(range(chosen)) and not found[0][1][2].any()

    gated, wanted = new.poison(3, inner), new.poison(3, inner)
    gated_rows(products, experts, gated, AT)
    gated_rows_reference(products, experts, wanted)
    assert_close(gated, wanted)


@pytest.mark.parametrize("vocabulary", [77, 16384 + 5])
@DTYPES
def test_best_rows_breaks_ties_and_ends_as_its_reference(
    vocabulary: int, dtype: torch.dtype, device: torch.device
) -> None:
    """Ties within a part, across parts; ends at the end token, at the last position, and stays ended."""
    new, parts = Random(6, dtype, device), head_parts(vocabulary)
    logits = new.normal(5, vocabulary).clamp(max=3)
    for slot, ids in enumerate(([5, 70], [vocabulary - 1, 3], [1], [9], [11])):
        logits[slot, ids] = 5.0
    at = states(device, (2, 9, 0, 0), (2, 9, 0, 0), (2, 9, 0, 0), (2, 3, 0, 0), (2, 9, 1, 0))
    found = []
    for best, take in ((best_of_parts, take_best_rows), (best_of_parts_reference, take_best_rows_reference)):
        best_logit = new.poison(5, parts, dtype=torch.float32)
        best_token = torch.full((5, parts), -1, dtype=torch.int32, device=device)
        tokens, moved = torch.zeros(5, 6, dtype=torch.int32, device=device), at.clone()
        best(logits, moved, best_logit, best_token, Launch(32 if vocabulary < 100 else 2048))
        take(best_logit, best_token, tokens, moved, 1, vocabulary, AT)
        found.append((tokens, moved))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    assert found[0][0][:, 3].tolist() == [5, 3, 1, 9, 0]
    assert found[0][1][:, :3].tolist() == [[3, 9, 0], [3, 9, 0], [2, 9, 1], [2, 3, 1], [2, 9, 1]]


@pytest.mark.parametrize("ban", [ban_repeats, ban_repeats_reference], ids=["kernel", "plain"])
@pytest.mark.parametrize(
    "policies",
    [
        *((NgramPolicy(size),) * 3 for size in (0, 1, 2, 4)),
        (NgramPolicy(2, 7), NgramPolicy(3, 12, (1,), over_prompt=True), NgramPolicy(2)),
    ],
)
def test_banned_tokens_are_those_of_each_slots_rule(
    ban: Callable[..., None], policies: tuple[NgramPolicy, ...], device: torch.device
) -> None:
    """Against the rule of `sampling`, slot by slot, at different positions; each step run twice."""
    new, vocabulary, held = Random(12, torch.float32, device), 6, 40
    prompts = (9, 2, 16)
    sequences = torch.randint(0, 3, (3, held), generator=new.generator, dtype=torch.int32)
    sequences[:, 24:34] = sequences[:, 10:20]
    tokens = sequences.to(device)
    matched = torch.full((3, 2, held), 99, dtype=torch.int32, device=device)
    rules = []
    for slot, prompt in enumerate(prompts):
        # The row before the first step's, whose current token is the prompt's last.
        before = matched_at_start(sequences[slot, : prompt - 1], policies[slot].size)
        matched[slot, prompt % 2, : prompt - 1] = before.to(device)
        rules.append(NgramRule(policies[slot], sequences[slot, : prompt - 1].tolist()))
    for step in range(held - max(prompts)):
        # The prompt's last token counts as new here: it is the first one that is pushed.
        rows = [(n - 1 + step, 99, 0, policy, n - 1) for n, policy in zip(prompts, policies, strict=True)]
        at = state_rows(device, *rows)
        for _ in range(2):
            logits = torch.zeros(3, vocabulary, device=device)
            ban(tokens, at, matched, logits, Launch(32))
        for slot, prompt in enumerate(prompts):
            rules[slot].push(int(sequences[slot, prompt - 1 + step]))
            assert set(logits[slot].isinf().nonzero().flatten().tolist()) == rules[slot].banned()
