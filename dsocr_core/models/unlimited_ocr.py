"""Unlimited-OCR (Baidu, June 2026): DeepSeek-OCR's modules, with a window over the last 128 new tokens.

Its prompt takes many pages, a page up to 32 tiles, and its rotary frequencies are not rounded. Its weights
have DeepSeek-OCR's names: only config.json tells the two apart.
"""

from dataclasses import replace

from dsocr_core.models.config import WINDOW_FIELDS, ModelConfig, Section
from dsocr_core.models.deepseek_ocr import DEEPSEEK_OCR
from dsocr_core.models.deepseek_ocr import parse as parse_deepseek_ocr
from dsocr_core.models.resolution import Preset, by_name
from dsocr_core.models.spec import Decoding


def parse(root: Section) -> ModelConfig:
    """Sizes in a config.json. Raises ConfigError."""
    like = parse_deepseek_ocr(root, window=True)
    name = next((name for name in WINDOW_FIELDS if root.data.get(name)), WINDOW_FIELDS[-1])
    return replace(like, decoder=replace(like.decoder, window=root.size(name)), family="unlimited_ocr")


UNLIMITED_OCR = replace(
    DEEPSEEK_OCR,
    name="unlimited_ocr",
    title="Unlimited-OCR",
    architecture="UnlimitedOCRForCausalLM",
    parse=parse,
    presets=by_name(
        Preset("base", 1024, 1024, crop_mode=False, max_tiles=32),
        Preset("gundam", 1024, 640, crop_mode=True, max_tiles=32),
    ),
    decoding=Decoding(
        {"markdown": "<image>document parsing.", "pages": "<image>Multi page parsing."},
        ngram_size=35,
        ngram_size_eval=35,
        ngram_window=128,
        ngram_window_of_pages=1024,
        window_over_prompt=True,
        new_tokens=None,
        images=119,
    ),
    served_rule=None,
    placeholder=("vllm",),
    published_attentions=("eager",),
    published_arguments=("no_repeat_ngram_size", "ngram_window"),
    published_transformers="4.46.3 to 4.57.1",
    exact_rotary=True,
    markup="det",
)
