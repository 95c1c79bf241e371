"""Taps of vision."""

from __future__ import annotations

from dsocr_core.models.blocks.taps import encoder_taps, fusion_taps, sam_taps
from dsocr_core.models.deepseek_ocr2 import DeepseekOcr2Config
from dsocr_core.models.taps.hooks import Tap


def taps(config: DeepseekOcr2Config) -> tuple[Tap, ...]:
    """Tap from pixels to the decoder's input."""
    return (*sam_taps(config.sam), *encoder_taps(config.encoder), *fusion_taps())
