"""The second vision tower: a CLIP ViT whose patch embeddings are the first tower's output.

B images, P patches (one class token before them), C channels, N heads, D channels of a head.
"""

from math import isqrt
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LAYER_NORM_EPS = 1e-5


class ClipEncoder(nn.Module):
    def __init__(self, clip: dict[str, Any]) -> None:
        super().__init__()
        width = clip["width"]
        self.embeddings = ClipEmbeddings(width, clip["image_size"], clip["patch_size"])
        # Published under this spelling.
        self.pre_layrnorm = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.transformer = ClipTransformer(width, clip["heads"], clip["layers"])

    def forward(self, pixels: Tensor, features: Tensor) -> Tensor:
        """`features` (B, C, h, w) of the first tower; `pixels` are not looked at."""
        return self.transformer(self.pre_layrnorm(self.embeddings(features)))  # (B, 1 + P, C)


class ClipEmbeddings(nn.Module):
    def __init__(self, width: int, image_size: int, patch_size: int) -> None:
        super().__init__()
        positions = (image_size // patch_size) ** 2 + 1
        self.class_embedding = nn.Parameter(torch.zeros(width))
        # In every checkpoint, and without use: the first tower's features take its place.
        self.patch_embedding = nn.Conv2d(3, width, kernel_size=patch_size, stride=patch_size, bias=False)
        self.position_embedding = nn.Embedding(positions, width)

    def forward(self, features: Tensor) -> Tensor:
        patches = features.flatten(2).transpose(1, 2)  # (B, P, C)
        first = self.class_embedding.expand(patches.shape[0], 1, -1)
        tokens = torch.cat([first, patches], dim=1)
        return tokens + resize_positions(self.position_embedding.weight, patches.shape[1])


class ClipTransformer(nn.Module):
    def __init__(self, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ClipBlock(width, heads) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class ClipBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.self_attn = ClipAttention(width, heads)
        self.layer_norm2 = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.mlp = ClipMlp(width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class ClipAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv_proj = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        images, tokens, width = x.shape
        qkv = self.qkv_proj(x).view(images, tokens, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)  # (B, N, 1 + P, D)
        attended = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(attended.transpose(1, 2).reshape(images, tokens, width))


class ClipMlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(quick_gelu(self.fc1(x)))


# Scripted, as published: under autocast TorchScript computes it in float32, and fc2 rounds the result once.
@torch.jit.script
def quick_gelu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(1.702 * x)


def resize_positions(table: Tensor, patches: int) -> Tensor:
    """The learned positions (1 + G * G, C) as (1, 1 + patches, C); the class token keeps its own."""
    grid, side = isqrt(table.shape[0] - 1), isqrt(patches)
    if grid == side:
        return table.unsqueeze(0)
    square = table[1:].view(1, grid, grid, -1).permute(0, 3, 1, 2).float()
    resized = F.interpolate(square, size=(side, side), mode="bicubic", antialias=True, align_corners=False)
    resized = resized.to(table.dtype).permute(0, 2, 3, 1).reshape(side * side, -1)
    return torch.cat([table[:1], resized]).unsqueeze(0)
