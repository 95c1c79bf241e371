"""Pages for a batch over a small model."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from dsocr_core.engine.fast.batch import Decoded, Slots
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
    embeddings = model.decoder.embed_tokens(torch.tensor([ids], device=model.device))
    return model.decoder(embeddings, cache, rotary, sdpa_core)[0, 0]


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


def decoded(
    slots: Slots, model: OcrModel, pages: Iterable[Page], drafts: Mapping[int, Sequence[int]] | None = None
) -> dict[object, Decoded]:
    """All pages through the slots, each as soon as one is free."""
    waiting, ended = list(pages), dict[object, Decoded]()
    while waiting or slots.busy:
        while waiting and slots.free:
            page = waiting.pop(0)
            slot, cache = slots.take()
            logits, draft = prefill(model, page.ids, cache), (drafts or {}).get(page.key, ())
            slots.begin(slot, page.key, page.ids, page.limit, page.ngram_size, logits, draft)
        for one in slots.advance():
            assert one.key not in ended
            ended[one.key] = one
    return ended
