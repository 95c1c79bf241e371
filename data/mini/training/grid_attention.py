"""Attention over a square grid of patches with a decomposed relative position bias, with gradients.

Letters: B views, H heads, S patches of a grid side, N = S * S patches, D head width.

`grid_attention` runs Triton kernels of its own, `plain_grid_attention` torch's attention.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

HEAD_WIDTHS = (16, 32, 64)  # what the kernels take
HEAD_WIDTH_MULTIPLE = 8  # what flash attention asks of the head width

Attention = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]


def plain_grid_attention(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """What `grid_attention` is, (B, H, N, D), by `scaled_dot_product_attention`.

    Instead of a (N, N) mask the bias rides along as extra head channels against one-hot keys, so that flash
    attention can be used.
    """
    views, heads, n, width = q.shape
    side = rows.shape[-1]
    one_hot = torch.eye(side, dtype=q.dtype, device=q.device)
    key_rows = one_hot.repeat_interleave(side, 0).expand(views, heads, n, side)
    key_columns = one_hot.repeat(side, 1).expand(views, heads, n, side)
    pad = -(width + 2 * side) % HEAD_WIDTH_MULTIPLE
    zeros = q.new_zeros(()).expand(views, heads, n, pad)
    query = torch.cat([q * width**-0.5, rows, columns, zeros], -1)
    key = torch.cat([k, key_rows, key_columns, zeros], -1)
    value = F.pad(v, (0, 2 * side + pad))
    return F.scaled_dot_product_attention(query, key, value, scale=1.0)[..., :width]


def grid_attention(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """softmax(q k^T / sqrt(D) + bias) v, (B, H, N, D), by Triton kernels, differentiable in all five.

    q, k, v are (B, H, N, D); rows and columns (B, H, N, S), finite: the bias of query n is rows[..., n, y]
    for every key of grid row y, plus columns[..., n, x] for every key of column x. Weights and sums are
    float32. Raises ValueError when sizes or dtypes do not fit each other or the kernels.
    """
    views, heads, tokens, width = q.shape
    side = rows.shape[-1]
    if width not in HEAD_WIDTHS:
        raise ValueError(f"head width {width}: the kernels take {HEAD_WIDTHS}")
    if q.dtype not in (torch.bfloat16, torch.float32):
        raise ValueError(f"{q.dtype}: the kernels take bfloat16 and float32")
    named = {"k": (k, width), "v": (v, width), "rows": (rows, side), "columns": (columns, side)}
    for name, (tensor, last) in named.items():
        if tensor.shape != (views, heads, side * side, last) or tensor.dtype != q.dtype:
            raise ValueError(
                f"{name} is {tensor.dtype} {list(tensor.shape)}, "
                f"expected {q.dtype} {[views, heads, tokens, last]} for {side} x {side} patches"
            )
    out, _ = _grid_attention(q, k, v, rows, columns)
    return out


def _by_token(x: Tensor) -> Tensor:
    """Room for (B, H, N, D) that lies in memory as (B, N, H, D), so that joining the heads copies nothing."""
    views, heads, n, width = x.shape
    return x.new_empty(views, n, heads, width).transpose(1, 2)


def _outputs(q: Tensor) -> tuple[Tensor, Tensor]:
    return _by_token(q), q.new_empty(q.shape[:3], dtype=torch.float32)


def _gradients(q: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _by_token(q), _by_token(q), _by_token(q), rows.new_empty(rows.shape), rows.new_empty(rows.shape)


@torch.library.custom_op("dsocr_mini::grid_attention", mutates_args=())
def _grid_attention(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    """The output and, for the way back, the base 2 logarithm of each query's sum of weights."""
    from data.mini.training.grid_kernels import run_forward

    out, lse = _outputs(q)
    run_forward(q, k, v, rows, columns, out, lse)
    return out, lse


@torch.library.custom_op("dsocr_mini::grid_attention_backward", mutates_args=())
def _grid_attention_backward(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor, d_out: Tensor, lse: Tensor, delta: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of the five; `delta` is what the output and its gradient have in common, (B, H, N)."""
    from data.mini.training.grid_kernels import run_backward

    gradients = _gradients(q, rows)
    run_backward(q, k, v, rows, columns, d_out, lse, delta, *gradients)
    return gradients


@_grid_attention.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
    return _outputs(q)


@_grid_attention_backward.register_fake
def _(
    q: Tensor, k: Tensor, v: Tensor, rows: Tensor, columns: Tensor, d_out: Tensor, lse: Tensor, delta: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    return _gradients(q, rows)


def _keep(ctx, inputs, output) -> None:
    ctx.save_for_backward(*inputs, *output)


def _backward(ctx, d_out: Tensor, d_lse: Tensor) -> tuple[Tensor, ...]:
    q, k, v, rows, columns, out, lse = ctx.saved_tensors
    delta = (out.float() * d_out.float()).sum(-1)  # outside the operator, where the compiler fuses it
    return _grid_attention_backward(q, k, v, rows, columns, d_out, lse, delta)


_grid_attention.register_autograd(_backward, setup_context=_keep)
