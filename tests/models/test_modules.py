"""Each module against a plain reference: transformers', a loop, or a value laid out by hand."""

from __future__ import annotations

import math
import sys
from types import ModuleType

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.models.blocks import sam
from dsocr_core.models.blocks.attention import (
    attention_core,
    eager_core,
    flash_core,
    sdpa_core,
)
from dsocr_core.models.blocks.moe import MixtureOfExperts
from dsocr_core.models.blocks.sam import SamAttention
from dsocr_core.models.config import DecoderConfig
from dsocr_core.models.family import parse_config
from tests.support.seeded_weights import tiny_config

CPU = torch.device("cpu")
CONFIG = parse_config(tiny_config())
DECODER: DecoderConfig = CONFIG.decoder


def fill(module: torch.nn.Module, seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return module.requires_grad_(False)


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 12), st.integers(0, 12))
def test_attention_cores_are_causal_softmax(new: int, past: int) -> None:
    """Against a loop over queries, in float64."""
    if past and new > 1:
        past = 0  # prefill starts at position 0; later steps bring one token each
    torch.manual_seed(new * 100 + past)
    q = torch.randn(1, 2, new, 8)
    k, v = torch.randn(2, 1, 2, past + new, 8)
    expected = torch.empty(1, 2, new, 8, dtype=torch.float64)
    for i in range(new):
        seen = past + i + 1
        weights = (
            q[:, :, i : i + 1].double() @ k[:, :, :seen].double().transpose(2, 3) / math.sqrt(8)
        ).softmax(-1)
        expected[:, :, i : i + 1] = weights @ v[:, :, :seen].double()
    package = ModuleType("flash_attn")
    package.__dict__["flash_attn_func"] = _flash
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "flash_attn", package)
        for core in (sdpa_core, eager_core, flash_core):
            torch.testing.assert_close(core(q, k, v).double(), expected, rtol=1e-5, atol=1e-5)


def _flash(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool) -> torch.Tensor:
    """Stands for the package's, whose heads come after the positions and whose mask ends at the last key."""
    hidden = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool).triu(k.shape[1] - q.shape[1] + 1)
    scores = torch.einsum("bqhd,bkhd->bhqk", q, k) / q.shape[-1] ** 0.5
    weights = scores.masked_fill(hidden & causal, float("-inf")).softmax(-1)
    return torch.einsum("bhqk,bkhd->bqhd", weights, v)


def test_flash_attention_without_the_package_says_what_to_install() -> None:
    with pytest.raises(DsocrError, match=r"requirements-gpu\.txt|CUDA device"):
        attention_core("flash_attention_2", CPU, torch.float32)
    with pytest.raises(DsocrError, match="sdpa, eager, flash_attention_2"):
        attention_core("xformers", CPU, torch.float32)


def test_mixture_is_the_weighted_sum_of_each_tokens_experts() -> None:
    """Token by token, expert by expert, in float64."""
    mixture = fill(MixtureOfExperts(DECODER))
    x = torch.randn(2, 7, DECODER.hidden_size)
    out = mixture(x)
    wide = {name: tensor.double() for name, tensor in mixture.state_dict().items()}
    for b in range(2):
        for t in range(7):
            token = x[b, t].double()
            scores = (wide["gate.weight"] @ token).softmax(-1)
            shared = F.silu(wide["shared_experts.gate_proj.weight"] @ token)
            total = wide["shared_experts.down_proj.weight"] @ (
                shared * (wide["shared_experts.up_proj.weight"] @ token)
            )
            for weight, e in zip(*scores.topk(DECODER.experts_per_token), strict=True):
                inner = F.silu(wide["experts.gate_proj"][e] @ token) * (wide["experts.up_proj"][e] @ token)
                total = total + weight * (
                    wide["experts.down_proj"][e] @ inner
                )  # weights are not renormalised
            torch.testing.assert_close(out[b, t].double(), total, rtol=1e-4, atol=1e-5)


def test_sam_attention_adds_the_bias_of_row_and_column_offsets() -> None:
    attention = fill(SamAttention(CONFIG.sam, side=5))
    x = torch.randn(2, 5, 5, CONFIG.sam.width)
    heads, d = CONFIG.sam.heads, CONFIG.sam.head_dim
    q, k, v = attention.qkv(x).view(2, 25, 3, heads, d).permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(2, 3) / math.sqrt(d)
    for i in range(25):
        for j in range(25):
            row = attention.rel_pos_h[i // 5 - j // 5 + 4]
            column = attention.rel_pos_w[i % 5 - j % 5 + 4]
            scores[:, :, i, j] += q[:, :, i] @ (row + column)
    expected = attention.proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(2, 5, 5, -1))
    torch.testing.assert_close(attention(x), expected, rtol=1e-4, atol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("heads_at_a_time", [1, 3, 4, 9, 100])
def test_sam_attention_in_parts_has_the_bits_of_one_call(
    heads_at_a_time: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """3 views of 4 heads with 35 tokens: parts of a view, whole views, all of them."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 35, 3, 4, 8, dtype=dtype).permute(2, 0, 3, 1, 4)  # as the model cuts them
    along_rows = torch.randn(3, 4, 7, 5, 7, 1, dtype=dtype)
    along_columns = torch.randn(3, 4, 5, 7, 1, 5, dtype=dtype).transpose(2, 3)
    bias = (along_rows + along_columns).reshape(3, 4, 35, 35)
    expected = F.scaled_dot_product_attention(q, k, v, attn_mask=bias)
    monkeypatch.setattr(sam, "PART_BYTES", heads_at_a_time * bias[0, 0].nbytes)
    found = sam.attend_in_parts(q, k, v, along_rows, along_columns)
    assert torch.equal(found, expected)
    assert found.stride() == expected.stride()
