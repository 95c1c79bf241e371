"""The whole model, one method a stage. No clocks and no NVTX here: the engine marks from outside.

Letters: T tiles, S view side in pixels, G feature map side, N tokens, C hidden size, V vocabulary.
"""

import torch
from torch import Tensor, nn

from dsocr_core.config import ModelConfig
from dsocr_core.model.attention import AttentionCore, Rotary
from dsocr_core.model.clip import Clip
from dsocr_core.model.decoder import Decoder
from dsocr_core.model.kv_cache import KvCache
from dsocr_core.model.projector import Projector
from dsocr_core.model.sam import Sam
from dsocr_core.model.vision_tokens import fuse_views


class OcrModel(nn.Module):
    """Towers, projector, learned separators and decoder of one checkpoint."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.sam = Sam(config.sam)
        self.clip = Clip(config.clip)
        self.projector = Projector(config.projector)
        self.image_newline = nn.Parameter(torch.empty(config.decoder.hidden_size))
        self.view_seperator = nn.Parameter(torch.empty(config.decoder.hidden_size))  # the published spelling
        self.decoder = Decoder(config.decoder)

    @property
    def dtype(self) -> torch.dtype:
        return self.image_newline.dtype

    @property
    def device(self) -> torch.device:
        return self.image_newline.device

    def encode_sam(self, pixels: Tensor) -> Tensor:
        """(T, 3, S, S) normalised pixels -> (T, C_sam, G, G)"""
        out: Tensor = self.sam(pixels)
        return out

    def encode_clip(self, features: Tensor) -> Tensor:
        """(T, C_sam, G, G) -> (T, 1 + G*G, C_clip)"""
        out: Tensor = self.clip(features)
        return out

    def project(self, clip: Tensor, sam: Tensor) -> Tensor:
        """Both towers' features -> (T, G*G, C)"""
        out: Tensor = self.projector(clip, sam)
        return out

    def fuse(
        self,
        ids: Tensor,
        image_mask: Tensor,
        tiles: Tensor | None,
        grid: tuple[int, int],
        global_view: Tensor,
    ) -> Tensor:
        """Token embeddings with the image's positions replaced by vision tokens.

        `ids` (1, N), `image_mask` (1, N) bool, `tiles` (T, q*q, C) or None, `global_view` (1, Q*Q, C)
        -> (1, N, C). Raises ValueError when mask and vision tokens do not have the same count.
        """
        vision = fuse_views(tiles, grid, global_view, self.image_newline, self.view_seperator)  # (V, C)
        if vision.shape[0] != int(image_mask.sum()):
            raise ValueError(f"{vision.shape[0]} vision tokens for {int(image_mask.sum())} image positions")
        embeddings: Tensor = self.decoder.embed_tokens(ids)  # (1, N, C)
        return embeddings.masked_scatter(image_mask.unsqueeze(-1), vision.to(embeddings.dtype))

    def forward_text(self, embeddings: Tensor, cache: KvCache, rotary: Rotary, core: AttentionCore) -> Tensor:
        """Logits after the last position: (1, N, C) -> (1, V) float32. Appends N positions to the cache."""
        out: Tensor = self.decoder(embeddings, cache, rotary, core)
        return out

    def embed(self, ids: Tensor) -> Tensor:
        """(1, N) -> (1, N, C)"""
        out: Tensor = self.decoder.embed_tokens(ids)
        return out
