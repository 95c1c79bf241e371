"""Decoder attention: rotary positions, the static cache, and three interchangeable cores.

Letters: B batch, N new tokens, P all positions so far, h heads, D head dim, C hidden size.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.util import find_spec

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsocr_core.base.errors import DsocrError
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.config import DecoderConfig

AttentionCore = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Function of (q, k, v), each (B, h, N or P, D) with queries for the last N positions, to (B, h, N, D)"""


def sdpa_core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """torch's fused attention, causal. A single new token sees every position."""
    # Prefill starts at position 0, so a square causal mask is right whenever N > 1.
    return F.scaled_dot_product_attention(q, k, v, is_causal=q.shape[2] > 1)


def eager_core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attention in the published `eager` order: scores, mask, float32 softmax, sum."""
    new, total = q.shape[2], k.shape[2]
    scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(q.shape[-1])  # (B, h, N, P)
    if new > 1:
        lowest = torch.full((new, total), torch.finfo(q.dtype).min, dtype=q.dtype, device=q.device)
        scores = scores + lowest.triu_(total - new + 1)  # (N, P), zeros where a query sees
        del lowest
    # As softmax does it, but in place: for a prompt of 40 pages that saves 2.4 GB.
    scores = scores.to(torch.float32)
    weights = F.softmax(scores, dim=-1)
    del scores
    weights = weights.to(q.dtype)  # (B, h, N, P)
    return torch.matmul(weights, v)


def flash_core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """FlashAttention-2 from the flash-attn package; bf16 or fp16 on a GPU."""
    from flash_attn import flash_attn_func

    q, k, v = (x.transpose(1, 2) for x in (q, k, v))  # (B, N or P, h, D)
    out: Tensor = flash_attn_func(q, k, v, causal=True)
    return out.transpose(1, 2)


_CORES: dict[str, AttentionCore] = {"sdpa": sdpa_core, "eager": eager_core, "flash_attention_2": flash_core}


def attention_core(name: str, device: torch.device, dtype: torch.dtype) -> AttentionCore:
    """Attention core of that name. Raises DsocrError, with what to install where a package is missing."""
    if name not in _CORES:
        raise DsocrError(f"unknown attention '{name}': choose one of {', '.join(_CORES)}")
    if name == "flash_attention_2" and (device.type != "cuda" or dtype == torch.float32):
        where = f"{device} in {str(dtype).removeprefix('torch.')}"
        raise DsocrError(f"{name} needs a CUDA device and bfloat16, not {where}: give --attention sdpa")
    if name == "flash_attention_2" and find_spec("flash_attn") is None:
        install = "pip install --no-build-isolation -r requirements-gpu.txt"
        raise DsocrError(f"{name} needs the package flash-attn: {install}, or give --attention sdpa")
    return _CORES[name]


class Rotary:
    """Cosines and sines of every position, (P, D), in the activations' dtype.

    `frequency_dtype` is what the inverse frequencies are rounded to: published loading casts them to bf16.
    """

    def __init__(
        self,
        config: DecoderConfig,
        positions: int,
        frequency_dtype: torch.dtype,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        # On the host, as in the published loading: a GPU's power function has other last bits.
        steps = torch.arange(0, config.head_dim, 2, dtype=torch.int64, device="cpu").float()
        frequencies = 1.0 / (config.rope_theta ** (steps / config.head_dim))  # (D/2,)
        frequencies = frequencies.to(frequency_dtype).to(device, torch.float32)
        angles = torch.arange(positions, device=device).float()[:, None] * frequencies[None]  # (P, D/2)
        angles = torch.cat([angles, angles], dim=-1)  # (P, D)
        self.cos, self.sin = angles.cos().to(dtype), angles.sin().to(dtype)

    def rotate(self, x: Tensor, start: int) -> Tensor:
        """Rotate (B, h, N, D) by its positions start..start+N, pairing the two halves of D."""
        end = start + x.shape[2]
        if end > self.cos.shape[0]:
            raise IndexError(f"rotary table of {self.cos.shape[0]} positions lacks position {end}")
        return rotated(x, self.cos[start:end], self.sin[start:end])


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate (..., D) by the angles of its positions, pairing the two halves of D."""
    first, second = x.chunk(2, dim=-1)
    return (x * cos) + (torch.cat([-second, first], dim=-1) * sin)


class DecoderAttention(nn.Module):
    """Multi-head attention without biases. (B, N, C) -> (B, N, C)"""

    def __init__(self, config: DecoderConfig, layer: int) -> None:
        super().__init__()
        self.layer, self.heads, self.head_dim = layer, config.heads, config.head_dim
        width = config.heads * config.head_dim
        self.q_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.k_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.v_proj = nn.Linear(config.hidden_size, width, bias=False)
        self.o_proj = nn.Linear(width, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cache: KvCache, rotary: Rotary, core: AttentionCore) -> Tensor:
        b, n, _ = x.shape
        q, k, v = (
            proj(x).view(b, n, self.heads, self.head_dim).transpose(1, 2)  # (B, h, N, D)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotary.rotate(q, cache.length), rotary.rotate(k, cache.length)
        keys, values = cache.write(self.layer, k, v)  # (B, h, P, D)
        y = core(q, keys, values)  # (B, h, N, D)
        return self.o_proj(y.transpose(1, 2).reshape(b, n, -1))
