"""CLIP tower: a plain ViT over SAM's feature map. It never sees pixels."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsocr_core.models.blocks.layers import resize_position_grid
from dsocr_core.models.config import ClipConfig


class Clip(nn.Module):
    """(B, C, G, G) SAM features -> (B, 1 + G*G, C), class token first; no final norm."""

    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.embeddings = ClipEmbeddings(config)
        self.pre_layrnorm = nn.LayerNorm(config.width, eps=config.layer_norm_eps)  # the published spelling
        blocks = (ClipBlock(config) for _ in range(config.layers))
        self.transformer = nn.ModuleDict({"layers": nn.Sequential(*blocks)})  # for the published names

    def forward(self, features: Tensor) -> Tensor:
        x = self.pre_layrnorm(self.embeddings(features))
        return self.transformer["layers"](x)


class ClipEmbeddings(nn.Module):
    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.class_embedding = nn.Parameter(torch.empty(config.width))
        # In the published checkpoint but never run: SAM's features take its place.
        self.patch_embedding = nn.Conv2d(
            3, config.width, kernel_size=config.patch_size, stride=config.patch_size, bias=False
        )
        self.position_embedding = nn.Embedding(config.positions, config.width)

    def forward(self, features: Tensor) -> Tensor:
        b, side = features.shape[0], features.shape[2]
        patches = features.flatten(2).transpose(1, 2)  # (B, N, C)
        class_token = self.class_embedding.expand(b, 1, -1)  # (B, 1, C)
        return torch.cat([class_token, patches], dim=1) + self.positions(side)

    def positions(self, side: int) -> Tensor:
        """Position table for a grid of `side`: (1, 1 + side*side, C)"""
        table = self.position_embedding.weight
        own = int((table.shape[0] - 1) ** 0.5)
        grid = resize_position_grid(table[1:].view(own, own, -1), side)
        return torch.cat([table[:1], grid.reshape(side * side, -1)]).unsqueeze(0)


class ClipBlock(nn.Module):
    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(config.width, eps=config.layer_norm_eps)
        self.self_attn = ClipAttention(config)
        self.layer_norm2 = nn.LayerNorm(config.width, eps=config.layer_norm_eps)
        self.mlp = ClipMlp(config)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp(self.layer_norm2(x))


class ClipAttention(nn.Module):
    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv_proj = nn.Linear(config.width, 3 * config.width)
        self.out_proj = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        b, n, width = x.shape
        qkv = self.qkv_proj(x).view(b, n, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # 3 x (B, h, N, D)
        y = F.scaled_dot_product_attention(q, k, v)  # (B, h, N, D)
        return self.out_proj(y.transpose(1, 2).reshape(b, n, width))


class ClipMlp(nn.Module):
    def __init__(self, config: ClipConfig) -> None:
        super().__init__()
        self.fc1 = nn.Linear(config.width, config.mlp_width)
        self.fc2 = nn.Linear(config.mlp_width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc1(x)
        return self.fc2(quick_gelu(y).to(y.dtype))


def quick_gelu(x: Tensor) -> Tensor:
    """x * sigmoid(1.702 x) in float32, of any shape, as the published TorchScript does under autocast.

    Rounded to bf16 after each operation, two elements in five would differ.
    """
    wide = x.float()
    return wide * torch.sigmoid(1.702 * wide)
