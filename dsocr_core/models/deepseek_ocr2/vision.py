"""SAM, the encoder over its features, and its answers in the decoder's width."""

from __future__ import annotations

from torch import Tensor, nn

from dsocr_core.models.blocks.qwen2_encoder import Qwen2Encoder
from dsocr_core.models.config import ProjectorConfig
from dsocr_core.models.deepseek_ocr2 import DeepseekOcr2Config
from dsocr_core.models.ocr_model import OcrModel, Part


class Projector(nn.Module):
    """One linear layer. (T, G*G, C) -> (T, G*G, hidden)"""

    def __init__(self, config: ProjectorConfig) -> None:
        super().__init__()
        self.layers = nn.Linear(config.input_dim, config.output_dim)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


class DeepseekOcr2(OcrModel):
    """With a Qwen2 behind SAM."""

    config: DeepseekOcr2Config

    def add_vision(self) -> None:
        self.encoder = Qwen2Encoder(self.config.encoder)
        self.projector = Projector(self.config.projector)

    @property
    def parts(self) -> tuple[Part, ...]:
        return (
            lambda pixels: self.sam(pixels),  # (T, C, G, G)
            lambda _, sam: self.encoder(sam),  # (T, G*G, C)
            lambda *outputs: self.projector(outputs[-1]),  # (T, G*G, hidden)
        )
