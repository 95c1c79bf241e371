"""Features -> the vision tokens that replace the image's positions: one linear layer, then rows of a page.

Letters: T views or tiles, G feature map side, q tokens along a tile's side, C width.
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


def rows_of(tiles: Tensor, grid: tuple[int, int], newline: Tensor) -> Tensor:
    """Tiles (T, q*q, C), cut row by row for a `grid` of (columns, rows), as the rows of one map, each with
    the newline (C,) at its end: (rows*q * (columns*q + 1), C)
    """
    columns, rows = grid
    q = int(tiles.shape[1] ** 0.5)
    x = tiles.view(rows, columns, q, q, -1).transpose(1, 2)  # (rows, q, columns, q, C)
    x = x.reshape(rows * q, columns * q, -1)
    return torch.cat([x, newline.expand(rows * q, 1, -1).to(x.dtype)], dim=1).flatten(0, 1)
