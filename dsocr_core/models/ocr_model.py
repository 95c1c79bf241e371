"""The whole model: vision's stages one after another, fusion, decoder. No clocks and no NVTX here.

Letters: T tiles, S view side in pixels, G feature map side, N tokens, C hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from dsocr_core.models.blocks.clip import Clip
from dsocr_core.models.blocks.decoder import Decoder
from dsocr_core.models.blocks.qwen2_encoder import Qwen2Encoder
from dsocr_core.models.blocks.sam import Sam
from dsocr_core.models.blocks.vision_tokens import ClipProjector, Projector, rows_of
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import spec_of

Part = Callable[..., Tensor]
"""A vision stage: the view's pixels and what the stages before it gave, the newest last -> its own output."""

Tokens = tuple[Tensor | None, tuple[int, int], Tensor]
"""An image's projected tiles (T, q*q, C) or None, their grid, its projected global view (1, Q*Q, C)."""


class OcrModel(nn.Module):
    """All of one checkpoint: SAM, a second encoder over its features, a projector of both, the decoder.

    The second encoder's name is that of its stage: `clip` or `encoder`. Weights are torch's own.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config, self.family = config, spec_of(config)
        self.sam = Sam(config.sam)
        self.projector: Projector
        if config.clip is not None:
            self.clip, self.projector = Clip(config.clip), ClipProjector(config.projector)
        elif config.encoder is not None:
            self.encoder, self.projector = Qwen2Encoder(config.encoder), Projector(config.projector)
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
    def parts(self) -> tuple[Part, ...]:
        """Functions of the spec's vision stages; the last gives the view's tokens, (T, q*q, C)."""
        encoder = self.get_submodule([*self.family.vision][1])
        return (
            lambda pixels: self.sam(pixels),  # (T, C_sam, G, G)
            lambda _, sam: encoder(sam),  # (T, [1 +] G*G, C_encoder)
            lambda _, sam, encoded: self.projector(encoded, sam),  # (T, G*G, C)
        )

    def encode(self, pixels: Tensor) -> Tensor:
        """(T, 3, S, S) normalised pixels -> the views' tokens, (T, q*q, C)"""
        outputs = [pixels]
        for part in self.parts:
            outputs.append(part(*outputs))
        return outputs[-1]

    def fuse(self, ids: Tensor, image_mask: Tensor, images: Sequence[Tokens]) -> Tensor:
        """Embeddings (1, N, C) of `ids` (1, N) with vision tokens at the `image_mask`. Raises ValueError."""
        vision = torch.cat([self.sequence(*image) for image in images])  # (V, C)
        if vision.shape[0] != int(image_mask.sum()):
            raise ValueError(f"{vision.shape[0]} vision tokens for {int(image_mask.sum())} image positions")
        embeddings: Tensor = self.decoder.embed_tokens(ids)  # (1, N, C)
        return embeddings.masked_scatter(image_mask.unsqueeze(-1), vision.to(embeddings.dtype))

    def sequence(self, tiles: Tensor | None, grid: tuple[int, int], global_view: Tensor) -> Tensor:
        """An image's tokens in the order of the prompt, (V, C): tiles, the global view, the separator.

        Each row ends with the newline; where the model has none, the tiles stand one after another.
        """
        views = [*([] if tiles is None else [(tiles, grid)]), (global_view, (1, 1))]
        if self.family.newline:
            parts = [rows_of(view, shape, self.image_newline) for view, shape in views]
        else:
            parts = [view.flatten(0, 1) for view, _ in views]
        return torch.cat([*parts, self.view_seperator[None]])
