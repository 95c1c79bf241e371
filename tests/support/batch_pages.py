"""Pages for a batch over a small model."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch

from dsocr_core.models.blocks.attention import Rotary, sdpa_core
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.reading.records import NgramPolicy


@dataclass(frozen=True)
class Page:
    key: int
    ids: tuple[int, ...]
    limit: int
    ngram_size: NgramPolicy | int


def prefill(model: OcrModel, ids: tuple[int, ...], cache: KvCache) -> torch.Tensor:
    rotary = Rotary(model.config.decoder, len(ids), torch.float32, model.dtype, model.device)
    embeddings = model.embed(torch.tensor([ids], device=model.device))
    return model.forward_text(embeddings, cache, rotary, sdpa_core)[0]


def mixed_pages(count: int, seed: int) -> list[Page]:
    """Short and long prompts with repetitions, limits from 1 on, the rule at several sizes and off."""
    draw = random.Random(seed)
    return [
        Page(
            key,
            tuple(draw.choices(range(2, 8), k=draw.choice((1, 2, 5, 19)))),
            draw.choice((1, 2, 3, 9, 17, 33)),
            draw.choice((0, 2, 3, 5)),
        )
        for key in range(count)
    ]
