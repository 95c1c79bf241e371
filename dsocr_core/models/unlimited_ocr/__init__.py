"""Unlimited-OCR (Baidu, June 2026): DeepSeek-OCR's modules, of whose new tokens the last 128 are remembered.

Its prompt takes many pages, a page up to 32 tiles, and its rotary frequencies are not rounded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

from dsocr_core.models.config import WINDOW_FIELDS, Section
from dsocr_core.models.deepseek_ocr import DEEPSEEK_OCR, DeepseekOcrConfig
from dsocr_core.models.deepseek_ocr import parse as parse_deepseek_ocr
from dsocr_core.models.resolution import Preset
from dsocr_core.models.row import Decoding, Published, Served
from dsocr_core.models.unlimited_ocr import others


@dataclass(frozen=True)
class UnlimitedOcrConfig(DeepseekOcrConfig):
    """DeepSeek-OCR's sizes and a window in the decoder."""

    family: ClassVar[str] = "unlimited_ocr"


def parse(root: Section) -> UnlimitedOcrConfig:
    """Read the sizes of a config.json. Raises ConfigError."""
    like = parse_deepseek_ocr(Section(_windowless(root.data), root.source, root.path))
    name = next((name for name in WINDOW_FIELDS if root.data.get(name)), WINDOW_FIELDS[-1])
    decoder = replace(like.decoder, window=root.integer(name))
    values = {each.name: getattr(like, each.name) for each in fields(like)}
    return UnlimitedOcrConfig(**{**values, "decoder": decoder})


def _windowless(data: Mapping[str, Any]) -> dict[str, Any]:
    """The file's fields without the window, which DeepSeek-OCR does not have."""
    nested = data.get("language_config")
    more = {"language_config": _windowless(nested)} if isinstance(nested, Mapping) else {}
    return {name: value for name, value in data.items() if name not in WINDOW_FIELDS} | more


PROMPTS = {"markdown": "<image>document parsing.", "pages": "<image>Multi page parsing."}

UNLIMITED_OCR = replace(
    DEEPSEEK_OCR,
    name="unlimited_ocr",
    title="Unlimited-OCR",
    architectures=("UnlimitedOCRForCausalLM",),
    parse=parse,
    presets={
        "base": Preset("base", 1024, 1024, crop_mode=False, max_tiles=32),
        "gundam": Preset("gundam", 1024, 640, crop_mode=True, max_tiles=32),
    },
    decoding=Decoding(
        PROMPTS,
        ngram_size=35,
        ngram_size_eval=35,
        ngram_window=128,
        ngram_window_of_pages=1024,
        window_over_prompt=True,
        new_tokens=None,
        images=119,
    ),
    hypotheses=others.HYPOTHESES,
    others=others.PRESETS,
    served=Served(rule=None, placeholder=("vllm",)),
    published=Published(("eager",), ("no_repeat_ngram_size", "ngram_window"), "4.46.3 to 4.57.1"),
    exact_rotary=True,
    markup="det",
)
"""The row. Its names of weights are DeepSeek-OCR's: config.json alone tells the two apart."""
