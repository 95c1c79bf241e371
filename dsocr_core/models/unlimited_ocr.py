"""Unlimited-OCR (Baidu, June 2026): DeepSeek-OCR's modules, of whose new tokens the last 128 are remembered.

Its prompt takes many pages, a page up to 32 tiles, and its rotary frequencies are not rounded. Its names of
weights are DeepSeek-OCR's: config.json alone tells the two apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from dsocr_core.models.config import WINDOW_FIELDS, ModelConfig, Section
from dsocr_core.models.deepseek_ocr import DEEPSEEK_OCR
from dsocr_core.models.deepseek_ocr import parse as parse_deepseek_ocr
from dsocr_core.models.resolution import Preset, by_name
from dsocr_core.models.spec import OF_ALL, ROLES, Decoding, Hypothesis, Published, Served, ngram_hypothesis


def parse(root: Section) -> ModelConfig:
    """The sizes of a config.json. Raises ConfigError."""
    like = parse_deepseek_ocr(Section(_windowless(root.data), root.source, root.path))
    name = next((name for name in WINDOW_FIELDS if root.data.get(name)), WINDOW_FIELDS[-1])
    return replace(like, decoder=replace(like.decoder, window=root.size(name)), family="unlimited_ocr")


def _windowless(data: Mapping[str, Any]) -> dict[str, Any]:
    """The file's fields without the window, which DeepSeek-OCR does not have."""
    nested = data.get("language_config")
    more = {"language_config": _windowless(nested)} if isinstance(nested, Mapping) else {}
    return {name: value for name, value in data.items() if name not in WINDOW_FIELDS} | more


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
    hypotheses=(
        Hypothesis(
            "full-attention", "full attention in place of the ring", "window", {"full_attention": True}
        ),
        *(
            ngram_hypothesis(*rule)
            for rule in ((0,), (35,), (35, 1024), (35, 128), (35, 90), (30, 90), (20,))
        ),
        Hypothesis("newline", "a newline after <image>", "prompt", {"template": "newline"}),
        Hypothesis("grounding", "<|grounding|> in the prompt", "prompt", {"template": "grounding"}),
        Hypothesis(
            "newline-grounding",
            "a newline and <|grounding|> in the prompt",
            "prompt",
            {"template": "newline_grounding"},
        ),
        ROLES,
        Hypothesis("page-order", "the pages in the opposite order", "pages", {"reversed": True}),
        Hypothesis("tiles-9", "at most 9 tiles", "views", {"preset": "gundam-9"}),
        Hypothesis("tiles-6", "at most 6 tiles", "views", {"preset": "gundam-6"}),
        Hypothesis("no-tiles", "one 1024 px view, no tiles", "views", {"preset": "base"}),
        Hypothesis("tiles-32", "tiles of 640 px, up to 32", "views", {"preset": "gundam"}),
        Hypothesis("rotary-bf16", "rotary frequencies in bfloat16", "rotary", {"rotary": "bfloat16"}),
        *OF_ALL,
    ),
    # With DeepSeek-OCR's most tiles, and those of its vLLM code.
    others=by_name(*(Preset(f"gundam-{most}", 1024, 640, crop_mode=True, max_tiles=most) for most in (9, 6))),
    served=Served(rule=None, placeholder=("vllm",)),
    published=Published(("eager",), ("no_repeat_ngram_size", "ngram_window"), "4.46.3 to 4.57.1"),
    exact_rotary=True,
    markup="det",
)
