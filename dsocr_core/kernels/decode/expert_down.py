# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
"""Down products of the chosen and the shared experts, their weighted sum, and the residual sum.

Letters: C hidden size, E experts, k experts a token, I width of an expert, S shared width, G segments.

An output row meets G segments of one width: the k chosen experts, and the shared one (or the dense layer)
cut into equal parts. The tile is (G, ROWS, CHUNK); which expert a segment reads was written two kernels
ago, so it can be read before the wait. Moves (k I + S) C weights.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, chunk_width, expect, expect_all
from dsocr_core.kernels.matvec import extended, load_tile, product_reference, rounded, unpacked

DENSE_SEGMENTS = 8  # parts in which a dense layer's product is summed, where its width is divisible
"""Parts into which a dense layer's row is cut, if its width allows."""


@triton.jit
def _down(
    routed, shared, ids, gate_weights, routed_weight, shared_weight, x, out_width,
    CHOSEN: tl.constexpr, SHARED_PARTS: tl.constexpr, SEGMENTS: tl.constexpr, PART: tl.constexpr,
    ROWS: tl.constexpr, CHUNK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = x.dtype.element_ty
    COUNT: tl.constexpr = (PART + CHUNK - 1) // CHUNK
    segment = tl.arange(0, SEGMENTS)
    is_routed = segment < CHOSEN
    live_segment = segment < CHOSEN + SHARED_PARTS
    shared_at = (segment - CHOSEN) * PART
    inputs = shared + shared_at
    share = tl.zeros([SEGMENTS], tl.float32)
    if CHOSEN > 0:
        share = tl.load(gate_weights + segment, mask=is_routed, other=0.0, cache_modifier=".cg")
        inputs = tl.where(is_routed, routed + segment * PART, inputs)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    live = live_segment[:, None] & (row < out_width)[None, :]
    weights = shared_weight + (row.to(tl.int64) * (SHARED_PARTS * PART))[None, :] + shared_at[:, None]
    if CHOSEN > 0:
        expert = tl.load(ids + segment, mask=is_routed, other=0, cache_modifier=".cg")
        expert_rows = (expert.to(tl.int64) * out_width)[:, None] + row[None, :]
        weights = tl.where(is_routed[:, None], routed_weight + expert_rows * PART, weights)
    tiles = ()
    for c in tl.static_range(COUNT):
        # A weight is read once a token, so it need not stay in a cache.
        tiles = extended(tiles, load_tile(weights, live, c * CHUNK, PART, CHUNK, "", "evict_first"))

    await_previous(PDL)
    gated = ()
    for c in tl.static_range(COUNT):
        # A dimension for the rows gives it the weights' layout; otherwise each chunk needs a barrier.
        gated = extended(
            gated, load_tile(inputs[:, None], live_segment[:, None], c * CHUNK, PART, CHUNK, "", "")
        )
    residual = tl.load(x + row, mask=row < out_width, other=0.0).to(tl.float32)
    products = tl.zeros([SEGMENTS, ROWS, CHUNK], tl.float32)
    for c in tl.static_range(COUNT):
        products += unpacked(tiles[c]) * unpacked(gated[c])
    sums = tl.sum(products, axis=2)
    # The shared parts are one product and rounded once; each chosen expert is rounded by itself.
    shared_sum = tl.sum(tl.where(is_routed[:, None], 0.0, sums), axis=0)
    if CHOSEN > 0:
        weighed = tl.where(is_routed[:, None], rounded(sums, DTYPE) * share[:, None], 0.0)
        routed_sum = rounded(tl.sum(weighed, axis=0), DTYPE)
        mlp = rounded(routed_sum + rounded(shared_sum, DTYPE), DTYPE)
    else:
        mlp = rounded(shared_sum, DTYPE)
    tl.store(x + row, (residual + mlp).to(DTYPE), mask=row < out_width)


def dense_down(gated: Tensor, weight: Tensor, x: Tensor, launch: Launch) -> None:
    """Add a dense layer's down product to `x` (C,) in place: `gated` (S,), `weight` (C, S)."""
    width, inner = weight.shape
    expect_all(
        x.dtype, x.device, gated=(gated, (inner,)), weight=(weight, (width, inner)),
        x=(x, (width,)),
    )  # fmt: skip
    parts = DENSE_SEGMENTS if inner % DENSE_SEGMENTS == 0 else 1
    part = inner // parts
    _down[(triton.cdiv(width, launch.rows),)](
        # Without experts none of these are read, so any tensors will do.
        gated, gated, gated, gated, weight, weight, x, width,
        CHOSEN=0, SHARED_PARTS=parts, SEGMENTS=parts, PART=part, ROWS=launch.rows, CHUNK=chunk_width(part),
        **launch.options(),
    )  # fmt: skip


def mixture_down(
    routed: Tensor,
    shared: Tensor,
    ids: Tensor,
    weights: Tensor,
    routed_weight: Tensor,
    shared_weight: Tensor,
    x: Tensor,
    launch: Launch,
) -> None:
    """Add a mixture's output to `x` (C,) in place.

    `routed` (k, I) and `shared` (S,) are the gated activations, `ids` (k,) int32 below E and `weights` (k,)
    float32 as `route` leaves them, `routed_weight` (E, C, I), `shared_weight` (C, S), S a multiple of I.
    """
    (chosen, part), width, inner = routed.shape, x.shape[0], shared.shape[0]
    experts, device = routed_weight.shape[0], x.device
    if inner == 0 or inner % part:
        raise ValueError(f"shared width {inner} is not a multiple of the experts' {part}")
    expect_all(
        x.dtype, device, routed=(routed, (chosen, part)), shared=(shared, (inner,)),
        routed_weight=(routed_weight, (experts, width, part)), shared_weight=(shared_weight, (width, inner)),
        x=(x, (width,)),
    )  # fmt: skip
    expect("ids", ids, (chosen,), torch.int32, device)
    expect("weights", weights, (chosen,), torch.float32, device)
    parts = inner // part
    _down[(triton.cdiv(width, launch.rows),)](
        routed, shared, ids, weights, routed_weight, shared_weight, x, width,
        CHOSEN=chosen, SHARED_PARTS=parts, SEGMENTS=triton.next_power_of_2(chosen + parts), PART=part,
        ROWS=launch.rows, CHUNK=chunk_width(part), **launch.options(),
    )  # fmt: skip


def dense_down_reference(gated: Tensor, weight: Tensor, x: Tensor) -> Tensor:
    """Reference in plain torch. Returns the new x, (C,)."""
    return x + product_reference(weight, gated)


def mixture_down_reference(
    routed: Tensor,
    shared: Tensor,
    ids: Tensor,
    weights: Tensor,
    routed_weight: Tensor,
    shared_weight: Tensor,
    x: Tensor,
) -> Tensor:
    """Reference in plain torch. Returns the new x, (C,)."""
    outputs = torch.stack([product_reference(routed_weight[e], y) for e, y in zip(ids, routed, strict=True)])
    mixed = (outputs.to(torch.float32) * weights.unsqueeze(-1)).sum(dim=0).to(x.dtype)  # (C,)
    return x + (mixed + product_reference(shared_weight, shared))
