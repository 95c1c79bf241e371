"""Training form of the two vision towers, under the published weight names.

Letters: B images, H heads, D head width, C channels, P pixels of a side, S = P / 16 grid side in patches,
N = S * S patches.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from data.mini.training.grid_agreement import works
from data.mini.training.grid_attention import HEAD_WIDTHS, grid_attention, plain_grid_attention

PATCH_PX = 16
WINDOW = 14
NECK_CHANNELS = 256


@dataclass(frozen=True)
class SamSize:
    width: int
    layers: int
    heads: int
    global_layers: tuple[int, ...]
    downsample_channels: tuple[int, int]
    grid: int  # side of the position table


@dataclass(frozen=True)
class ClipSize:
    width: int
    layers: int
    heads: int
    grid: int


def resized_table(table: Tensor, side: int) -> Tensor:
    """A (1, T, T, C) position table, bicubic with antialiasing to (1, side, side, C)."""
    if table.shape[1] == side:
        return table
    planes = table.float().permute(0, 3, 1, 2)  # (1, C, T, T)
    size = (side, side)
    planes = F.interpolate(planes, size=size, mode="bicubic", antialias=True, align_corners=False)
    return planes.permute(0, 2, 3, 1)


def relative_positions(table: Tensor, side: int) -> Tensor:
    """(2 T - 1, D) relative positions, linear to the side's length, as (query, key, D)."""
    length = 2 * side - 1
    if table.shape[0] != length:
        table = F.interpolate(table.float().T[None], size=length, mode="linear")[0].T
    steps = torch.arange(side, device=table.device)
    return table[steps[:, None] - steps[None, :] + side - 1]  # (side, side, D)


