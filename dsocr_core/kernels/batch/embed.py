# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""A batch: the current tokens' embeddings.

Letters: S slots, C hidden size, V vocabulary, T tokens a slot holds. A program is one slot.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, expect, expect_all
from dsocr_core.kernels.state import AT_POSITION, AT_SIZE, POSITION, SIZE


@triton.jit
def _embed_rows(tokens, states, table, x, held, WIDTH: tl.constexpr, COLUMNS: tl.constexpr):
    slot = tl.program_id(0)
    position = tl.load(states + slot * AT_SIZE + AT_POSITION)
    token = tl.load(tokens + slot.to(tl.int64) * held + position)
    cols = tl.arange(0, COLUMNS)
    row = tl.load(table + token.to(tl.int64) * WIDTH + cols, mask=cols < WIDTH)
    tl.store(x + slot * WIDTH + cols, row, mask=cols < WIDTH)


def embed_rows(tokens: Tensor, states: Tensor, table: Tensor, x: Tensor, launch: Launch) -> None:
    """Write each slot's current token's embedding to `x` (S, C).

    `tokens` (S, T) int32, `states` (S, 4) int32, `table` (V, C). Raises ValueError when these do not fit
    each other.
    """
    _check_embed(tokens, states, table, x)
    slots, held = tokens.shape
    width = table.shape[1]
    _embed_rows[(slots,)](
        tokens, states, table, x, held,
        WIDTH=width, COLUMNS=triton.next_power_of_2(width), num_warps=launch.warps,
    )  # fmt: skip


def embed_rows_reference(
    tokens: Tensor, states: Tensor, table: Tensor, x: Tensor, launch: Launch | None = None
) -> None:
    """The same in plain torch."""
    _check_embed(tokens, states, table, x)
    current = tokens.gather(1, states[:, POSITION : POSITION + 1].long())[:, 0]  # (S,)
    x.copy_(table[current.long()])


def _check_embed(tokens: Tensor, states: Tensor, table: Tensor, x: Tensor) -> None:
    slots, width = x.shape
    expect_all(table.dtype, x.device, table=(table, (table.shape[0], width)), x=(x, (slots, width)))
    expect("tokens", tokens, (slots, tokens.shape[-1]), torch.int32, x.device)
    expect("states", states, (slots, SIZE), torch.int32, x.device)
