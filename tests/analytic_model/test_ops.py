"""Every operator's cost at a size that can be worked out on paper."""

import pytest

from analytic_model import ops
from analytic_model.ops import Cost

BF16, FLOAT32 = 2, 4


def moved(flops: int, read: int, written: int) -> Cost:
    return Cost(other_flops=flops, bytes_read=read, bytes_written=written)


def test_costs_add_and_scale_and_runs_read_the_weights_again_and_hold_them_once() -> None:
    one = Cost(1, 2, 30, 40, 5, 6, 7)
    assert one + one == one.times(2) == Cost(2, 4, 60, 80, 10, 12, 14)
    assert one.bytes_moved == 70 and one.activation_bytes == 70 - 5 - 6
    one = Cost(flops=10, bytes_read=8, weight_bytes=8, parameters=4)
    assert one.times(3, runs=5) == Cost(flops=150, bytes_read=120, weight_bytes=120, parameters=12)
    assert one.times(3, runs=5, holds=False).parameters == 0


@pytest.mark.parametrize(
    ("cost", "expected"),
    [
        # 3 rows of 4 through a 4 x 5 matrix and 5 biases: 3*4*5 multiply-adds, 15 sums.
        (ops.linear(3, 4, 5, BF16), Cost(120, 15, (12 + 25) * 2, 15 * 2, 25 * 2, parameters=25)),
        (ops.linear(3, 4, 5, FLOAT32, bias=False), Cost(120, 0, (12 + 20) * 4, 60, 80, parameters=20)),
        # 6 rows over 2 of 8 experts of 4 x 5: only the chosen weights are read.
        (
            ops.linear(6, 4, 5, BF16, bias=False, read=2, existing=8),
            Cost(240, 0, (24 + 40) * 2, 30 * 2, 40 * 2, parameters=160),
        ),
        # 2 images, 3 -> 4 channels, kernel 3, 8 x 8 -> 4 x 4: 32 points of 27 products for 4 channels.
        (
            ops.conv2d(2, 3, 4, 3, 8, 4, BF16, bias=True),
            Cost(2 * 32 * 27 * 4, 128, 2 * 3 * 64 * 2 + 224, 2 * 4 * 16 * 2, 224, parameters=112),
        ),
        # 2 heads of 4; 3 queries, 5 keys, all 15 pairs: two products of 2*15*8 FLOPs each; scale, subtract,
        # exponential, sum, divide a pair and head, and the bias.
        (ops.attention(2, 4, 3, 5, 15, BF16), Cost(480, 15 * 2 * 5, (24 + 2 * 40) * 2, 24 * 2)),
        (
            ops.attention(2, 4, 3, 5, 15, BF16, bias=True, cached=True),
            Cost(480, 15 * 2 * 6, (24 + 2 * 40 + 30) * 2, 24 * 2, kv_bytes=2 * 40 * 2),
        ),
        (
            ops.attention_products(2, 4, 3, 5, 15, BF16)[0],
            Cost(240, 0, (24 + 40) * 2, 30 * 2, kv_bytes=40 * 2),
        ),
        (
            ops.attention_products(2, 4, 3, 5, 15, BF16)[1],
            Cost(240, 0, (30 + 40) * 2, 24 * 2, kv_bytes=40 * 2),
        ),
        # 4 patches (2 x 2) against 2 key rows each: 8 pairs; 2 heads of 4; 4 offsets of 4 numbers.
        (ops.relative_scores(2, 4, 4, 8, 4, BF16), Cost(2 * 8 * 8, 0, (32 + 16) * 2, 16 * 2)),
        # 3 offsets of 4 numbers spread over a 2 x 2 square of (query, key).
        (ops.relative_table(3, 2, 4, BF16), Cost(0, 0, 24, 32, 24, parameters=12)),
        (ops.kv_write(3, 8, BF16), Cost(0, 0, 96, 96, kv_bytes=96)),
        # 2 pages of 3 positions, 2 heads of 4: 48 numbers, half of them negated.
        (ops.rotary(6, 3, 2, 4, BF16), moved(3 * 48 + 24, (48 + 2 * 12) * 2, 96)),
        (ops.layer_norm(3, 4, BF16), Cost(0, 8 * 12 + 4 * 3, (12 + 8) * 2, 24, 16, parameters=8)),
        (ops.rms_norm(3, 4, BF16), Cost(0, 4 * 12 + 3 * 3, (12 + 4) * 2, 24, 8, parameters=4)),
        (ops.elementwise("softmax", 12, FLOAT32), moved(48, 48, 48)),
        (ops.elementwise("gelu", 12, BF16), moved(60, 24, 24)),
        (ops.elementwise("quick_gelu", 12, BF16), moved(72, 24, 24)),
        (ops.elementwise("silu_mul", 12, BF16), moved(72, 48, 24)),
        (ops.add(12, BF16), moved(12, 48, 24)),
        (ops.add(12, BF16, repeated=4), moved(12, 32, 24)),
        (ops.outer_sum(12, 7, BF16), moved(12, 14, 24)),
        (ops.elementwise("scale", 12, BF16), moved(12, 24, 24)),
        (ops.elementwise("copy", 12, BF16), moved(0, 24, 24)),
        # 3 rows, 2 terms of 4 numbers: 2 products and a sum each; 6 weights in float32.
        (ops.weighted_sum(3, 2, 4, BF16), moved(36, 48 + 24, 24)),
        # 3 rows of 8 scores; 2 values and ids of each.
        (ops.topk(3, 8, 2), moved(0, 96, 6 * 12)),
        (ops.interpolate_linear(7, 5, 4), moved(60, 112, 80)),
        # 2 -> 4: 4 taps (7 FLOPs) along one axis for 2 x 4 points, then for 4 x 4; 3 channels.
        (ops.interpolate_bicubic(2, 4, 3), moved(24 * 3 * 7, 48, 192)),
        (ops.interpolate_bicubic(4, 2, 3), moved(12 * 3 * 15, 192, 48)),  # shrinks: 8 taps
        # 2 views of 9 tokens, 4 wide, on a table of 16 entries resized to 9.
        (ops.add_position_table(18, 9, 4, 16, BF16), Cost(0, 72, 144 + 72, 144, 72, parameters=64)),
        (ops.embedding(3, 100, 4, BF16), Cost(0, 0, 24 + 24, 24, 24, parameters=400)),  # rows, not the table
    ],
)
def test_an_operator_costs_what_paper_says(cost: Cost, expected: Cost) -> None:
    assert cost == expected
