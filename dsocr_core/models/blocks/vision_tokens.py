"""Features -> the vision tokens that replace the image's positions: one linear layer, then fusion of views.

Letters: T views or tiles, G feature map side, q tokens along a tile's side, Q along the global view's side,
C width.
"""

import torch
from torch import Tensor, nn

from dsocr_core.models.config import ProjectorConfig


class Projector(nn.Module):
    """Projector of the second encoder's features alone. (T, G*G, C) and SAM's, unused -> (T, G*G, hidden)"""

    def __init__(self, config: ProjectorConfig) -> None:
        super().__init__()
        self.layers = nn.Linear(config.input_dim, config.output_dim)

    def forward(self, encoded: Tensor, sam: Tensor) -> Tensor:
        return self.layers(encoded)


class ClipProjector(Projector):
    """CLIP's features with the class token (T, 1 + G*G, C) and SAM's (T, C, G, G) -> (T, G*G, hidden)"""

    def forward(self, encoded: Tensor, sam: Tensor) -> Tensor:
        features = torch.cat([encoded[:, 1:], sam.flatten(2).transpose(1, 2)], dim=-1)  # (T, G*G, 2C)
        return super().forward(features, sam)


def fuse_views(
    tiles: Tensor | None,
    grid: tuple[int, int],
    global_view: Tensor,
    newline: Tensor | None,
    separator: Tensor,
) -> Tensor:
    """Local rows, then global rows, then the separator, (tokens, C); each row ends with the newline token.

    `tiles` is (T, q*q, C) for a `grid` of (columns, rows); `global_view` is (1, Q*Q, C); `newline` and
    `separator` are (C,). Without a newline the tiles stand one after another.
    """
    if newline is None:
        local = [] if tiles is None else [tiles.flatten(0, 1)]
        return torch.cat([*local, global_view[0], separator[None]])
    parts = [] if tiles is None else [_rows(_stitch(tiles, grid), newline)]
    side = int(global_view.shape[1] ** 0.5)
    parts.append(_rows(global_view.view(side, side, -1), newline))
    return torch.cat([*parts, separator[None]])


def _stitch(tiles: Tensor, grid: tuple[int, int]) -> Tensor:
    """Tiles, cut row by row, laid out as one map: (T, q*q, C) -> (rows*q, columns*q, C)"""
    columns, rows = grid
    q = int(tiles.shape[1] ** 0.5)
    x = tiles.view(rows, columns, q, q, -1).transpose(1, 2)  # (rows, q, columns, q, C)
    return x.reshape(rows * q, columns * q, -1)


def _rows(grid: Tensor, newline: Tensor) -> Tensor:
    """(H, W, C) -> (H * (W + 1), C), the newline at each row's end."""
    ends = newline.expand(grid.shape[0], 1, -1).to(grid.dtype)
    return torch.cat([grid, ends], dim=1).flatten(0, 1)
