"""Slots of 8 bits: a prompt is rounded into its slot with its own scales, and a page has its own tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dsocr_core.backends.on_device import engine_backend, published_backend
from dsocr_core.base.errors import DsocrError
from dsocr_core.engine.fast.batch import Slots
from dsocr_core.engine.fast.batch_buffers import SlotCaches
from dsocr_core.engine.fast.batch_step import BatchStep
from dsocr_core.engine.fast.weights import pack
from dsocr_core.engine.generate import NO_TOKEN
from dsocr_core.kernels.batch.scales import FP8
from dsocr_core.kernels.launch import PLAIN
from dsocr_core.models.family import parse_config
from dsocr_core.models.weights import random_model
from dsocr_core.runs.result_cache import ResultCache
from dsocr_core.settings import Settings
from tests.support.batch_pages import mixed_pages, prefill
from tests.support.paths import SAMPLES
from tests.support.seeded_weights import tiny_config

CPU = torch.device("cpu")


def test_a_prompt_is_rounded_into_its_slot_by_its_own_scales() -> None:
    """By hand: a head whose largest value is 28 has the scale 28 x 2 / 448 = 1/8; 17 / 8 is held as 17/8."""
    caches = SlotCaches((1, 3, 1, 4, 2), torch.float32, CPU, "fp8-kv")
    cache = caches.of_slot(1)
    values = torch.tensor([[28.0, 2.125], [-1.0, 0.0]])
    cache.write(0, values[None, None] / 2, values[None, None])
    for half in (caches.keys, caches.values):
        half.zero_()
    cache.advance(2)
    for half, scales, scale in zip((caches.keys, caches.values), caches.scales, (1 / 16, 1 / 8), strict=True):
        assert half.dtype == FP8
        assert scales is not None and scales[0, :, 0].tolist() == [1.0, scale, 1.0]
        # Over the scale: 224, 17 and -8; between 16 and 18 the even one.
        assert half[0, 1, 0, :2].float().tolist() == [[224.0, 16.0], [-8.0, 0.0]]
        assert not half[0, ::2].float().any()


def test_a_pages_tokens_do_not_depend_on_its_neighbours() -> None:
    config = parse_config(tiny_config())
    model = random_model(
        replace(config, decoder=replace(config.decoder, layers=2, vocab_size=40)), CPU, torch.float32, 2
    )
    weights, pages = pack(model.decoder), mixed_pages(5, 40)
    found = []
    for slots in (1, 4):
        step = BatchStep(
            weights, model.config.decoder, slots, 64, torch.float32, NO_TOKEN, kernels=PLAIN,
            precision="fp8-kv",
        )  # fmt: skip
        decoder, waiting, ended = Slots(step, 4), list(pages), {}
        while waiting or decoder.busy:
            while waiting and decoder.free:
                page = waiting.pop(0)
                slot, cache = decoder.take()
                decoder.begin(
                    slot, page.key, page.ids, page.limit, page.ngram_size, prefill(model, page.ids, cache)
                )
            ended |= {one.key: one.tokens for one in decoder.advance()}
        found.append(ended)
    assert found[0] == found[1] and len(found[0]) == 5


@pytest.mark.parametrize("make", [engine_backend, published_backend])
def test_other_engines_refuse_a_precision_in_one_line(make: object) -> None:
    backend = make(Settings(precision="fp8-kv"))  # type: ignore[operator]
    with pytest.raises(
        DsocrError, match=r"^precision fp8-kv is a setting of the fast engine, not of \w+: .*$"
    ):
        backend.load()


def test_a_precision_is_a_part_of_the_result_caches_key() -> None:
    settings = Settings(engine="fast")
    request = settings.request(SAMPLES / "01-letter.png")
    keys = {ResultCache(replace(settings, precision=each)).key("fast", request) for each in ("off", "fp8-kv")}  # type: ignore[arg-type]
    assert len(keys) == 2
