"""Training form of the decoder, under the published weight names; experts are stacked.

Letters: B sequences, T positions, C hidden size, H heads, D head width, E experts, I expert width.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

ROTARY_BASE = 10000.0
RMS_EPS = 1e-6
# Not cuDNN's, the default on Hopper: it plans anew for every length, 13 ms of the host's time a call.
ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


@dataclass(frozen=True)
class DecoderSize:
    hidden: int
    layers: int
    heads: int
    dense_width: int
    expert_width: int
    experts: int
    experts_per_token: int
    shared_experts: int
    first_dense: int
    vocabulary: int


@dataclass
class LayerCache:
    """Keys and values so far, each (B, H, T, D); None before the first step."""

    keys: Tensor | None = None
    values: Tensor | None = None

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.keys = k if self.keys is None else torch.cat([self.keys, k], 2)
        self.values = v if self.values is None else torch.cat([self.values, v], 2)
        return self.keys, self.values


def rotary_frequencies(head_width: int, rounded: bool) -> Tensor:
    """(D / 2,) inverse frequencies; `rounded` to bf16 as the published loading leaves them."""
    exponents = torch.arange(0, head_width, 2, dtype=torch.float32) / head_width
    frequencies = 1.0 / ROTARY_BASE**exponents
    return frequencies.bfloat16().float() if rounded else frequencies


def rotary_table(frequencies: Tensor, start: int, length: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines (T, D) of positions start .. start + length - 1."""
    positions = torch.arange(start, start + length, device=frequencies.device, dtype=torch.float32)
    angles = positions[:, None] * frequencies[None]
    angles = torch.cat([angles, angles], -1)
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    low, high = x.chunk(2, -1)
    return x * cosines.to(x.dtype) + torch.cat([-high, low], -1) * sines.to(x.dtype)


class RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + RMS_EPS)
        return (self.weight * y.to(x.dtype)).to(x.dtype)


class Attention(nn.Module):
    def __init__(self, size: DecoderSize) -> None:
        super().__init__()
        self.heads = size.heads
        self.q_proj = nn.Linear(size.hidden, size.hidden, bias=False)
        self.k_proj = nn.Linear(size.hidden, size.hidden, bias=False)
        self.v_proj = nn.Linear(size.hidden, size.hidden, bias=False)
        self.o_proj = nn.Linear(size.hidden, size.hidden, bias=False)

    def forward(self, x: Tensor, cosines: Tensor, sines: Tensor, cache: LayerCache | None) -> Tensor:
        batch, length, hidden = x.shape
        shape = (batch, length, self.heads, hidden // self.heads)
        q = rotate(self.q_proj(x).view(shape).transpose(1, 2), cosines, sines)  # (B, H, T, D)
        k = rotate(self.k_proj(x).view(shape).transpose(1, 2), cosines, sines)
        v = self.v_proj(x).view(shape).transpose(1, 2)
        if cache is not None:
            k, v = cache.append(k, v)
        # Without a cache the answer stands before the length is known, which compilation leaves open.
        with sdpa_kernel(ATTENTION):
            out = F.scaled_dot_product_attention(q, k, v, is_causal=cache is None or length > 1)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, hidden))


class SwiGlu(nn.Module):
    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(hidden, width, bias=False)
        self.up_proj = nn.Linear(hidden, width, bias=False)
        self.down_proj = nn.Linear(width, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Gate(nn.Module):
    def __init__(self, size: DecoderSize) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(size.experts, size.hidden) * size.hidden**-0.5)


class Experts(nn.Module):
    """All experts' matrices, stacked along the first dimension."""

    def __init__(self, size: DecoderSize) -> None:
        super().__init__()
        e, i, c = size.experts, size.expert_width, size.hidden
        self.gate_proj = nn.Parameter(torch.empty(e, i, c).uniform_(-1, 1) * c**-0.5)
        self.up_proj = nn.Parameter(torch.empty(e, i, c).uniform_(-1, 1) * c**-0.5)
        self.down_proj = nn.Parameter(torch.empty(e, c, i).uniform_(-1, 1) * i**-0.5)


class Mixture(nn.Module):
    """Softmax gate, greedy top-k, weights not renormalised; two shared experts as one network.

    Every token passes every expert and the weights of those not chosen are zero: at this size one large
    matrix product beats routing.
    """

    def __init__(self, size: DecoderSize) -> None:
        super().__init__()
        self.chosen = size.experts_per_token
        self.gate = Gate(size)
        self.experts = Experts(size)
        self.shared_experts = SwiGlu(size.hidden, size.shared_experts * size.expert_width)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """(B, T, C) to (B, T, C) and the scalar balance loss, 1 when experts share the load evenly."""
        scores = F.linear(x, self.gate.weight).float().softmax(-1)  # (B, T, E)
        top, index = scores.topk(self.chosen, -1)
        weights = torch.zeros_like(scores).scatter(-1, index, top)
        load = (weights > 0).float().mean((0, 1))
        balance = (scores.mean((0, 1)) * load).sum() * scores.shape[-1] / self.chosen
        e = self.experts
        gated = F.silu(F.linear(x, e.gate_proj.flatten(0, 1))) * F.linear(x, e.up_proj.flatten(0, 1))
        gated = gated.unflatten(-1, e.gate_proj.shape[:2])  # (B, T, E, I)
        gated = gated * weights.to(gated.dtype)[..., None]
        routed = F.linear(gated.flatten(2), e.down_proj.permute(1, 0, 2).flatten(1))
        return routed + self.shared_experts(x), balance


class DecoderLayer(nn.Module):
    def __init__(self, size: DecoderSize, dense: bool) -> None:
        super().__init__()
        self.dense = dense
        self.input_layernorm = RmsNorm(size.hidden)
        self.self_attn = Attention(size)
        self.post_attention_layernorm = RmsNorm(size.hidden)
        self.mlp = SwiGlu(size.hidden, size.dense_width) if dense else Mixture(size)

    def forward(
        self, x: Tensor, cosines: Tensor, sines: Tensor, cache: LayerCache | None = None
    ) -> tuple[Tensor, Tensor]:
        """(B, T, C) to (B, T, C) and the balance loss (0 for a dense layer)."""
        x = x + self.self_attn(self.input_layernorm(x), cosines, sines, cache)
        y = self.post_attention_layernorm(x)
        if self.dense:
            return x + self.mlp(y), x.new_zeros((), dtype=torch.float32)
        out, balance = self.mlp(y)
        return x + out, balance
