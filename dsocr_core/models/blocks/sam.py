"""SAM tower: a ViT with window attention that turns pixels into a 16x smaller feature map.

Letters: B views, H rows, W columns, C width, h heads, D head dim, N = H*W tokens, S view side in pixels.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dsocr_core.models.blocks.layers import LayerNorm2d, resize_position_grid
from dsocr_core.models.config import SamConfig


class Sam(nn.Module):
    """(B, 3, S, S) normalised pixels -> (B, downsample_channels[1], S/64, S/64)"""

    def __init__(self, config: SamConfig) -> None:
        super().__init__()
        first, second = config.downsample_channels
        neck = config.neck_channels
        self.patch_embed = PatchEmbedding(config)
        self.pos_embed = nn.Parameter(torch.empty(1, config.grid, config.grid, config.width))
        self.blocks = nn.ModuleList(
            SamBlock(config, window=0 if layer in config.global_attn_indexes else config.window)
            for layer in range(config.layers)
        )
        self.neck = nn.Sequential(
            nn.Conv2d(config.width, neck, kernel_size=1, bias=False),
            LayerNorm2d(neck),
            nn.Conv2d(neck, neck, kernel_size=3, padding=1, bias=False),
            LayerNorm2d(neck),
        )
        self.net_2 = nn.Conv2d(neck, first, kernel_size=3, stride=2, padding=1, bias=False)
        self.net_3 = nn.Conv2d(first, second, kernel_size=3, stride=2, padding=1, bias=False)

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.patch_embed(pixels)  # (B, H, W, C)
        x = x + resize_position_grid(self.pos_embed[0], x.shape[1])
        for block in self.blocks:
            x = block(x)  # (B, H, W, C)
        x = self.neck(x.permute(0, 3, 1, 2))  # (B, neck, H, W)
        return self.net_3(self.net_2(x))  # (B, second, H/4, W/4)


class PatchEmbedding(nn.Module):
    """(B, 3, S, S) -> (B, H, W, C)"""

    def __init__(self, config: SamConfig) -> None:
        super().__init__()
        self.proj = nn.Conv2d(3, config.width, kernel_size=config.patch_size, stride=config.patch_size)

    def forward(self, pixels: Tensor) -> Tensor:
        out: Tensor = self.proj(pixels)
        return out.permute(0, 2, 3, 1)


class SamBlock(nn.Module):
    """One transformer block; `window` 0 means global attention. (B, H, W, C) -> (B, H, W, C)"""

    def __init__(self, config: SamConfig, window: int) -> None:
        super().__init__()
        self.window = window
        self.norm1 = nn.LayerNorm(config.width, eps=config.layer_norm_eps)
        self.attn = SamAttention(config, side=window or config.grid)
        self.norm2 = nn.LayerNorm(config.width, eps=config.layer_norm_eps)
        self.mlp = SamMlp(config)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        if self.window:
            windows = split_windows(y, self.window)
            y = join_windows(self.attn(windows), self.window, x.shape[1], x.shape[2])
        else:
            y = self.attn(y)
        x = x + y
        return x + self.mlp(self.norm2(x))


class SamMlp(nn.Module):
    def __init__(self, config: SamConfig) -> None:
        super().__init__()
        self.lin1 = nn.Linear(config.width, config.mlp_width)
        self.lin2 = nn.Linear(config.mlp_width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.lin2(F.gelu(self.lin1(x)))


class SamAttention(nn.Module):
    """Attention with a decomposed relative position bias. (B, H, W, C) -> (B, H, W, C)"""

    def __init__(self, config: SamConfig, side: int) -> None:
        super().__init__()
        self.heads = config.heads
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.proj = nn.Linear(config.width, config.width)
        self.rel_pos_h = nn.Parameter(torch.empty(2 * side - 1, config.head_dim))
        self.rel_pos_w = nn.Parameter(torch.empty(2 * side - 1, config.head_dim))

    def forward(self, x: Tensor) -> Tensor:
        b, rows, columns, width = x.shape
        n, d = rows * columns, width // self.heads
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, d).permute(2, 0, 3, 1, 4)  # 3 x (B, h, N, D)
        # Bias of each query to each key row and to each key column.
        queries = q.reshape(b * self.heads, rows, columns, d)
        along_rows = torch.einsum("bhwd,hkd->bhwk", queries, relative_positions(self.rel_pos_h, rows))
        along_rows = along_rows.view(b, self.heads, rows, columns, rows, 1)
        along_columns = torch.einsum("bhwd,wkd->bhwk", queries, relative_positions(self.rel_pos_w, columns))
        along_columns = along_columns.view(b, self.heads, rows, columns, 1, columns)
        if x.device.type == "cpu" and not torch.is_grad_enabled():
            y = attend_in_parts(q, k, v, along_rows, along_columns)  # (B, h, N, D)
        else:
            bias = (along_rows + along_columns).reshape(b, self.heads, n, n)  # (B, h, N, N)
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)  # (B, h, N, D)
        return self.proj(y.transpose(1, 2).reshape(b, rows, columns, width))


PART_BYTES = 2**24
"""Bytes of the bias that are made at once on a CPU, if one head takes no more, to stay in its cache."""


def attend_in_parts(q: Tensor, k: Tensor, v: Tensor, along_rows: Tensor, along_columns: Tensor) -> Tensor:
    """Attention of (B, h, N, D) with bias `along_rows` (B, h, H, W, H, 1) + `along_columns` (B, h, H, W, 1,
    W), a few heads at a time. Bits are those of one call, whose bias would take 400 MB.
    """
    views, heads, n, d = q.shape
    along_rows, along_columns = along_rows.contiguous(), along_columns.contiguous()
    fitting = max(1, PART_BYTES // (n * n * along_rows.element_size()))  # heads
    view_step, head_step = max(1, fitting // heads), min(heads, fitting)
    side = along_rows.shape[2], along_columns.shape[3]
    shape = min(views, view_step), head_step, *side, *side
    buffer = torch.empty(shape, dtype=along_rows.dtype, device=q.device)
    out = q.new_empty(views, n, heads, d).transpose(1, 2)  # the memory layout of one call's result
    for view in range(0, views, view_step):
        for head in range(0, heads, head_step):
            at = slice(view, view + view_step), slice(head, head + head_step)
            rows = along_rows[at]
            bias = torch.add(rows, along_columns[at], out=buffer[: rows.shape[0], : rows.shape[1]])
            mask = bias.view(*rows.shape[:2], n, n)
            out[at] = F.scaled_dot_product_attention(q[at], k[at], v[at], attn_mask=mask)
    return out


def relative_positions(table: Tensor, side: int) -> Tensor:
    """Embedding of every (query, key) offset along `side` patches, (side, side, D).

    `table` is (2T - 1, D) for its own side T; interpolated linearly, in float32, to another side.
    """
    distances = 2 * side - 1
    if table.shape[0] != distances:
        line = table.to(torch.float32).t().unsqueeze(0)  # (1, D, 2T - 1)
        table = F.interpolate(line, size=distances, mode="linear").squeeze(0).t().to(table.dtype)
    index = torch.arange(side, device=table.device)
    return table[index[:, None] - index[None, :] + (side - 1)]


def split_windows(x: Tensor, window: int) -> Tensor:
    """(B, H, W, C) -> (B * windows, window, window, C), zero-padded below and to the right."""
    b, rows, columns, width = x.shape
    x = F.pad(x, (0, 0, 0, -columns % window, 0, -rows % window))
    down, across = x.shape[1] // window, x.shape[2] // window
    x = x.view(b, down, window, across, window, width).transpose(2, 3)
    return x.reshape(b * down * across, window, window, width)


def join_windows(windows: Tensor, window: int, rows: int, columns: int) -> Tensor:
    """The inverse of `split_windows`: (B * windows, window, window, C) -> (B, H, W, C)"""
    down, across = -(-rows // window), -(-columns // window)
    width = windows.shape[-1]
    x = windows.view(-1, down, across, window, window, width).transpose(2, 3)
    return x.reshape(-1, down * window, across * window, width)[:, :rows, :columns]
