"""Taps of vision."""

from __future__ import annotations

from dsocr_core.models.blocks.taps import clip_taps, fusion_taps, sam_taps
from dsocr_core.models.deepseek_ocr import DeepseekOcrConfig
from dsocr_core.models.taps.hooks import Tap


def taps(config: DeepseekOcrConfig) -> tuple[Tap, ...]:
    """From pixels to the decoder's input."""
    return (*sam_taps(config.sam), *clip_taps(config.clip), *fusion_taps())
