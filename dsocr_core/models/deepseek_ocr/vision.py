"""SAM, CLIP over its features, and both into the decoder's width.

Letters: T views, S their side in pixels, G feature map side, C width.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dsocr_core.models.blocks.clip import Clip
from dsocr_core.models.config import ProjectorConfig
from dsocr_core.models.deepseek_ocr import DeepseekOcrConfig
from dsocr_core.models.ocr_model import OcrModel, Part


class Projector(nn.Module):
    """Features of a view's patches -> vision tokens.

    `clip` is (T, 1 + G*G, C) with the class token, `sam` (T, C, G, G); returns (T, G*G, hidden).
    """

    def __init__(self, config: ProjectorConfig) -> None:
        super().__init__()
        self.layers = nn.Linear(config.input_dim, config.output_dim)

    def forward(self, clip: Tensor, sam: Tensor) -> Tensor:
        features = torch.cat([clip[:, 1:], sam.flatten(2).transpose(1, 2)], dim=-1)  # (T, G*G, 2C)
        out: Tensor = self.layers(features)
        return out


class DeepseekOcr(OcrModel):
    """With CLIP behind SAM."""

    config: DeepseekOcrConfig
    projector: Projector

    def add_vision(self) -> None:
        self.clip = Clip(self.config.clip)
        self.projector = Projector(self.config.projector)

    @property
    def parts(self) -> tuple[Part, ...]:
        return (
            lambda pixels: self.sam(pixels),  # (T, C_sam, G, G)
            lambda _, sam: self.clip(sam),  # (T, 1 + G*G, C_clip)
            lambda _, sam, clip: self.projector(clip, sam),  # (T, G*G, C)
        )
