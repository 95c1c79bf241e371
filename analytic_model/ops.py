"""Cost of each operator as a pure function of its shapes.

A FLOP is half a multiply-add, as torch's counter has it: a product of (m, k) and (k, n) costs 2 m k n.
Elsewhere an addition, multiplication, division, square root, exponential or error function is one FLOP;
comparisons, casts, indexing and moves are none. Bytes: every input is read once and every output is written
once, as if each operator were a kernel of its own. `size` is always bytes per element.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from operator import add as add_numbers
from typing import NamedTuple

INDEX_BYTES = 8
FLOAT32_BYTES = 4


class Cost(NamedTuple):
    """FLOPs and bytes of an operator, or of a sum of them.

    A tuple, not a dataclass, because a prediction makes hundreds and has to keep up with a slider.
    """

    flops: int = 0
    """FLOPs of products and convolutions, which torch's counter counts."""
    other_flops: int = 0
    """All other FLOPs: norms, softmax, activations, additions."""
    bytes_read: int = 0
    bytes_written: int = 0
    weight_bytes: int = 0
    """The part of `bytes_read` that is learned parameters."""
    kv_bytes: int = 0
    """The part of `bytes_read` and `bytes_written` that is the KV cache."""
    parameters: int = 0
    """Learned parameters that the operator holds, whether it reads them all or not."""

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written

    @property
    def activation_bytes(self) -> int:
        """Bytes read and written that are neither weights nor KV cache."""
        return self.bytes_read + self.bytes_written - self.weight_bytes - self.kv_bytes

    def __add__(self, other: Cost) -> Cost:  # type: ignore[override]
        return Cost(*map(add_numbers, self, other))

    def times(self, copies: int, runs: int = 1, holds: bool = True) -> Cost:
        """Cost of `copies`, each run `runs` times. Later runs read the weights again.

        Without `holds` the parameters are not counted: they belong to another operator.
        """
        *moved, parameters = self
        held = parameters * copies if holds else 0
        return Cost._make([*(value * copies * runs for value in moved), held])


