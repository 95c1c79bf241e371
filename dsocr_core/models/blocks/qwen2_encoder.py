"""A Qwen2 decoder as the second encoder: it reads a view's features and answers with learned queries.

Letters: B views, T features of a view and as many queries, N = 2T positions, h heads, k key-value heads,
D head dim, C width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsocr_core.models.blocks.attention import rotated
from dsocr_core.models.blocks.layers import RmsNorm, SwiGlu
from dsocr_core.models.config import Qwen2Config


class Qwen2Encoder(nn.Module):
    """(B, C, G, G) features -> (B, G*G, C), the queries' half of the last layer's output."""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.config = config
        self.layers = nn.ModuleList(Qwen2Layer(config) for _ in range(config.layers))
        self.norm = RmsNorm(config.width, config.rms_norm_eps)
        self.query_768 = nn.Embedding(config.queries[0], config.width)
        self.query_1024 = nn.Embedding(config.queries[1], config.width)
        self.causal = False
        """True reproduces a fault of other engines: a feature does not see later ones."""

    def forward(self, features: Tensor) -> Tensor:
        x = features.flatten(2).transpose(1, 2)  # (B, T, C)
        count = x.shape[1]
        x = torch.cat([x, self.queries_for(count).expand(x.shape[0], -1, -1)], dim=1)  # (B, N, C)
        cos, sin = (part[None, None].to(x.dtype) for part in self.rotary_tables(x.shape[1]))  # (1, 1, N, D)
        mask = _mask(x.shape[0], count, x, self.causal)
        for layer in self.layers:
            x = layer(x, (cos, sin), mask)
        return self.norm(x)[:, count:]

    def queries_for(self, count: int) -> Tensor:
        """Learned queries for a view with that many features, (T, C). Raises KeyError for other sizes."""
        return {each.num_embeddings: each.weight for each in (self.query_768, self.query_1024)}[count]

    def rotary_tables(self, positions: int) -> tuple[Tensor, Tensor]:
        """Cosines and sines, (N, D) float32, of frequencies rounded to the weights' dtype, as published."""
        dim, device = self.config.head_dim, self.norm.weight.device
        steps = torch.arange(0, dim, 2, dtype=torch.int64, device=device).float()
        frequencies = (1.0 / self.config.rope_theta ** (steps / dim)).to(self.norm.weight.dtype).float()
        angles = torch.arange(positions, device=device).float()[:, None] * frequencies[None]  # (N, D/2)
        angles = torch.cat([angles, angles], dim=-1)  # (N, D)
        return angles.cos(), angles.sin()


def _mask(views: int, count: int, like: Tensor, causal: bool = False) -> Tensor:
    """Mask (B, 1, N, N): features see all features, a query sees these and the queries up to itself."""
    hidden = torch.ones(2 * count, 2 * count, dtype=torch.bool, device=like.device).triu(1)
    hidden[:count, :count] &= causal
    lowest = torch.finfo(like.dtype).min
    mask = torch.zeros(hidden.shape, dtype=like.dtype, device=like.device).masked_fill(hidden, lowest)
    return mask.expand(views, 1, -1, -1)


class Qwen2Layer(nn.Module):
    """(B, N, C) -> (B, N, C)"""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.self_attn = Qwen2Attention(config)
        self.mlp = SwiGlu(config.width, config.mlp_width)
        self.input_layernorm = RmsNorm(config.width, config.rms_norm_eps)
        self.post_attention_layernorm = RmsNorm(config.width, config.rms_norm_eps)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotary, mask)
        return x + self.mlp(self.post_attention_layernorm(x))


class Qwen2Attention(nn.Module):
    """Attention with fewer key heads than query heads: torch's fused attention, keys repeated."""

    def __init__(self, config: Qwen2Config) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = config.heads, config.kv_heads, config.head_dim
        narrow = config.kv_heads * config.head_dim
        self.q_proj = nn.Linear(config.width, config.width)
        self.k_proj = nn.Linear(config.width, narrow)
        self.v_proj = nn.Linear(config.width, narrow)
        self.o_proj = nn.Linear(config.width, config.width, bias=False)

    def forward(self, x: Tensor, rotary: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
        b, n, width = x.shape
        q, k, v = (
            proj(x).view(b, n, -1, self.head_dim).transpose(1, 2)  # (B, h or k, N, D)
            for proj in (self.q_proj, self.k_proj, self.v_proj)
        )
        q, k = rotated(q, *rotary), rotated(k, *rotary)
        k, v = (part.repeat_interleave(self.heads // self.kv_heads, dim=1) for part in (k, v))
        if x.device.type == "cuda":  # the published call: other strides may choose another kernel
            q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)  # (B, h, N, D)
        return self.o_proj(y.transpose(1, 2).reshape(b, n, width))
