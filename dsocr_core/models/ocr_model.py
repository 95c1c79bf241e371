"""The whole model: stages of vision, fusion, decoder. No clocks and no NVTX here.

Letters: T tiles, S view side in pixels, G feature map side, q tokens along a tile's side, N tokens, C width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from dsocr_core.models.blocks.clip import Clip
from dsocr_core.models.blocks.decoder import Decoder
from dsocr_core.models.blocks.qwen2_encoder import Qwen2Encoder
from dsocr_core.models.blocks.sam import Sam
from dsocr_core.models.config import ModelConfig, ProjectorConfig
from dsocr_core.models.family import spec_of

Tokens = tuple[Tensor | None, tuple[int, int], Tensor]
"""An image's projected tiles (T, q*q, C) or None, their grid, its projected global view (1, Q*Q, C)."""


class Projector(nn.Module):
    """Projector of the second encoder's features (T, G*G, C) -> (T, G*G, hidden). With `joins` it takes
    CLIP's with class token (T, 1 + G*G, C) and SAM's (T, C, G, G).
    """

    def __init__(self, config: ProjectorConfig, joins: bool) -> None:
        super().__init__()
        self.joins, self.layers = joins, nn.Linear(config.input_dim, config.output_dim)

    def forward(self, encoded: Tensor, sam: Tensor) -> Tensor:
        if self.joins:
            encoded = torch.cat([encoded[:, 1:], sam.flatten(2).transpose(1, 2)], dim=-1)  # (T, G*G, 2C)
        return self.layers(encoded)


class OcrModel(nn.Module):
    """Model of a checkpoint: SAM, a second encoder over its features, the projector, the decoder.

    The second encoder is an attribute named as its stage: `clip` or `encoder`. Weights are torch's own.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config, self.family = config, spec_of(config)
        self.sam = Sam(config.sam)
        if config.clip is not None:
            self.clip = Clip(config.clip)
        elif config.encoder is not None:
            self.encoder = Qwen2Encoder(config.encoder)
        self.projector = Projector(config.projector, joins=config.clip is not None)
        if self.family.newline:
            self.image_newline = nn.Parameter(torch.empty(config.decoder.hidden_size))
        self.view_seperator = nn.Parameter(torch.empty(config.decoder.hidden_size))  # the published spelling
        self.decoder = Decoder(config.decoder)

    @property
    def dtype(self) -> torch.dtype:
        return self.view_seperator.dtype

    @property
    def device(self) -> torch.device:
        return self.view_seperator.device

    @property
    def parts(self) -> tuple[Callable[..., Tensor], ...]:
        """Functions of the vision stages. Each takes the normalised pixels (T, 3, S, S) and the outputs of
        the stages before, the newest last."""
        encoder = self.get_submodule([*self.family.vision][1])
        return (
            lambda pixels: self.sam(pixels),  # (T, C_sam, G, G)
            lambda _, sam: encoder(sam),  # (T, [1 +] G*G, C_encoder)
            lambda _, sam, encoded: self.projector(encoded, sam),  # (T, G*G, C)
        )

    def fuse(self, ids: Tensor, image_mask: Tensor, images: Sequence[Tokens]) -> Tensor:
        """Embeddings (1, N, C) of `ids` (1, N) with vision tokens at the `image_mask`. Raises ValueError."""
        vision = torch.cat([self.sequence(*image) for image in images])  # (V, C)
        if vision.shape[0] != int(image_mask.sum()):
            raise ValueError(f"{vision.shape[0]} vision tokens for {int(image_mask.sum())} image positions")
        embeddings: Tensor = self.decoder.embed_tokens(ids)  # (1, N, C)
        return embeddings.masked_scatter(image_mask.unsqueeze(-1), vision.to(embeddings.dtype))

    def sequence(self, tiles: Tensor | None, grid: tuple[int, int], global_view: Tensor) -> Tensor:
        """Tokens of an image in the prompt's order, (V, C): tiles, the global view, the separator.

        Each row ends with the newline. Without a newline the tiles follow one another.
        """
        views = [*([] if tiles is None else [(tiles, grid)]), (global_view, (1, 1))]
        if self.family.newline:
            parts = [rows_with_newline(view, shape, self.image_newline) for view, shape in views]
        else:
            parts = [view.flatten(0, 1) for view, _ in views]
        return torch.cat([*parts, self.view_seperator[None]])


def rows_with_newline(tiles: Tensor, grid: tuple[int, int], newline: Tensor) -> Tensor:
    """Join tiles (T, q*q, C) of a `grid` of (columns, rows) into one map, the newline (C,) after each row.

    Returns (rows*q * (columns*q + 1), C).
    """
    columns, rows = grid
    q = int(tiles.shape[1] ** 0.5)
    x = tiles.view(rows, columns, q, q, -1).transpose(1, 2)  # (rows, q, columns, q, C)
    x = x.reshape(rows * q, columns * q, -1)
    return torch.cat([x, newline.expand(rows * q, 1, -1).to(x.dtype)], dim=1).flatten(0, 1)