def over_growing_context(cost_at: Callable[[int], Cost], first: int, steps: int) -> Cost:
    """Sum of `cost_at(first)` .. `cost_at(first + steps - 1)` for a cost that is affine in the context.

    Summed as an arithmetic series: exact, in integers, without a loop over steps.
    """
    if steps == 1:
        return cost_at(first)
    *moved, parameters = cost_at(first) + cost_at(first + steps - 1)
    return Cost._make([*(value * steps // 2 for value in moved), parameters // 2])


# --- products -------------------------------------------------------------------------------------------


def linear(
    rows: int, inputs: int, outputs: int, size: int, bias: bool = True, read: int = 1, existing: int = 1
) -> Cost:
    """(rows, inputs) -> (rows, outputs). Of `existing` experts of one shape `read` get a row."""
    each = inputs * outputs + (outputs if bias else 0)
    weights = each * read * size
    return Cost(
        flops=2 * rows * inputs * outputs,
        other_flops=rows * outputs if bias else 0,
        bytes_read=rows * inputs * size + weights,
        bytes_written=rows * outputs * size,
        weight_bytes=weights,
        parameters=each * existing,
    )


def conv2d(
    images: int,
    channels_in: int,
    channels_out: int,
    kernel: int,
    side_in: int,
    side_out: int,
    size: int,
    bias: bool = False,
) -> Cost:
    """(images, channels_in, side_in, side_in) -> (images, channels_out, side_out, side_out)

    The whole kernel counts at every output point, also where it lies on the padding.
    """
    points = images * side_out * side_out
    weights = channels_in * channels_out * kernel * kernel + (channels_out if bias else 0)
    return Cost(
        flops=2 * points * channels_out * channels_in * kernel * kernel,
        other_flops=points * channels_out if bias else 0,
        bytes_read=images * channels_in * side_in * side_in * size + weights * size,
        bytes_written=points * channels_out * size,
        weight_bytes=weights * size,
        parameters=weights,
    )


# --- attention: tokens and (query, key) pairs are totals over everything that is done side by side ----------


def attention(
    heads: int,
    head_dim: int,
    queries: int,
    keys: int,
    pairs: int,
    size: int,
    bias: bool = False,
    cached: bool = False,
) -> Cost:
    """Fused attention: (queries, heads, D) over (keys, heads, D) -> (queries, heads, D).

    `pairs` says how many (query, key) pairs count, each scaled and in a softmax; `bias` reads and adds one
    number a pair and head; `cached` means that keys and values come from the KV cache.
    """
    width = heads * head_dim
    keys_values = 2 * keys * width * size
    return Cost(
        flops=4 * pairs * width,
        other_flops=pairs * heads * (5 + (1 if bias else 0)),
        bytes_read=queries * width * size + keys_values + (pairs * heads * size if bias else 0),
        bytes_written=queries * width * size,
        kv_bytes=keys_values if cached else 0,
    )


def attention_products(
    heads: int, head_dim: int, queries: int, keys: int, pairs: int, size: int
) -> tuple[Cost, Cost]:
    """Unfused attention's products over the KV cache: (queries, heads, D) with (keys, heads, D) -> (heads,
    pairs), and that with values -> (queries, heads, D)."""
    width = heads * head_dim
    rows, cached, weights = queries * width * size, keys * width * size, pairs * heads * size
    product = Cost(flops=2 * pairs * width, kv_bytes=cached)
    return (
        product._replace(bytes_read=rows + cached, bytes_written=weights),
        product._replace(bytes_read=weights + cached, bytes_written=rows),
    )


def relative_scores(heads: int, head_dim: int, queries: int, pairs: int, offsets: int, size: int) -> Cost:
    """Bias of each query to each key row (or column) from `offsets` embeddings: -> (heads, pairs)

    The embeddings are gathered from the learned table before: an activation here.
    """
    width = heads * head_dim
    return Cost(
        flops=2 * pairs * width,
        bytes_read=queries * width * size + offsets * head_dim * size,
        bytes_written=pairs * heads * size,
    )


def kv_write(tokens: int, width: int, size: int) -> Cost:
    """Write keys and values of new tokens into the cache."""
    moved = 2 * tokens * width * size
    return Cost(bytes_read=moved, bytes_written=moved, kv_bytes=moved)


def rotary(tokens: int, positions: int, heads: int, head_dim: int, size: int) -> Cost:
    """Rotate (tokens, heads, D) by cosines and sines of `positions`: x cos + (half of it negated) sin."""
    elements = tokens * heads * head_dim
    return Cost(
        other_flops=3 * elements + elements // 2,
        bytes_read=elements * size + 2 * positions * head_dim * size,
        bytes_written=elements * size,
    )


# --- norms, activations, sums -----------------------------------------------------------------------------


def layer_norm(rows: int, width: int, size: int) -> Cost:
    """Per element: mean 1, variance 3, normalise 2, gain and bias 2; per row: two divisions, eps, root."""
    elements = rows * width
    weights = 2 * width
    return Cost(
        other_flops=8 * elements + 4 * rows,
        bytes_read=(elements + weights) * size,
        bytes_written=elements * size,
        weight_bytes=weights * size,
        parameters=weights,
    )


def rms_norm(rows: int, width: int, size: int) -> Cost:
    """Per element: square, sum, scale, gain; per row: division, eps, root."""
    elements = rows * width
    return Cost(
        other_flops=4 * elements + 3 * rows,
        bytes_read=(elements + width) * size,
        bytes_written=elements * size,
        weight_bytes=width * size,
        parameters=width,
    )


ELEMENTWISE: dict[str, tuple[int, int]] = {
    "copy": (0, 1),
    "scale": (1, 1),
    "softmax": (4, 1),  # subtract the maximum, exponential, sum, divide
    "gelu": (5, 1),  # the exact one: x / sqrt 2, error function, add one, times x, halved
    "quick_gelu": (6, 1),  # x * sigmoid(1.702 x): negate, exponential, add one, divide
    "silu_mul": (6, 2),  # silu(gate) * up
}
"""By name: FLOPs per element, and number of tensors read."""


def elementwise(operator: str, elements: int, size: int) -> Cost:
    flops, inputs = ELEMENTWISE[operator]
    return Cost(
        other_flops=flops * elements, bytes_read=inputs * elements * size, bytes_written=elements * size
    )


def add(elements: int, size: int, repeated: int | None = None) -> Cost:
    """Sum of two tensors; the second has only `repeated` elements, broadcast, when that is given."""
    second = elements if repeated is None else repeated
    return Cost(other_flops=elements, bytes_read=(elements + second) * size, bytes_written=elements * size)


def outer_sum(elements: int, terms: int, size: int) -> Cost:
    """Sum of a row's and a column's term for every pair: `terms` of both are read, `elements` written."""
    return Cost(other_flops=elements, bytes_read=terms * size, bytes_written=elements * size)


def add_position_table(rows: int, positions: int, width: int, existing: int, size: int) -> Cost:
    """Sum of (rows, width) and a learned table of which `positions` are read and `existing` exist."""
    elements, table = rows * width, positions * width * size
    return Cost(
        other_flops=elements,
        bytes_read=elements * size + table,
        bytes_written=elements * size,
        weight_bytes=table,
        parameters=existing * width,
    )


def weighted_sum(rows: int, terms: int, width: int, size: int) -> Cost:
    """(rows, terms, width) with (rows, terms) float32 weights -> (rows, width)"""
    return Cost(
        other_flops=rows * width * (2 * terms - 1),
        bytes_read=rows * terms * (width * size + FLOAT32_BYTES),
        bytes_written=rows * width * size,
    )


# --- tables, moves ------------------------------------------------------------------------------------------


def embedding(rows: int, entries: int, width: int, size: int) -> Cost:
    """Rows of a learned table by their ids: reads those rows, not the table."""
    moved = rows * width * size
    return Cost(
        bytes_read=moved + rows * INDEX_BYTES,
        bytes_written=moved,
        weight_bytes=moved,
        parameters=entries * width,
    )


def relative_table(existing: int, side: int, head_dim: int, size: int) -> Cost:
    """A learned table of `existing` offsets spread out to every (query, key) offset along one axis."""
    table = existing * head_dim * size
    return Cost(
        bytes_read=table,
        bytes_written=side * side * head_dim * size,
        weight_bytes=table,
        parameters=existing * head_dim,
    )


def topk(rows: int, width: int, k: int) -> Cost:
    """Best k of a row: comparisons only; float32 values and ids are written."""
    return Cost(
        bytes_read=rows * width * FLOAT32_BYTES, bytes_written=rows * k * (FLOAT32_BYTES + INDEX_BYTES)
    )


def interpolate_linear(length_in: int, length_out: int, channels: int) -> Cost:
    """Interpolate along one axis, in float32: two products and a sum per point."""
    return Cost(
        other_flops=3 * length_out * channels,
        bytes_read=length_in * channels * FLOAT32_BYTES,
        bytes_written=length_out * channels * FLOAT32_BYTES,
    )


def interpolate_bicubic(side_in: int, side_out: int, channels: int) -> Cost:
    """Interpolate with antialiasing, one axis after the other, in float32: 4 taps a point, more to shrink."""
    taps = ceil(4 * max(1.0, side_in / side_out))
    points = side_in * side_out + side_out * side_out
    return Cost(
        other_flops=points * channels * (2 * taps - 1),
        bytes_read=side_in * side_in * channels * FLOAT32_BYTES,
        bytes_written=side_out * side_out * channels * FLOAT32_BYTES,
    )
