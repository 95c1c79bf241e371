"""The rows that a draft proposes: their embeddings, and what the n-gram rule forbids after each of them."""

from __future__ import annotations

import pytest
import torch

from dsocr_core.engine.sampling import NgramRule
from dsocr_core.kernels.decode.embed_token import NEVER, matched_at_start
from dsocr_core.kernels.launch import Launch
from dsocr_core.kernels.verify.draft import DRAFT_SIZE, LENGTH, SHIFT, embed_draft
from tests.support.random_tensors import Random

HELD = [1, 2, 3, 7, 1, 2, 3, 5, 2, 6, 7, 1, 2]
"""The tokens up to the current one."""
DRAFT = [3, 7, 1]
ROWS, RING = 4, 8


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("launch", [Launch(4), Launch(32)], ids=["blocks", "one block"])
def test_each_row_forbids_what_the_rule_does_after_its_tokens(
    size: int, launch: Launch, device: torch.device
) -> None:
    new = Random(1, torch.float32, device)
    position, held = len(HELD) - 1, 24
    tokens = torch.zeros(held, dtype=torch.int32, device=device)
    tokens[: len(HELD)] = torch.tensor(HELD, dtype=torch.int32)
    matched = torch.full((RING, held), 99, dtype=torch.int32, device=device)
    before = torch.tensor(HELD[:-1], dtype=torch.int32)
    matched[(position - 1) % RING, :position] = matched_at_start(before, size).to(device)
    draft = torch.tensor(DRAFT, dtype=torch.int32, device=device)
    draft_state = torch.zeros(DRAFT_SIZE, dtype=torch.int32, device=device)
    draft_state[SHIFT], draft_state[LENGTH] = -len(HELD), len(DRAFT)
    banned_at = torch.full((ROWS, 10), NEVER, dtype=torch.int32, device=device)
    table, x = new.normal(10, 16), new.poison(ROWS, 16)

    embed_draft(
        tokens, new.state(position, ngram=size), draft, draft_state, table, x, (matched, banned_at), launch
    )

    assert torch.equal(x, table[[HELD[-1], *DRAFT]])
    for row in range(ROWS):
        forbidden = (banned_at[row] == position + row).nonzero().flatten().tolist()
        assert set(forbidden) == NgramRule(size, [*HELD, *DRAFT[:row]]).banned()
