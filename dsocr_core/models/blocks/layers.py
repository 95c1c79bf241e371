"""Layers shared by the towers and the decoder.

Letters: B batch, C channels, D head dim, H rows, W columns, N tokens, K keys.
The order of operations is the published one, so that under the same autocast the results are equal
to the last bit: do not fold a cast or reorder a sum here; that belongs into the fast engine.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class RmsNorm(nn.Module):
    """Root-mean-square norm in float32, cast back before the gain. (..., C) -> (..., C)"""

    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        wide = x.to(torch.float32)
        scale = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)  # (..., 1)
        return self.weight * (wide * scale).to(x.dtype)


class LayerNorm2d(nn.Module):
    """Layer norm over the channels of an image. (B, C, H, W) -> (B, C, H, W)"""

    def __init__(self, channels: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(channels))
        self.bias = nn.Parameter(torch.empty(channels))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        mean = x.mean(1, keepdim=True)  # (B, 1, H, W)
        variance = (x - mean).pow(2).mean(1, keepdim=True)  # (B, 1, H, W)
        x = (x - mean) / torch.sqrt(variance + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]


class SwiGlu(nn.Module):
    """Gated feed-forward without biases. (..., C) -> (..., C)"""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def resize_position_grid(table: Tensor, side: int) -> Tensor:
    """A learned position table (S, S, C) as (side, side, C), bicubic with antialiasing, in float32 inside."""
    if table.shape[0] == side:
        return table
    image = table.permute(2, 0, 1).unsqueeze(0).to(torch.float32)  # (1, C, S, S)
    image = F.interpolate(image, size=(side, side), mode="bicubic", antialias=True, align_corners=False)
    return image.to(table.dtype).squeeze(0).permute(1, 2, 0)  # (side, side, C)
