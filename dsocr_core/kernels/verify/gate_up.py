# mypy: allow-untyped-defs, allow-incomplete-defs, allow-untyped-decorators, allow-untyped-calls
# mypy: disable-error-code="var-annotated", no-warn-unreachable
"""Gate/up of K rows: the shared experts (or a dense layer), and the union of the chosen experts, read once.

Letters: K rows, C hidden size, E experts, k experts a row, I width of an expert, S width of the shared
experts.

A pair is a row and one of its experts. A program belongs to a block of outputs and to a pair, or to an expert
where there are fewer of those. It ends at once when an earlier pair has the same expert, or no pair has it,
and else computes its block for every pair that has it. The shared programs do not wait for the choice
(`decode.expert_gate_up`).
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from dsocr_core.kernels.launch import Launch, await_previous, chunk_width, expect, expect_all, rows_at_once
from dsocr_core.kernels.matvec import dot_row, extended, load_row, load_rows, rounded, silu


@triton.jit
def _gated(
    gate_rows, up_rows, vector, COUNT: tl.constexpr, ROWS: tl.constexpr, CHUNK: tl.constexpr,
    DTYPE: tl.constexpr,
):  # fmt: skip
    first = rounded(dot_row(gate_rows, vector, COUNT, ROWS, CHUNK), DTYPE)
    second = rounded(dot_row(up_rows, vector, COUNT, ROWS, CHUNK), DTYPE)
    return (rounded(silu(first), DTYPE) * second).to(DTYPE)


@triton.jit
def _gate_up_rows(
    y, ids, shared_gate, shared_up, routed_gate, routed_up, shared, routed,
    K: tl.constexpr, GROUP: tl.constexpr, WIDTH: tl.constexpr, SHARED: tl.constexpr, INNER: tl.constexpr,
    CHOSEN: tl.constexpr, EVERY: tl.constexpr, BY_EXPERT: tl.constexpr, ROWS: tl.constexpr,
    CHUNK: tl.constexpr, PDL: tl.constexpr,
):  # fmt: skip
    DTYPE: tl.constexpr = y.dtype.element_ty
    COUNT: tl.constexpr = (WIDTH + CHUNK - 1) // CHUNK
    A_GROUP: tl.constexpr = (SHARED + ROWS - 1) // ROWS
    SHARED_PROGRAMS: tl.constexpr = A_GROUP * (K // GROUP)
    program = tl.program_id(0)
    if program < SHARED_PROGRAMS:
        row, ahead = program % A_GROUP * ROWS + tl.arange(0, ROWS), program // A_GROUP * GROUP
        live = row < SHARED
        gate_rows = load_rows(shared_gate + row.to(tl.int64) * WIDTH, live, WIDTH, CHUNK)
        up_rows = load_rows(shared_up + row.to(tl.int64) * WIDTH, live, WIDTH, CHUNK)
        if CHOSEN == 0:
            await_previous(PDL)  # for the norm; before a mixture it ended with the kernel before the last
        outs = ()
        for r in tl.static_range(GROUP):
            vector = load_row(y + (ahead + r) * WIDTH, WIDTH, ROWS, CHUNK, "" if CHOSEN == 0 else ".cg")
            outs = extended(outs, _gated(gate_rows, up_rows, vector, COUNT, ROWS, CHUNK, DTYPE))
        # All sums before the first store: a store's barriers would keep the next row's loads behind them.
        for r in tl.static_range(GROUP):
            tl.store(shared + (ahead + r) * SHARED + row, outs[r], mask=live)
    elif CHOSEN > 0:
        PER_EXPERT: tl.constexpr = (INNER + ROWS - 1) // ROWS
        owner = (program - SHARED_PROGRAMS) // PER_EXPERT
        row = (program - SHARED_PROGRAMS) % PER_EXPERT * ROWS + tl.arange(0, ROWS)
        live = row < INNER
        number = tl.arange(0, EVERY)
        await_previous(PDL)
        expert = owner
        if not BY_EXPERT:
            expert = tl.load(ids + owner, cache_modifier=".cg")
        all_ids = tl.load(ids + number, mask=number < K * CHOSEN, other=-1, cache_modifier=".cg")
        mine = tl.where(all_ids == expert, number, EVERY)
        at = tl.min(mine, axis=0)
        if not BY_EXPERT:
            at = tl.where(at == owner, at, EVERY)
        if at < EVERY:
            offset = (expert.to(tl.int64) * INNER + row) * WIDTH
            gate_rows = load_rows(routed_gate + offset, live, WIDTH, CHUNK)
            up_rows = load_rows(routed_up + offset, live, WIDTH, CHUNK)
            while at < EVERY:
                vector = load_row(y + at // CHOSEN * WIDTH, WIDTH, ROWS, CHUNK, "")
                following = tl.min(tl.where(mine > at, mine, EVERY), axis=0)
                out = _gated(gate_rows, up_rows, vector, COUNT, ROWS, CHUNK, DTYPE)
                tl.store(routed + at * INNER + row, out, mask=live)
                at = following


def mixture_gate_up_rows(
    y: Tensor,
    ids: Tensor,
    shared_weights: tuple[Tensor, Tensor],
    routed_weights: tuple[Tensor, Tensor],
    shared: Tensor,
    routed: Tensor,
    launch: Launch,
) -> None:
    """Write `shared` (K, S) and `routed` (K, k, I).

    `y` (K, C) normed, `ids` (K, k) int32 below E as `route` leaves them; gate and up (S, C) and (E, I, C).
    `y` and who last read `shared` must be complete when this kernel starts. Raises ValueError when these do
    not fit each other.
    """
    (rows, chosen, inner), part, width = routed.shape, shared.shape[1], y.shape[1]
    (shared_gate, shared_up), (routed_gate, routed_up) = shared_weights, routed_weights
    experts = routed_gate.shape[0]
    expect_all(
        y.dtype, y.device, y=(y, (rows, width)), shared=(shared, (rows, part)),
        shared_gate=(shared_gate, (part, width)), shared_up=(shared_up, (part, width)),
        routed_gate=(routed_gate, (experts, inner, width)), routed_up=(routed_up, (experts, inner, width)),
        routed=(routed, (rows, chosen, inner)),
    )  # fmt: skip
    expect("ids", ids, (rows, chosen), torch.int32, y.device)
    by_expert = rows * chosen > experts
    groups = experts if by_expert else rows * chosen
    at_once = rows_at_once(rows)
    programs = rows // at_once * triton.cdiv(part, launch.rows) + groups * triton.cdiv(inner, launch.rows)
    _gate_up_rows[(programs,)](
        y, ids, shared_gate, shared_up, routed_gate, routed_up, shared, routed,
        K=rows, GROUP=at_once, WIDTH=width, SHARED=part, INNER=inner, CHOSEN=chosen,
        EVERY=triton.next_power_of_2(rows * chosen), BY_EXPERT=by_expert, ROWS=launch.rows,
        CHUNK=chunk_width(width), **launch.options(),
    )  # fmt: skip


def dense_gate_up_rows(y: Tensor, gate: Tensor, up: Tensor, gated: Tensor, launch: Launch) -> None:
    """Write `gated` (K, S): `y` (K, C) normed, `gate` and `up` (S, C).

    Raises ValueError when these do not fit each other.
    """
    (rows, width), inner = y.shape, gate.shape[0]
    expect_all(
        y.dtype, y.device, y=(y, (rows, width)), gate=(gate, (inner, width)), up=(up, (inner, width)),
        gated=(gated, (rows, inner)),
    )  # fmt: skip
    at_once = rows_at_once(rows)
    _gate_up_rows[(rows // at_once * triton.cdiv(inner, launch.rows),)](
        # Without experts nothing of them is read; any tensors do.
        y, gated, gate, up, gate, up, gated, gated,
        K=rows, GROUP=at_once, WIDTH=width, SHARED=inner, INNER=1, CHOSEN=0, EVERY=1, BY_EXPERT=False,
        ROWS=launch.rows, CHUNK=chunk_width(width), **launch.options(),
    )  # fmt: skip
