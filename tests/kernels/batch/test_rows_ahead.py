"""Several rows a slot in the batch's kernels: each row is, bit for bit, what it is alone at its position."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from dsocr_core.engine.ngram_rule import NgramRule
from dsocr_core.kernels.batch.attention import attend_rows, attend_rows_reference
from dsocr_core.kernels.batch.drafts import (
    ACCEPTED,
    DRAFT_SIZE,
    DRAFTED,
    LENGTH,
    PASSES,
    RIGHT,
    SHIFT,
    WRONG,
    accept,
    accept_reference,
)
from dsocr_core.kernels.batch.head import ban_repeats, ban_repeats_reference
from dsocr_core.kernels.batch.scales import FP8, NO_SCALES, Scales
from dsocr_core.kernels.decode.embed_token import matched_at_start
from dsocr_core.kernels.launch import Launch
from dsocr_core.kernels.state import DONE, POSITION, SIZE
from dsocr_core.reading.records import NgramPolicy
from tests.kernels.random_tensors import Random, state_rows

AT, ROWS = Launch(16), 4


def ahead(states: Tensor, by: int) -> Tensor:
    moved = states.clone()
    moved[:, POSITION] += by
    return moved


def within(dtype: torch.dtype) -> dict[str, float]:
    """The tolerance of an average whose weights are rounded to that type."""
    return {"rtol": 0.0, "atol": 1e-2 if dtype == torch.bfloat16 else 1e-4}


KINDS = pytest.mark.parametrize(
    ("splits", "dtype", "narrow"),
    [
        (1, torch.float32, False), (3, torch.bfloat16, False),
        (1, torch.bfloat16, True), (3, torch.float32, True),
    ],
)  # fmt: skip
"""Every two of: parts of attention, type of numbers, a cache of 8 bits."""


def cached(narrow: bool, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor, Scales]:
    """Keys, values and their scales: another one for each slot and head, where they are 8 bits."""
    if not narrow:
        return keys, values, NO_SCALES
    scales = torch.linspace(0.5, 2.0, keys.shape[0] * keys.shape[1], device=keys.device).view(keys.shape[:2])
    return keys.to(FP8), values.to(FP8), (scales, scales.flip(0))


def drafts(device: torch.device, *texts: list[int], shift: int = 0) -> tuple[Tensor, Tensor]:
    most = max(map(len, texts)) + 2
    tokens = torch.full((len(texts), most), 3, dtype=torch.int32)
    states = torch.zeros(len(texts), DRAFT_SIZE, dtype=torch.int32)
    for slot, text in enumerate(texts):
        tokens[slot, : len(text)] = torch.tensor(text, dtype=torch.int32)
        states[slot, SHIFT], states[slot, LENGTH] = shift, len(text)
    return tokens.to(device), states.to(device)


@KINDS
def test_rows_of_a_slot_attend_as_each_does_alone(
    splits: int, dtype: torch.dtype, narrow: bool, device: torch.device
) -> None:
    """Parts that grow between two rows (47 to 50 positions, by 16), rows past the limit, a finished slot.

    Of the last row's key and value nothing reaches the rows before it, whatever they are.
    """
    new = Random(splits, dtype, device)
    positions, heads, dim, capacity = (0, 14, 46, 20, 30), 2, 24, 70
    at = state_rows(
        device, *[(p, 22 if slot == 3 else 99, int(slot == 4), 0, 0) for slot, p in enumerate(positions)]
    )
    slots = len(positions)
    q = new.normal(ROWS * slots, heads, dim)
    keys, values = (new.normal(slots, heads, capacity, dim) for _ in range(2))
    for half in (keys, values):
        half[2, :, positions[2] + ROWS - 1 :] = float("nan")
    keys, values, scales = cached(narrow, keys, values)
    partial = new.poison(ROWS * slots, splits, heads, dim, dtype=torch.float32)
    log_sums = new.poison(ROWS * slots, splits, heads, dtype=torch.float32)
    attend_rows(q, keys, values, at, partial, log_sums, AT, 1, scales=scales)
    for r in range(ROWS):
        rows = slice(r * slots, (r + 1) * slots)
        alone = new.poison(slots, splits, heads, dim, dtype=torch.float32)
        sums = new.poison(slots, splits, heads, dtype=torch.float32)
        attend_rows(q[rows], keys, values, ahead(at, r), alone, sums, AT, 1, scales=scales)
        assert torch.equal(partial[rows].nan_to_num(7), alone.nan_to_num(7))
        assert torch.equal(log_sums[rows].nan_to_num(7), sums.nan_to_num(7))
    # Triton's interpreter has a number of 8 bits that is none as 480.
    assert narrow or partial[3 * slots + 2].isnan().any()
    assert not partial[: 3 * slots].isnan().any()
    assert not partial[4::slots].any() and not partial[2 * slots + 3].any()  # finished; past the limit
    wanted = new.poison(ROWS * slots, splits, heads, dim, dtype=torch.float32)
    attend_rows_reference(q, keys, values, at, wanted, log_sums, scales=scales)
    if splits == 1:
        torch.testing.assert_close(partial[: 3 * slots], wanted[: 3 * slots], **within(dtype))


@pytest.mark.parametrize("ban", [ban_repeats, ban_repeats_reference], ids=["kernel", "plain"])
@pytest.mark.parametrize("policy", [NgramPolicy(1), NgramPolicy(3), NgramPolicy(2, 7, (1,))])
def test_rows_forbid_what_the_rule_does_after_their_tokens(
    ban: Callable[..., None], policy: NgramPolicy, device: torch.device
) -> None:
    """Passes of which one to four rows are accepted; the rows after are others in the next pass."""
    chance, vocabulary, held, slots = random.Random(5), 5, 60, 2
    texts = [chance.choices(range(3), k=count) for count in (9, 2)]
    tokens = torch.zeros(slots, held, dtype=torch.int32, device=device)
    matched = torch.full((slots, 8, held), 99, dtype=torch.int32, device=device)
    first = [len(text) for text in texts]
    for slot, text in enumerate(texts):
        before = torch.tensor(text[:-1], dtype=torch.int32)
        matched[slot, (len(text) - 2) % 8, : len(text) - 1] = matched_at_start(before, policy.size).to(device)
    for _ in range(9):
        fed = [[*text, *chance.choices(range(3), k=ROWS - 1)] for text in texts]
        for slot, row in enumerate(fed):
            tokens[slot, : len(row)] = torch.tensor(row, dtype=torch.int32)
        at = state_rows(
            device, *[(len(t) - 1, 99, 0, policy, f - 1) for t, f in zip(texts, first, strict=True)]
        )
        logits = torch.zeros(ROWS * slots, vocabulary, device=device)
        ban(tokens, at, matched, logits, Launch(32))
        for slot, row in enumerate(fed):
            taken = chance.randint(1, ROWS)
            for r in range(ROWS):
                rule = NgramRule(policy, row[: first[slot] - 1])
                for token in row[first[slot] - 1 : len(texts[slot]) + r]:
                    rule.push(token)
                assert set(logits[r * slots + slot].isinf().nonzero().flatten().tolist()) == rule.banned()
            texts[slot] = [*row[: len(texts[slot]) - 1 + taken], chance.randrange(3)]


ACCEPTS = pytest.mark.parametrize("take", [accept, accept_reference], ids=["kernel", "plain"])


@ACCEPTS
def test_tokens_are_accepted_up_to_the_first_that_differs(
    take: Callable[..., None], device: torch.device
) -> None:
    """By hand: all right, the third wrong, the end token, the limit, finished, two wrong: the place found."""
    slots, new = 6, Random(6, torch.float32, device)
    chosen = [[n + 1, n + 2, n + 3, n + 4] for n in (10, 20, 30, 40, 50, 60)]
    chosen[1][2], chosen[2][1] = 29, 1
    best_logit = new.normal(ROWS * slots, 2).clamp(max=1)
    best_token = torch.full((ROWS * slots, 2), 7, dtype=torch.int32, device=device)
    for slot, tokens_of in enumerate(chosen):
        for r, token in enumerate(tokens_of):
            best_logit[r * slots + slot, r % 2], best_token[r * slots + slot, r % 2] = 5.0, token
    tokens = torch.full((slots, 20), 60, dtype=torch.int32, device=device)
    at = state_rows(device, *[(9, 11 if slot == 3 else 99, int(slot == 4), 0, 0) for slot in range(slots)])
    texts = [[11, 12, 13, 14, 15], [21, 22, 23, 22, 29, 24], [31, 1, 33, 34], [41, 42, 43, 44], [51, 52]]
    texts.append([62, 60, 61, 62])
    held = drafts(device, *texts, shift=-10)
    take((best_logit, best_token), tokens, at, held, (1, 100), Launch(16))
    assert [row[10:14] for row in tokens.tolist()] == [
        [11, 12, 13, 14], [21, 22, 29, 60], [31, 1, 60, 60], [41, 42, 60, 60], [60] * 4,
        [61, 60, 60, 60],
    ]  # fmt: skip
    assert at[:, POSITION].tolist() == [13, 12, 10, 10, 9, 10]
    assert at[:, DONE].tolist() == [0, 0, 1, 1, 1, 0]
    counts = held[1][:, [PASSES, DRAFTED, ACCEPTED, RIGHT, WRONG]].tolist()
    assert counts == [
        [1, 3, 3, 4, 0], [1, 3, 2, 2, 1], [1, 3, 1, 2, 0], [1, 3, 1, 2, 0], [0] * 5, [1, 3, 0, 0, 1],
    ]  # fmt: skip
    # 22, 29 stand two further on, but 22 was right; so do 60, 61, after two that were wrong.
    assert held[1][:, SHIFT].tolist() == [-10, -10, -10, -10, -10, -8]
    assert at.shape == (slots, SIZE)
