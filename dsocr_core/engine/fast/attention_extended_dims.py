"""Window attention through torch: the position bias as extra dimensions of queries and keys.

    [q / sqrt(D), row terms, column terms] . [k, one-hot row, one-hot column] = q.k / sqrt(D) + bias

The bias is not materialised. The price is D + 2 S dimensions instead of D in the scores, and in the values,
since torch's flash attention wants one head dim. A baseline for the kernel: `measure prefill`.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dsocr_core.kernels.prefill.window_attention import from_windows, to_windows

ALIGNMENT = 8
"""Torch's flash attention takes head dims that are a multiple of this."""


def extended_attention(qkv: Tensor, bias: Tensor, terms: Tensor, grid_side: int, window: int) -> Tensor:
    """(B N, C): as `window_attention_reference`, with its arguments."""
    tokens, _, heads, head_dim = qkv.shape
    n, device = window**2, qkv.device
    parts = to_windows(qkv.reshape(tokens, -1), bias, grid_side, window).view(-1, n, 3, heads, head_dim)
    held = to_windows(terms.transpose(0, 1).reshape(tokens, -1), terms.new_zeros(1), grid_side, window)
    held = held.view(-1, n, heads, 4 * window)
    q, k, v = parts.unbind(2)  # (windows, S S, h, D)
    side, at = torch.arange(window, device=device), torch.arange(n, device=device)
    row, column = at // window, at % window
    to_row = (window - 1 + row[:, None] - side[None, :])[None, :, None].expand(*held.shape[:3], -1)
    to_column = (3 * window - 2 + column[:, None] - side[None, :])[None, :, None].expand(*held.shape[:3], -1)
    queries = torch.cat([q * head_dim**-0.5, held.gather(3, to_row), held.gather(3, to_column)], dim=-1)
    one_hot = torch.cat([row[:, None] == side, column[:, None] == side], dim=-1).to(k.dtype)  # (S S, 2 S)
    keys = torch.cat([k, one_hot[None, :, None].expand(k.shape[0], -1, heads, -1)], dim=-1)
    width = -(-keys.shape[-1] // ALIGNMENT) * ALIGNMENT
    queries, keys, values = (
        F.pad(x, (0, width - x.shape[-1])).transpose(1, 2) for x in (queries, keys, v)
    )  # (windows, h, S S, width)
    mixed = F.scaled_dot_product_attention(queries, keys, values, scale=1.0)[..., :head_dim]
    return from_windows(mixed.transpose(1, 2).reshape(-1, n, heads * head_dim), grid_side, window)
