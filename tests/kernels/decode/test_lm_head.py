"""The best token by bounds of all logits: the bounds hold, and the choice is that of the whole head."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dsocr_core.kernels.decode.embed_token import NEVER
from dsocr_core.kernels.decode.head_bounds import (
    RoundedHead,
    bound_rows,
    round_head,
    split_vector,
)
from dsocr_core.kernels.decode.lm_head import (
    best_of_bounded,
    logits_reference,
    take_best,
)
from dsocr_core.kernels.launch import Launch, row_programs
from dsocr_core.kernels.state import DONE, POSITION
from tests.kernels.random_tensors import DTYPES, Random, assert_close

EPS = 1e-6
ROWS = Launch(32, programs=2)


def bounds(
    x: Tensor, gain: Tensor, head: RoundedHead, banned_at: Tensor, state: Tensor, launch: Launch = ROWS
) -> tuple[Tensor, Tensor, Tensor]:
    """(normed x, lower, upper) as the kernels write them, over poison."""
    new = Random(0, x.dtype, x.device)
    vocabulary, width = head.rows.shape
    normed_x, sizes = new.poison(width), new.poison(2, dtype=torch.float32)
    planes = torch.full((2, width), 99, dtype=torch.int8, device=x.device)
    lower = new.poison(row_programs(vocabulary, launch), dtype=torch.float32)
    upper = new.poison(vocabulary, dtype=torch.float32)
    split_vector(x, gain, normed_x, planes, sizes, EPS, Launch(1))
    bound_rows(head, planes, sizes, banned_at, state, lower, upper, x.dtype, launch)
    return normed_x, lower, upper


def best(
    x: Tensor, gain: Tensor, head: Tensor, banned_at: Tensor, state: Tensor,
    rounded: RoundedHead | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Each program's best logit and token."""
    new, launch = Random(0, x.dtype, x.device), Launch(8, programs=3)
    normed_x, lower, upper = bounds(x, gain, rounded or round_head(head), banned_at, state)
    count = row_programs(head.shape[0], launch)
    best_logit = new.poison(count, dtype=torch.float32)
    best_token = torch.full((count,), -1, dtype=torch.int32, device=x.device)
    best_of_bounded(normed_x, head, banned_at, state, lower, upper, best_logit, best_token, launch)
    return best_logit, best_token


def taken(found: tuple[Tensor, Tensor], tokens: Tensor, state: Tensor, vocabulary: int) -> Tensor:
    """Enter the best of what `best` found into the tokens; the state afterwards."""
    moved, logits = state.clone(), torch.zeros(tokens.shape, device=tokens.device)
    take_best(*found, tokens, logits, moved, 1, vocabulary, Launch(4))
    return moved


def never(vocabulary: int, device: torch.device) -> Tensor:
    return torch.full((vocabulary,), NEVER, dtype=torch.int32, device=device)


@DTYPES
@pytest.mark.parametrize(("width", "vocabulary"), [(64, 288), (60, 77)])
def test_the_choice_is_the_whole_heads_and_ties_go_to_the_lower_id(
    width: int, vocabulary: int, dtype: torch.dtype, device: torch.device
) -> None:
    new = Random(10, dtype, device)
    x, gain, head = new.normal(width), new.normal(width), new.matrix(vocabulary, width)
    state, banned_at = new.state(3), never(vocabulary, device)
    banned_at[:7] = 2  # an earlier step's stamp
    tokens = torch.zeros(6, dtype=torch.int32, device=device)
    first = int(logits_reference(x, gain, head, banned_at, state, EPS).argmax())
    head[vocabulary - 1] = head[first]  # a tie with a lower id
    for _ in range(4):
        logits = logits_reference(x, gain, head, banned_at, state, EPS)
        found = best(x, gain, head, banned_at, state)
        assert_close(found[0].max().to(dtype), logits.max().to(dtype))
        moved = taken(found, tokens, state, vocabulary)
        assert tokens.tolist() == [0, 0, 0, 0, (top := int(logits.argmax())), 0]
        assert moved[[POSITION, DONE]].tolist() == ([3, 1] if top == 1 else [4, 0])
        banned_at[tokens[4]] = 3  # next time the second best
    banned_at[:] = 3
    taken(best(x, gain, head, banned_at, state), tokens, state, vocabulary)
    assert tokens[4] == 0  # as argmax of nothing but -inf


def test_weights_or_a_state_that_are_no_numbers_leave_a_token(device: torch.device) -> None:
    new = Random(23, torch.float32, device)
    tokens, state = torch.full((5,), -1, dtype=torch.int32, device=device), new.state(1)
    for x, head in (
        (new.poison(16), new.matrix(20, 16)),
        (new.normal(16), torch.full((20, 16), float("nan"), device=device)),
    ):
        taken(best(x, new.normal(16), head, never(20, device), state), tokens, state, 20)
        assert 0 <= int(tokens[2]) < 20


@DTYPES
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("kind", ["any", "none above zero", "nearly one row"])
def test_weights_and_states_of_any_size_have_the_choice_of_the_whole_head(
    kind: str, dtype: torch.dtype, device: torch.device
) -> None:
    """Norms that float32 squares cannot hold, too large and too small, and logits that overflow."""
    state, banned_at = Random(1, dtype, device).state(3), never(64, device)
    for size in (1e-38, 1e-30, 1e-22, 1.0, 1e20, 1e36):
        for gained in (0.0, 1e-30, 1e-22, 1.0, 1e20):
            generator = torch.Generator().manual_seed(0)
            head = torch.randn(64, 64, generator=generator) * size
            x = torch.randn(64, generator=generator).to(dtype)
            if kind == "none above zero":
                head, x = -head.abs(), x.abs()
                head[::2] = 0
            elif kind == "nearly one row":
                head = head[:1] * (1 + 0.02 * torch.randn(64, 1, generator=generator))
            head, gain = head.to(dtype).to(device), (torch.ones(64) * gained).to(dtype).to(device)
            logits = logits_reference(x.to(device), gain, head, banned_at, state, EPS)
            if logits.isnan().any() or 0 < logits.abs().max() < torch.finfo(dtype).tiny:
                continue  # the interpreter has no subnormal bfloat16
            best_logit, best_token = best(x.to(device), gain, head, banned_at, state)
            most = best_logit.max()
            assert best_token[best_logit == most].min() == logits.argmax(), (size, gained)
            assert most == logits.max() or (most - logits.max()).abs() <= 1e-4 * logits.max().abs()
