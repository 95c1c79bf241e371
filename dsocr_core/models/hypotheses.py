"""Ways in which other engines differ from the published reading (docs/why.md). No torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dsocr_core.models.resolution import MAX_TILES, TILE_SIZE

CELLS = ("<td>", "</td>")
"""Whitelist of the vendor's vLLM scripts."""


@dataclass(frozen=True)
class Hypothesis:
    """One possible cause. `change` are fields of the request, of `ModelChange`, or `dtype`."""

    name: str
    words: str
    """Text after "B is reproduced with"."""
    group: str
    """What it changes. Two hypotheses of a group exclude each other."""
    change: Mapping[str, Any] = field(hash=False)


def ngram_hypothesis(size: int, window: int = 0, whitelist: tuple[str, ...] = ()) -> Hypothesis:
    """Hypothesis that B has this n-gram rule."""
    words = f"n-gram {size}" + (f", window {window}" if window else "") if size else "no n-gram rule"
    name = "ngram-off" if size == 0 else f"ngram-{size}" + (f"-{window}" if window else "")
    change = {"no_repeat_ngram_size": size, "ngram_window": window, "ngram_whitelist": whitelist}
    return Hypothesis(name, words, "ngram", change)


def hypotheses_of(model: str) -> tuple[Hypothesis, ...]:
    """Hypotheses for a model: cheap and likely ones first, those for every model last."""
    rules = (ngram_hypothesis(*rule) for rule in _RULES[model])
    return *rules, *(Hypothesis(*row) for models, *row in _ROWS if model in models)


_FIRST, _SECOND, _UNLIMITED = ("deepseek_ocr",), ("deepseek_ocr2",), ("unlimited_ocr",)
_RULES: Mapping[str, tuple[tuple[Any, ...], ...]] = {
    "deepseek_ocr": ((30, 90, CELLS), (20, 50, CELLS), (35,), (20,), (0,), (40, 90, CELLS)),
    "deepseek_ocr2": ((20, 90, CELLS), (20, 50, CELLS), (30, 90, CELLS), (40, 90, CELLS), (35,), (20,), (0,)),
    "unlimited_ocr": ((0,), (35,), (35, 1024), (35, 128), (35, 90), (30, 90), (20,)),
}
_LARGE_TILES = {"preset": "gundam", "tile_size": TILE_SIZE, "max_tiles": MAX_TILES}
_BOTH = {"template": "newline_grounding"}
_ROWS: tuple[tuple[Any, ...], ...] = (
    (_UNLIMITED, "full-attention", "full attention in place of the ring", "window", {"full_attention": True}),
    (_UNLIMITED, "newline", "a newline after <image>", "prompt", {"template": "newline"}),
    (_UNLIMITED, "grounding", "<|grounding|> in the prompt", "prompt", {"template": "grounding"}),
    (_UNLIMITED, "newline-grounding", "a newline and <|grounding|> in the prompt", "prompt", _BOTH),
    (_FIRST + _SECOND, "no-newline", "no newline after <image>", "prompt", {"template": "no_newline"}),
    ((*_RULES,), "roles", "role markers around the prompt", "prompt", {"template": "roles"}),
    (_UNLIMITED, "page-order", "the pages in the opposite order", "pages", {"reversed": True}),
    (_SECOND, "causal-encoder", "a causal mask in the encoder", "encoder", {"causal_encoder": True}),
    (_FIRST, "tiles-6", "at most 6 tiles", "views", {"max_tiles": 6}),
    (_UNLIMITED, "tiles-6", "at most 6 tiles", "views", {"preset": "gundam", "max_tiles": 6}),
    (_FIRST, "tiles-640", "tiles of 640 px beside a 1024 px view", "views", _LARGE_TILES),
    (_FIRST + _UNLIMITED, "no-tiles", "one 1024 px view, no tiles", "views", {"preset": "base"}),
    (_SECOND, "no-tiles", "one 1024 px view, no tiles", "views", {"preset": "1024"}),
    (_SECOND, "one-768", "one 768 px view, no tiles", "views", {"preset": "768"}),
    (_FIRST, "tiles-32", "up to 32 tiles", "views", {"max_tiles": 32}),
    (_UNLIMITED, "tiles-32", "tiles of 640 px, up to 32", "views", {"preset": "gundam"}),
    (_SECOND, "rotary-float32", "rotary frequencies that are not rounded", "rotary", {"rotary": "float32"}),
    (_UNLIMITED, "rotary-bf16", "rotary frequencies in bfloat16", "rotary", {"rotary": "bfloat16"}),
    ((*_RULES,), "no-exif", "no rotation by EXIF", "exif", {"exif": False}),
    ((*_RULES,), "fp16", "float16", "dtype", {"dtype": "float16"}),
    ((*_RULES,), "bf16", "bfloat16", "dtype", {"dtype": "bfloat16"}),
)
"""Names of models, and the fields of their hypothesis."""
