"""Every operator's cost at a size that can be worked out on paper."""

import pytest

from analytic_model import ops
from analytic_model.ops import Cost

BF16, FLOAT32 = 2, 4


def test_costs_add_and_scale() -> None:
    one = Cost(1, 2, 30, 40, 5, 6, 7)
    assert one + one == one.times(2) == Cost(2, 4, 60, 80, 10, 12, 14)
    assert one.bytes_moved == 70
    assert one.activation_bytes == 70 - 5 - 6


def test_runs_read_the_weights_again_and_hold_them_once() -> None:
    one = Cost(flops=10, bytes_read=8, weight_bytes=8, parameters=4)
    assert one.times(3, runs=5) == Cost(flops=150, bytes_read=120, weight_bytes=120, parameters=12)
    assert one.times(3, runs=5, holds=False).parameters == 0


def test_a_linear_layer_costs_its_multiply_adds_and_biases() -> None:
    # 3 rows of 4 through a 4 x 5 matrix and 5 biases: 3*4*5 multiply-adds, 15 sums.
    assert ops.linear(3, 4, 5, BF16) == Cost(
        flops=120, other_flops=15, bytes_read=(12 + 25) * 2, bytes_written=15 * 2, weight_bytes=25 * 2,
        parameters=25,
    )  # fmt: skip
    bare = ops.linear(3, 4, 5, FLOAT32, bias=False)
    assert bare == Cost(flops=120, bytes_read=(12 + 20) * 4, bytes_written=60, weight_bytes=80, parameters=20)


def test_a_linear_layer_of_experts_reads_only_the_chosen_weights() -> None:
    # 6 rows over 2 of 8 experts of 4 x 5.
    assert ops.linear_of_experts(6, 4, 5, BF16, read=2, held=8) == Cost(
        flops=240, bytes_read=(24 + 40) * 2, bytes_written=30 * 2, weight_bytes=40 * 2, parameters=160
    )


def test_a_convolution_costs_its_points_times_its_kernel() -> None:
    # 2 images, 3 -> 4 channels, kernel 3, 8 x 8 -> 4 x 4: 32 points of 27 products for 4 channels.
    cost = ops.conv2d(2, 3, 4, 3, 8, 4, BF16, bias=True)
    assert cost.flops == 2 * 32 * 27 * 4 == 6912
    assert cost.other_flops == 128
    assert cost.parameters == 27 * 4 + 4 == 112
    assert cost.weight_bytes == 224
    assert cost.bytes_read == 2 * 3 * 64 * 2 + 224
    assert cost.bytes_written == 2 * 4 * 16 * 2
    assert ops.conv2d(2, 3, 4, 3, 8, 4, BF16).parameters == 108


def test_attention_costs_its_pairs_of_query_and_key() -> None:
    # 2 heads of 4; 3 queries, 5 keys, all 15 pairs: two products of 2*15*8 FLOPs each.
    plain = ops.attention(2, 4, 3, 5, 15, BF16)
    assert plain.flops == 480
    assert plain.other_flops == 15 * 2 * 5  # scale, subtract, exponential, sum, divide
    assert plain.bytes_read == (24 + 2 * 40) * 2
    assert plain.bytes_written == 24 * 2
    assert plain.kv_bytes == 0
    biased = ops.attention(2, 4, 3, 5, 15, BF16, bias=True, cached=True)
    assert biased.flops == 480
    assert biased.other_flops == 15 * 2 * 6
    assert biased.bytes_read == (24 + 2 * 40 + 30) * 2
    assert biased.kv_bytes == 2 * 40 * 2


def test_unfused_attention_is_the_same_products() -> None:
    scores = ops.attention_scores(2, 4, 3, 5, 15, BF16, cached=True)
    assert scores == Cost(flops=240, bytes_read=(24 + 40) * 2, bytes_written=30 * 2, kv_bytes=40 * 2)
    values = ops.attention_values(2, 4, 3, 5, 15, BF16)
    assert values == Cost(flops=240, bytes_read=(30 + 40) * 2, bytes_written=24 * 2)
    assert scores.flops + values.flops == ops.attention(2, 4, 3, 5, 15, BF16).flops


def test_relative_scores_cost_one_product_a_pair() -> None:
    # 4 patches (2 x 2) against 2 key rows each: 8 pairs; 2 heads of 4; 4 offsets of 4 numbers.
    assert ops.relative_scores(2, 4, 4, 8, 4, BF16) == Cost(
        flops=2 * 8 * 8, bytes_read=(32 + 16) * 2, bytes_written=16 * 2
    )


