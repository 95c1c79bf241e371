"""Launches, and the one way to a kernel's reference."""

import inspect

import pytest

from dsocr_core.kernels.batch import attention, drafts, embed, head, rotary, router
from dsocr_core.kernels.launch import EARLY, LATE, PLAIN, TRITON, Launch, Tile
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


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.__name__)
def test_a_reference_takes_what_its_kernel_takes(kernel: object) -> None:
    reference = PLAIN(kernel)
    assert TRITON(kernel) is kernel is not reference
    assert list(inspect.signature(reference).parameters) == list(inspect.signature(kernel).parameters)


@pytest.mark.parametrize("wrong", [lambda: Launch(3), lambda: Launch(programs=-1), lambda: Tile(8)])
def test_a_size_that_no_program_has_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match=r"(8|3|-1) (is|programs)"):
        wrong()


def test_dependent_and_early_launches_set_their_options() -> None:
    assert Launch(8).options() == {"PDL": 0, "num_warps": 4}
    assert Launch(8, dependent=True).options() == {"PDL": LATE, "num_warps": 4, "launch_pdl": True}
    assert Launch(8, dependent=True, early=True).options()["PDL"] == EARLY