class SamAttention(nn.Module):
    """Attention with decomposed relative positions.

    The bias of query q for key k is rel_h[q, row of k] + rel_w[q, column of k].
    """

    def __init__(self, width: int, heads: int, side: int) -> None:
        super().__init__()
        self.heads = heads
        self.by_kernels = False
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.rel_pos_h = nn.Parameter(torch.zeros(2 * side - 1, width // heads))
        self.rel_pos_w = nn.Parameter(torch.zeros(2 * side - 1, width // heads))

    def forward(self, x: Tensor) -> Tensor:
        images, side, _, channels = x.shape  # (B, S, S, C)
        width = channels // self.heads
        n = side * side
        q, k, v = self.qkv(x).view(images, n, 3, self.heads, width).permute(2, 0, 3, 1, 4)  # (B, H, N, D)
        grid = q.reshape(images, self.heads, side, side, width)
        rows = torch.einsum("bhyxd,ykd->bhyxk", grid, relative_positions(self.rel_pos_h, side).to(q.dtype))
        columns = torch.einsum("bhyxd,xkd->bhyxk", grid, relative_positions(self.rel_pos_w, side).to(q.dtype))
        attention = grid_attention if self.by_kernels else plain_grid_attention
        out = attention(q, k, v, rows.flatten(2, 3), columns.flatten(2, 3))  # (B, H, N, D)
        return self.proj(out.transpose(1, 2).reshape(images, side, side, channels))


class SamMlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.lin1 = nn.Linear(width, 4 * width)
        self.lin2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.lin2(F.gelu(self.lin1(x)))


class SamBlock(nn.Module):
    def __init__(self, size: SamSize, window: int) -> None:
        super().__init__()
        self.window = window  # 0: global attention
        self.norm1 = nn.LayerNorm(size.width, eps=1e-6)
        self.attn = SamAttention(size.width, size.heads, window or size.grid)
        self.norm2 = nn.LayerNorm(size.width, eps=1e-6)
        self.mlp = SamMlp(size.width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x).to(x.dtype)
        y = self._windowed(y) if self.window else self.attn(y)
        x = x + y
        return x + self.mlp(self.norm2(x).to(x.dtype))

    def _windowed(self, y: Tensor) -> Tensor:
        """Zeros fill the grid up to whole windows, and take part in attention like any patch."""
        images, side, _, channels = y.shape
        w = self.window
        pad = -side % w
        tiles = (side + pad) // w
        y = F.pad(y, (0, 0, 0, pad, 0, pad)).view(images, tiles, w, tiles, w, channels)
        y = self.attn(y.transpose(2, 3).reshape(-1, w, w, channels))
        y = y.view(images, tiles, tiles, w, w, channels).transpose(2, 3)
        return y.reshape(images, side + pad, side + pad, channels)[:, :side, :side]


class LayerNorm2d(nn.Module):
    """Layer norm over the channels of (B, C, S, S)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = F.layer_norm(x.permute(0, 2, 3, 1), self.weight.shape, self.weight, self.bias, eps=1e-6)
        return y.permute(0, 3, 1, 2).to(x.dtype)


class PatchEmbed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, PATCH_PX, PATCH_PX)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.proj(pixels).permute(0, 2, 3, 1)  # (B, S, S, C)


class Sam(nn.Module):
    def __init__(self, size: SamSize) -> None:
        super().__init__()
        first, second = size.downsample_channels
        self.patch_embed = PatchEmbed(size.width)
        self.pos_embed = nn.Parameter(torch.randn(1, size.grid, size.grid, size.width) * 0.02)
        windows = [0 if index in size.global_layers else WINDOW for index in range(size.layers)]
        self.blocks = nn.ModuleList(SamBlock(size, window) for window in windows)
        self.neck = nn.Sequential(
            nn.Conv2d(size.width, NECK_CHANNELS, 1, bias=False),
            LayerNorm2d(NECK_CHANNELS),
            nn.Conv2d(NECK_CHANNELS, NECK_CHANNELS, 3, padding=1, bias=False),
            LayerNorm2d(NECK_CHANNELS),
        )
        self.net_2 = nn.Conv2d(NECK_CHANNELS, first, 3, stride=2, padding=1, bias=False)
        self.net_3 = nn.Conv2d(first, second, 3, stride=2, padding=1, bias=False)

    def prepare(self, device: torch.device) -> None:
        """Global attention by kernels of our own, where that device and the head width have them."""
        for block in self.blocks:
            width = block.attn.rel_pos_h.shape[1]
            block.attn.by_kernels = not block.window and width in HEAD_WIDTHS and works(device)

    def forward(self, pixels: Tensor) -> tuple[Tensor, Tensor]:
        """Pixels (B, 3, P, P) to features (B, C, S / 4, S / 4) and the last block's patches (B, S, S, C)."""
        x = self.patch_embed(pixels)
        x = x + resized_table(self.pos_embed, x.shape[1]).to(x.dtype)
        for block in self.blocks:
            x = block(x)
        features = self.net_3(self.net_2(self.neck(x.permute(0, 3, 1, 2))))
        return features, x


class ClipAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv_proj = nn.Linear(width, 3 * width)
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        images, n, channels = x.shape
        qkv = self.qkv_proj(x).view(images, n, 3, self.heads, channels // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # (B, H, N, D)
        out = F.scaled_dot_product_attention(q, k, v)
        return self.out_proj(out.transpose(1, 2).reshape(images, n, channels))


class ClipMlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        y = self.fc1(x)
        return self.fc2(y * torch.sigmoid(1.702 * y))


class ClipBlock(nn.Module):
    def __init__(self, size: ClipSize) -> None:
        super().__init__()
        self.layer_norm1 = nn.LayerNorm(size.width, eps=1e-5)
        self.self_attn = ClipAttention(size.width, size.heads)
        self.layer_norm2 = nn.LayerNorm(size.width, eps=1e-5)
        self.mlp = ClipMlp(size.width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.self_attn(self.layer_norm1(x).to(x.dtype))
        return x + self.mlp(self.layer_norm2(x).to(x.dtype))


class ClipEmbeddings(nn.Module):
    """Class token and positions over patches that SAM has made; its own patch convolution stays unused."""

    def __init__(self, size: ClipSize) -> None:
        super().__init__()
        self.class_embedding = nn.Parameter(torch.randn(size.width) * 0.02)
        self.patch_embedding = nn.Conv2d(3, size.width, 14, 14, bias=False)
        self.patch_embedding.requires_grad_(False)
        self.position_embedding = nn.Embedding(size.grid**2 + 1, size.width)
        nn.init.normal_(self.position_embedding.weight, std=0.02)
        self.grid = size.grid

    def forward(self, features: Tensor) -> Tensor:
        images, channels, side, _ = features.shape
        patches = features.flatten(2).transpose(1, 2)  # (B, N, C)
        table = self.position_embedding.weight
        grid = resized_table(table[1:].view(1, self.grid, self.grid, channels), side)
        positions = torch.cat([table[:1], grid.reshape(side * side, channels).to(table.dtype)])
        first = self.class_embedding.to(patches.dtype).expand(images, 1, channels)
        return torch.cat([first, patches], 1) + positions.to(patches.dtype)


class ClipTransformer(nn.Module):
    def __init__(self, size: ClipSize) -> None:
        super().__init__()
        self.layers = nn.ModuleList(ClipBlock(size) for _ in range(size.layers))


class Clip(nn.Module):
    def __init__(self, size: ClipSize) -> None:
        super().__init__()
        self.embeddings = ClipEmbeddings(size)
        self.pre_layrnorm = nn.LayerNorm(size.width, eps=1e-5)
        self.transformer = ClipTransformer(size)

    def forward(self, features: Tensor) -> Tensor:
        """SAM's features (B, C, S, S) to (B, N + 1, C), class token first."""
        x = self.embeddings(features)
        x = self.pre_layrnorm(x).to(x.dtype)
        for layer in self.transformer.layers:
            x = layer(x)
        return x
