"""The first vision tower: a ViT with window attention, then a neck that shrinks the grid by four.

B images, H x W patches, C channels, N heads, D channels of a head, S window side.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PATCH_SIZE = 16
WINDOW = 14
NECK_CHANNELS = 256
LAYER_NORM_EPS = 1e-6


class SamEncoder(nn.Module):
    """Pixels to a grid of features at 1/64 of their resolution."""

    def __init__(self, sam: dict[str, Any], image_size: int) -> None:
        super().__init__()
        width, grid = sam["width"], image_size // PATCH_SIZE
        self.patch_embed = PatchEmbed(width)
        self.pos_embed = nn.Parameter(torch.zeros(1, grid, grid, width))
        self.blocks = nn.ModuleList(
            SamBlock(width, sam["heads"], 0 if layer in sam["global_attn_indexes"] else WINDOW, grid)
            for layer in range(sam["layers"])
        )
        self.neck = nn.Sequential(
            nn.Conv2d(width, NECK_CHANNELS, kernel_size=1, bias=False),
            ChannelNorm(NECK_CHANNELS),
            nn.Conv2d(NECK_CHANNELS, NECK_CHANNELS, kernel_size=3, padding=1, bias=False),
            ChannelNorm(NECK_CHANNELS),
        )
        middle, last = sam["downsample_channels"]
        self.net_2 = nn.Conv2d(NECK_CHANNELS, middle, kernel_size=3, stride=2, padding=1, bias=False)
        self.net_3 = nn.Conv2d(middle, last, kernel_size=3, stride=2, padding=1, bias=False)

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.patch_embed(pixels)  # (B, H, W, C)
        x = x + resize_position_table(self.pos_embed, x.shape[1])
        for block in self.blocks:
            x = block(x)
        x = self.neck(x.permute(0, 3, 1, 2))  # (B, 256, H, W)
        return self.net_3(self.net_2(x))  # (B, C', H/4, W/4)


class PatchEmbed(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, width, kernel_size=PATCH_SIZE, stride=PATCH_SIZE)

    def forward(self, pixels: Tensor) -> Tensor:
        return self.proj(pixels).permute(0, 2, 3, 1)  # (B, H, W, C)


class ChannelNorm(nn.Module):
    """LayerNorm over the channels of an image. Spelled in elementary operations because under
    autocast each keeps a type of its own; `F.layer_norm` would round elsewhere."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:  # (B, C, H, W)
        centred = x - x.mean(1, keepdim=True)
        variance = centred.pow(2).mean(1, keepdim=True)
        normed = centred / torch.sqrt(variance + LAYER_NORM_EPS)
        return self.weight[:, None, None] * normed + self.bias[:, None, None]


class SamBlock(nn.Module):
    """Pre-norm block. `window` 0 means attention over the whole grid."""

    def __init__(self, width: int, heads: int, window: int, grid: int) -> None:
        super().__init__()
        self.window = window
        self.norm1 = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.attn = SamAttention(width, heads, window or grid)
        self.norm2 = nn.LayerNorm(width, eps=LAYER_NORM_EPS)
        self.mlp = SamMlp(width)

    def forward(self, x: Tensor) -> Tensor:  # (B, H, W, C)
        normed = self.norm1(x)
        if self.window:
            windows, padded = cut_windows(normed, self.window)
            attended = join_windows(self.attn(windows), self.window, padded, x.shape[1:3])
        else:
            attended = self.attn(normed)
        x = x + attended
        return x + self.mlp(self.norm2(x))


class SamMlp(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.lin1 = nn.Linear(width, 4 * width)
        self.act = nn.GELU()
        self.lin2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return self.lin2(self.act(self.lin1(x)))


class SamAttention(nn.Module):
    """Self-attention with a relative position bias that is a sum over the two axes."""

    def __init__(self, width: int, heads: int, side: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.rel_pos_h = nn.Parameter(torch.zeros(2 * side - 1, width // heads))
        self.rel_pos_w = nn.Parameter(torch.zeros(2 * side - 1, width // heads))

    def forward(self, x: Tensor) -> Tensor:  # (B, H, W, C)
        images, height, width, _ = x.shape
        qkv = self.qkv(x).reshape(images, height * width, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.reshape(3, images * self.heads, height * width, -1).unbind(0)  # (BN, HW, D)
        bias = self.position_bias(q, height, width).reshape(images, self.heads, height * width, -1)
        q, k, v = (part.view(images, self.heads, height * width, -1) for part in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)  # (B, N, HW, D)
        attended = attended.view(images, self.heads, height, width, -1).permute(0, 2, 3, 1, 4)
        return self.proj(attended.reshape(images, height, width, -1))

    def position_bias(self, q: Tensor, height: int, width: int) -> Tensor:
        grid_q = q.reshape(q.shape[0], height, width, -1)  # (BN, H, W, D)
        rows = torch.einsum("bhwc,hkc->bhwk", grid_q, relative_table(self.rel_pos_h, height))
        columns = torch.einsum("bhwc,wkc->bhwk", grid_q, relative_table(self.rel_pos_w, width))
        patches = height * width
        return rows.reshape(-1, patches, height, 1) + columns.reshape(-1, patches, 1, width)  # (BN, HW, H, W)


def relative_table(table: Tensor, size: int) -> Tensor:
    """Entry [i, j] is the vector of the distance i - j: (size, size, D)."""
    distances = 2 * size - 1
    if table.shape[0] != distances:
        resized = F.interpolate(table.float().t().unsqueeze(0), size=distances, mode="linear")
        table = resized.to(table.dtype).squeeze(0).t()
    positions = torch.arange(size, device=table.device)
    return table[positions[:, None] - positions[None, :] + size - 1]


def resize_position_table(table: Tensor, side: int) -> Tensor:
    """The learned positions (1, G, G, C) as (1, side, side, C)."""
    if table.shape[1] == side:
        return table
    resized = F.interpolate(
        table.permute(0, 3, 1, 2).float(),
        size=(side, side), mode="bicubic", antialias=True, align_corners=False,
    )  # fmt: skip
    return resized.to(table.dtype).permute(0, 2, 3, 1)


def cut_windows(x: Tensor, side: int) -> tuple[Tensor, tuple[int, int]]:
    """(B, H, W, C) as windows (B', S, S, C), zero padded below and at the right, and the padded size."""
    images, height, width, channels = x.shape
    x = F.pad(x, (0, 0, 0, -width % side, 0, -height % side))
    padded = (x.shape[1], x.shape[2])
    x = x.view(images, padded[0] // side, side, padded[1] // side, side, channels)
    return x.permute(0, 1, 3, 2, 4, 5).reshape(-1, side, side, channels), padded


def join_windows(windows: Tensor, side: int, padded: tuple[int, int], size: torch.Size) -> Tensor:
    """The inverse of `cut_windows`, without the padding."""
    rows, columns = padded[0] // side, padded[1] // side
    x = windows.view(-1, rows, columns, side, side, windows.shape[-1]).permute(0, 1, 3, 2, 4, 5)
    return x.reshape(-1, *padded, windows.shape[-1])[:, : size[0], : size[1]].contiguous()
