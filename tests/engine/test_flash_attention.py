"""`--attention flash_attention_2` without the package: a stand-in that checks what it is given."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton")

from dsocr_core.engine.fast.prefill import FastPrefill
from dsocr_core.models.blocks.attention import AttentionCore, Rotary, attention_core, eager_core
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.family import parse_config
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import random_model
from tests.support.seeded_weights import tiny_config

CPU = torch.device("cpu")
PROMPT, STEPS = 11, 3


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(queries, keys) of each call of the stand-in, which has the package's layout and its mask."""
    seen: list[tuple[int, int]] = []

    def flash_attn_func(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
        b, new, heads, dim = q.shape
        total = k.shape[1]
        assert k.shape == v.shape == (b, total, heads, dim)
        assert q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
        assert causal and q.dtype == k.dtype == v.dtype
        seen.append((new, total))
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / dim**0.5
        # Its causal mask is aligned to the last query and key.
        hidden = torch.ones(new, total, dtype=torch.bool).triu(total - new + 1)
        weights = scores.masked_fill(hidden, float("-inf")).softmax(-1)
        return torch.einsum("bhqk,bkhd->bqhd", weights, v)

    package = ModuleType("flash_attn")
    package.__spec__ = ModuleSpec("flash_attn", None)
    package.__dict__["flash_attn_func"] = flash_attn_func
    monkeypatch.setitem(sys.modules, "flash_attn", package)
    return seen


@pytest.fixture(scope="module")
def model() -> OcrModel:
    return random_model(parse_config(tiny_config()), CPU, torch.float32, seed=5)


def eager_logits(model: OcrModel, embeddings: Tensor, core: AttentionCore) -> list[Tensor]:
    """After the prompt, and after each of a few tokens more."""
    config = model.config.decoder
    cache = KvCache(config, PROMPT + STEPS, torch.float32, CPU)
    rotary = Rotary(config, PROMPT + STEPS, torch.float32, torch.float32, CPU)
    logits = [model.decoder(embeddings, cache, rotary, core)[0, 0]]
    for token in range(STEPS):
        step = model.decoder.embed_tokens(torch.tensor([[token + 5]]))
        logits.append(model.decoder(step, cache, rotary, core)[0, 0])
    return logits


@torch.inference_mode()
def test_both_engines_read_with_it_as_without(model: OcrModel, calls: list[tuple[int, int]]) -> None:
    config = model.config.decoder
    core = attention_core("flash_attention_2", torch.device("cuda"), torch.bfloat16)
    embeddings = torch.randn(1, PROMPT, config.hidden_size, generator=torch.Generator().manual_seed(6))
    expected = eager_logits(model, embeddings, eager_core)
    for actual, wanted in zip(eager_logits(model, embeddings, core), expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=2e-5, atol=2e-5)
    layers = config.layers
    assert calls == [(PROMPT, PROMPT)] * layers + [
        (1, PROMPT + step + 1) for step in range(STEPS) for _ in range(layers)
    ]

    calls.clear()
    cache = KvCache(config, PROMPT, torch.float32, CPU)
    rotary = Rotary(config, PROMPT, torch.float32, torch.float32, CPU)
    keys, values = cache.keys[:, 0], cache.values[:, 0]
    logits = FastPrefill(model).forward(embeddings[0], keys, values, rotary, core)
    torch.testing.assert_close(logits, expected[0], rtol=2e-5, atol=2e-5)
    assert calls == [(PROMPT, PROMPT)] * (layers - 1) + [(1, PROMPT)]
