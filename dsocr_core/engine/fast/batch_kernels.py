"""The kernels of a batch's step in two forms with one signature: Triton's, and plain torch beside them.

The plain form is what the step is tested with where every program of a kernel would run in an interpreter.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from dsocr_core.kernels.batch import attention, drafts, embed, head, rotary, router
from dsocr_core.kernels.prefill import add_norm, expert_order, grouped_experts
from dsocr_core.kernels.prefill.grouped_experts import GroupedLaunch


@dataclass(frozen=True)
class BatchKernels:
    """Each as its Triton form is documented; all write to tensors of the caller's."""

    embed_rows: Callable[..., None]
    rotary_rows: Callable[..., None]
    attend_rows: Callable[..., None]
    join_rows: Callable[..., None]
    route_rows: Callable[..., None]
    gated_rows: Callable[..., None]
    order_by_expert: Callable[..., None]
    grouped_gate_up: Callable[..., None]
    grouped_down: Callable[..., None]
    add_and_norm: Callable[..., None]
    ban_repeats: Callable[..., None]
    best_of_parts: Callable[..., None]
    take_best_rows: Callable[..., None]
    accept: Callable[..., None]


def _order_by_expert(chosen: Tensor, slots: Tensor, starts: Tensor) -> None:
    for target, value in zip(
        (slots, starts), expert_order.order_by_expert_reference(chosen, starts.numel() - 1), strict=True
    ):
        target.copy_(value)


def _grouped_gate_up(
    x: Tensor, slots: Tensor, starts: Tensor, gate: Tensor, up: Tensor, gated: Tensor, _: GroupedLaunch
) -> None:
    gated.copy_(grouped_experts.grouped_gate_up_reference(x, slots, starts, gate, up))


def _grouped_down(
    gated: Tensor, slots: Tensor, starts: Tensor, down: Tensor, routed: Tensor, _: GroupedLaunch
) -> None:
    routed.copy_(grouped_experts.grouped_down_reference(gated, slots, starts, down, routed.shape[1]))


def _add_and_norm(
    x: Tensor,
    gain: Tensor,
    y: Tensor,
    eps: float,
    added: Tensor | None = None,
    routed: Tensor | None = None,
    weights: Tensor | None = None,
) -> None:
    summed, normed = add_norm.add_and_norm_reference(x, gain, eps, added, routed, weights)
    x.copy_(summed)
    y.copy_(normed)


TRITON = BatchKernels(
    embed.embed_rows,
    rotary.rotary_rows,
    attention.attend_rows,
    attention.join_rows,
    router.route_rows,
    router.gated_rows,
    expert_order.order_by_expert,
    grouped_experts.grouped_gate_up,
    grouped_experts.grouped_down,
    add_norm.add_and_norm,
    head.ban_repeats,
    head.best_of_parts,
    head.take_best_rows,
    drafts.accept,
)

PLAIN = BatchKernels(
    embed.embed_rows_reference,
    rotary.rotary_rows_reference,
    attention.attend_rows_reference,
    attention.join_rows_reference,
    router.route_rows_reference,
    router.gated_rows_reference,
    _order_by_expert,
    _grouped_gate_up,
    _grouped_down,
    _add_and_norm,
    head.ban_repeats_reference,
    head.best_of_parts_reference,
    head.take_best_rows_reference,
    drafts.accept_reference,
)
