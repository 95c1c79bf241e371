"""The step without modules has the bits of the modules: logits, cache, every token."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dsocr_core.engine import read_ahead
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.engine.generate import Sequence
from dsocr_core.models.blocks import token_step
from dsocr_core.models.blocks.attention import AttentionCore, eager_core, sdpa_core
from dsocr_core.models.blocks.token_step import TokenStep
from dsocr_core.models.family import parse_config
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import random_model
from tests.support.paths import MINI
from tests.support.seeded_weights import tiny_config

CPU = torch.device("cpu")
CONFIG = parse_config(tiny_config())
PROMPT = (3, 9, 4, 9, 4, 7, 3)
TOKENS = (5, 9, 9, 2, 30, 11, 9, 5)


def model_of(dtype: torch.dtype = torch.float32, **sizes: int | float) -> OcrModel:
    config = replace(CONFIG, decoder=replace(CONFIG.decoder, **sizes))  # type: ignore[arg-type]
    return random_model(config, CPU, dtype, seed=3)


def prefilled(model: OcrModel, core: AttentionCore, limit: int = len(TOKENS)) -> Sequence:
    sequence = Sequence.start(model, PROMPT, limit, 0, core, torch.float32)
    # What is beyond the end is never read: not a number would show it.
    sequence.cache.keys.fill_(torch.nan)
    sequence.cache.values.fill_(torch.nan)
    sequence.forward(model, model.decoder.embed_tokens(torch.tensor([PROMPT])))
    return sequence


def assert_same_bits(model: OcrModel, core: AttentionCore, tokens: tuple[int, ...] = TOKENS) -> None:
    modules, bare = prefilled(model, core, len(tokens)), prefilled(model, core, len(tokens))
    assert TokenStep.fits(model.decoder)
    following = bare.next_logits(model)
    assert isinstance(following.__self__, TokenStep)  # type: ignore[attr-defined]
    for token in tokens:
        expected = modules.forward(model, model.decoder.embed_tokens(torch.tensor([[token]])))
        assert torch.equal(following(token), expected)
    assert bare.cache.length == modules.cache.length
    assert torch.equal(bare.cache.keys, modules.cache.keys)
    assert torch.equal(bare.cache.values, modules.cache.values)


@torch.inference_mode()
@pytest.mark.parametrize("core", [sdpa_core, eager_core])
@pytest.mark.parametrize(
    "sizes",
    [
        {},
        # Widths that no vector register divides: their last elements are computed one by one.
        {"moe_intermediate_size": 23, "intermediate_size": 61, "routed_scaling_factor": 1.7},
        {"experts_per_token": 5, "routed_experts": 7, "layers": 3, "vocab_size": 131},
    ],
)
def test_bits_of_the_modules(core: AttentionCore, sizes: dict[str, int | float]) -> None:
    assert_same_bits(model_of(**sizes), core)


@torch.inference_mode()
@pytest.mark.parametrize("core", [sdpa_core, eager_core])
def test_bits_of_the_modules_with_the_embedded_checkpoint(core: AttentionCore) -> None:
    model = load_checkpoint(str(MINI), CPU, torch.float32).model
    generator = torch.Generator().manual_seed(5)
    tokens = torch.randint(2, model.config.decoder.vocab_size, (40,), generator=generator)
    assert_same_bits(model, core, tuple(tokens.tolist()))


@torch.inference_mode()
@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("largest", [0, 2**20])
def test_reading_a_weight_before_its_product_changes_no_bit(
    ahead: bool, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_ahead, "_timed", True)
    monkeypatch.setattr(token_step, "reads_ahead", ahead)
    monkeypatch.setattr(token_step, "READ_AHEAD_BYTES", largest)
    assert_same_bits(model_of(), sdpa_core)
