"""Launches, and the one way to a kernel's reference."""

from dsocr_core.kernels.batch import attention, drafts, embed, head, rotary, router
from dsocr_core.kernels.launch import EARLY, LATE, Launch
from dsocr_core.kernels.prefill import (
    activations,
    add_norm,
    expert_order,
    grouped_experts,
    prefix_attention,
    rotary_cache,
    route_tokens,
    window_attention,
)

KERNELS = (
    attention.attend_rows, attention.join_rows, drafts.accept, embed.embed_rows, head.ban_repeats,
    head.best_of_parts, head.take_best_rows, rotary.rotary_rows, router.gated_rows, router.route_rows,
    activations.gated, activations.quick_gelu, add_norm.add_and_norm, expert_order.order_by_expert,
    grouped_experts.grouped_down, grouped_experts.grouped_gate_up, prefix_attention.prefix_attention,
    rotary_cache.turn_and_cache, route_tokens.route_tokens, window_attention.window_attention,
)  # fmt: skip


def test_dependent_and_early_launches_set_their_options() -> None:
    assert Launch(8).options() == {"PDL": 0, "num_warps": 4}
    assert Launch(8, dependent=True).options() == {"PDL": LATE, "num_warps": 4, "launch_pdl": True}
    assert Launch(8, dependent=True, early=True).options()["PDL"] == EARLY
