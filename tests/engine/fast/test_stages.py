"""Vision and prefill as a GPU runs them, through the kernels, against the eager model."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dsocr_core.engine.fast.ops import Ops
from dsocr_core.engine.fast.prefill import FastPrefill
from dsocr_core.engine.fast.vision import FastVision, VisionTowers
from dsocr_core.models.blocks.attention import Rotary, sdpa_core
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.family import parse_config
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import random_model
from tests.support.seeded_weights import tiny_config


@pytest.fixture(scope="module")
def model() -> OcrModel:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return random_model(parse_config(tiny_config()), device, torch.float32, seed=3)


@torch.inference_mode()
def test_the_vision_stages_match_the_eager_engine(device: torch.device) -> None:
    """Two sizes of views, windows of 3 that fit one of them; then one size alone."""
    config = parse_config(tiny_config())
    sam = replace(config.sam, window=3, layers=2)
    model = random_model(replace(config, sam=sam), device, torch.float32, seed=3)
    generator = torch.Generator().manual_seed(0)
    shapes = ((2, 3, 64, 64), (1, 3, 192, 192)), ((1, 3, 64, 64),)
    vision = FastVision(VisionTowers(model, Ops(kernels=True)))
    for views in ([torch.randn(shape, generator=generator).to(device) for shape in each] for each in shapes):
        found = vision.start(views)
        for stage in found.stages:
            stage()
        for tokens, view in zip(found.tokens, views, strict=True):
            features = model.sam(view)
            expected = model.projector(model.clip(features), features)
            torch.testing.assert_close(tokens, expected, rtol=1e-4, atol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("tokens", [6, 1])
def test_the_prefill_matches_the_eager_engine(model: OcrModel, tokens: int, device: torch.device) -> None:
    config = model.config.decoder
    embeddings = torch.randn(1, tokens, config.hidden_size, generator=torch.Generator().manual_seed(tokens))
    embeddings = embeddings.to(device)
    rotary = Rotary(config, 9, torch.float32, torch.float32, device)
    expected_cache, cache = (KvCache(config, 9, torch.float32, device, batch) for batch in (1, 3))
    expected = model.forward_text(embeddings, expected_cache, rotary, sdpa_core)[0]

    prefill = FastPrefill(model, Ops(kernels=True))
    logits = prefill.forward(embeddings[0], cache.keys[:, 1], cache.values[:, 1], rotary, sdpa_core)
    torch.testing.assert_close(logits, expected, rtol=2e-5, atol=2e-5)
    for actual, wanted in ((cache.keys, expected_cache.keys), (cache.values, expected_cache.values)):
        torch.testing.assert_close(actual[:, 1, :, :tokens], wanted[:, 0, :, :tokens], rtol=2e-5, atol=2e-5)
