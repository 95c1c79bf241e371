# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""The router over many tokens: product, softmax and the best experts in one launch.

Letters: T tokens, C hidden size, E experts, k experts a token.

Logits stay in float32 from the product to the weight, as in the decode step. A program takes ROWS tokens and
all experts; the best are found one after another, equal logits going to the lower id.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.decode.router import route_reference
from dsocr_core.kernels.launch import await_previous, expect, expect_all, overlapping

ROWS, DEPTH, WARPS = 16, 128, 4


@triton.jit(do_not_specialize=["tokens"])
def _route_tokens(
    x, router, chosen, weights, tokens, scaling,
    WIDTH: tl.constexpr, EXPERTS: tl.constexpr, EVERY: tl.constexpr, CHOSEN: tl.constexpr,
    ROWS: tl.constexpr, DEPTH: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    await_previous(PDL)
    token = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = token < tokens
    expert = tl.arange(0, EVERY)
    real = expert < EXPERTS
    depth = tl.arange(0, DEPTH)
    logits = tl.zeros([ROWS, EVERY], tl.float32)
    for step in range(0, WIDTH, DEPTH):
        k = step + depth
        rows = tl.load(
            x + token.to(tl.int64)[:, None] * WIDTH + k[None, :],
            mask=live[:, None] & (k < WIDTH)[None, :], other=0.0,
        )  # fmt: skip
        columns = tl.load(
            router + expert[None, :] * WIDTH + k[:, None],
            mask=real[None, :] & (k < WIDTH)[:, None],
            other=0.0,
        )
        logits = tl.dot(rows, columns, logits, input_precision="ieee")
    logits = tl.where(real[None, :], logits, float("-inf"))
    exponents = tl.exp(logits - tl.max(logits, axis=1)[:, None])
    sums = tl.sum(exponents, axis=1)
    for choice in tl.static_range(CHOSEN):
        # With NaN logits any id may come out; it must be an expert, or loads by it fault.
        best = tl.minimum(tl.argmax(logits, axis=1), EXPERTS - 1)
        taken = expert[None, :] == best[:, None]
        weight = tl.sum(tl.where(taken, exponents, 0.0), axis=1) / sums * scaling
        tl.store(chosen + token * CHOSEN + choice, best.to(tl.int32), mask=live)
        tl.store(weights + token * CHOSEN + choice, weight, mask=live)
        logits = tl.where(taken, float("-inf"), logits)


def route_tokens(x: Tensor, router: Tensor, chosen: Tensor, weights: Tensor, scaling: float) -> None:
    """Write the best experts of each token, `chosen` (T, k) int32, best first, and their `weights`, float32.

    `x` (T, C) normed, `router` (E, C).
    """
    (tokens, each), (experts, width), device = chosen.shape, router.shape, x.device
    if not 1 <= each <= experts:
        raise ValueError(f"{each} experts a token of {experts}")
    expect_all(x.dtype, device, x=(x, (tokens, width)), router=(router, (experts, width)))
    expect("chosen", chosen, (tokens, each), torch.int32, device)
    expect("weights", weights, (tokens, each), torch.float32, device)
    _route_tokens[(triton.cdiv(tokens, ROWS),)](
        x, router, chosen, weights, tokens, scaling,
        WIDTH=width, EXPERTS=experts, EVERY=max(16, triton.next_power_of_2(experts)), CHOSEN=each,
        ROWS=ROWS, DEPTH=min(DEPTH, max(16, triton.next_power_of_2(width))), num_warps=WARPS,
        **overlapping(device),
    )  # fmt: skip


def route_tokens_reference(x, router, chosen, weights, scaling):
    """Reference in plain torch."""
    logits = x.to(torch.float32) @ router.to(torch.float32).t()  # (T, E)
    for token, row in enumerate(logits):
        chosen[token], weights[token] = route_reference(row, chosen.shape[1], scaling)