def test_a_relative_table_is_read_and_spread_without_arithmetic() -> None:
    # 3 offsets of 4 numbers spread over a 2 x 2 square of (query, key).
    assert ops.relative_table(3, 2, 4, BF16) == Cost(
        bytes_read=24, bytes_written=32, weight_bytes=24, parameters=12
    )


def test_a_kv_write_reads_and_writes_each_number_once() -> None:
    assert ops.kv_write(3, 8, BF16) == Cost(bytes_read=96, bytes_written=96, kv_bytes=96)


def test_rotary_positions_cost_three_operations_a_number() -> None:
    # 2 pages of 3 positions, 2 heads of 4: 48 numbers, half of them negated.
    assert ops.rotary(6, 3, 2, 4, BF16) == Cost(
        other_flops=3 * 48 + 24, bytes_read=(48 + 2 * 12) * 2, bytes_written=96
    )


def test_a_layer_norm_costs_eight_operations_a_number() -> None:
    assert ops.layer_norm(3, 4, BF16) == Cost(
        other_flops=8 * 12 + 4 * 3, bytes_read=(12 + 8) * 2, bytes_written=24, weight_bytes=16, parameters=8
    )


def test_an_rms_norm_costs_four_operations_a_number() -> None:
    assert ops.rms_norm(3, 4, BF16) == Cost(
        other_flops=4 * 12 + 3 * 3, bytes_read=(12 + 4) * 2, bytes_written=24, weight_bytes=8, parameters=4
    )


@pytest.mark.parametrize(
    ("cost", "flops", "read", "written"),
    [
        (ops.softmax(3, 4, FLOAT32), 48, 48, 48),
        (ops.gelu(12, BF16), 60, 24, 24),
        (ops.quick_gelu(12, BF16), 72, 24, 24),
        (ops.silu_mul(12, BF16), 72, 48, 24),
        (ops.add(12, BF16), 12, 48, 24),
        (ops.add(12, BF16, repeated=4), 12, 32, 24),
        (ops.outer_sum(12, 7, BF16), 12, 14, 24),
        (ops.scale(12, BF16), 12, 24, 24),
        (ops.copy(12, BF16), 0, 24, 24),
        # 3 rows, 2 terms of 4 numbers: 2 products and a sum each; 6 weights in float32.
        (ops.weighted_sum(3, 2, 4, BF16), 36, 48 + 24, 24),
        # 3 rows of 8 scores; 2 values and ids of each.
        (ops.topk(3, 8, 2), 0, 96, 6 * 12),
        (ops.interpolate_linear(7, 5, 4), 60, 112, 80),
        # 2 -> 4: 4 taps (7 FLOPs) along one axis for 2 x 4 points, then for 4 x 4; 3 channels.
        (ops.interpolate_bicubic(2, 4, 3), 24 * 3 * 7, 48, 192),
        # 4 -> 2 shrinks: 8 taps.
        (ops.interpolate_bicubic(4, 2, 3), 12 * 3 * 15, 192, 48),
    ],
)
def test_elementwise_and_moves(cost: Cost, flops: int, read: int, written: int) -> None:
    assert cost == Cost(other_flops=flops, bytes_read=read, bytes_written=written)


def test_a_position_table_is_one_sum_a_number() -> None:
    # 2 views of 9 tokens, 4 wide, on a table of 16 entries resized to 9.
    assert ops.add_position_table(18, 9, 4, 16, BF16) == Cost(
        other_flops=72, bytes_read=144 + 72, bytes_written=144, weight_bytes=72, parameters=64
    )


def test_embedding_reads_rows_not_the_table() -> None:
    assert ops.embedding(3, 100, 4, BF16) == Cost(
        bytes_read=24 + 24, bytes_written=24, weight_bytes=24, parameters=400
    )


@pytest.mark.parametrize(("first", "steps"), [(1, 1), (5, 1), (5, 2), (5, 3), (700, 499)])
def test_growing_context_equals_the_loop(first: int, steps: int) -> None:
    def cost_at(context: int) -> Cost:
        return ops.attention(3, 5, 1, context, context, BF16, cached=True)

    looped = sum((cost_at(first + step) for step in range(steps)), Cost())
    assert ops.over_growing_context(cost_at, first, steps) == looped


def test_without_flops_keeps_the_bytes() -> None:
    cost = ops.attention(2, 4, 3, 5, 15, BF16)
    hidden = ops.without_flops(cost)
    assert (hidden.flops, hidden.other_flops) == (0, cost.other_flops)
    assert hidden.bytes_moved == cost.bytes_moved
