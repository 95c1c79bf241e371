"""Teacher forcing: the logits of each way of decoding after every token of one given sequence.

Two engines that run freely diverge at the first tie and have nothing in common after it. Fed the same tokens
they can be compared at every position.
Letters: N tokens of the prompt, T tokens fed, C hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from dsocr_core.engine.base import Engine
from dsocr_core.engine.device import full_float32
from dsocr_core.engine.generate import Sequence
from dsocr_core.engine.ngram_rule import NgramRule
from dsocr_core.engine.page import PageInputs, Pixels
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.models.blocks.attention import AttentionCore, Rotary, flash_core, sdpa_core
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.ocr_model import OcrModel

if TYPE_CHECKING:
    from dsocr_core.engine.fast.batch import BatchReader
    from dsocr_core.engine.fast.decode import FastDecoder


@dataclass(frozen=True)
class TeacherForced:
    """`logits` (T, V) float32 before each token, and what was `chosen` there, (T,)."""

    logits: Tensor
    chosen: Tensor


def teacher_forced_eager(engine: Engine, page: PageInputs, pixels: Pixels, tokens: Seq[int]) -> TeacherForced:
    """An engine's own forward pass, token by token."""
    model = engine.checkpoint.model
    with engine.modes():
        sequence = _sequence(engine, model, page, len(tokens))
        rows = [engine.prefill(page.prompt, pixels, sequence, _silent(model), None)]
        for token in tokens[:-1]:
            rows.append(
                sequence.forward(
                    model, model.decoder.embed_tokens(torch.tensor([[token]], device=model.device))
                )
            )
        logits = torch.stack(rows)
        return TeacherForced(logits, logits.argmax(dim=1))


def oracle_of(engine: Engine) -> OcrModel:
    """The engine's weights in float32; its own model where that is what it has."""
    model = engine.checkpoint.model
    return model if model.dtype == torch.float32 else deepcopy(model).to(torch.float32)


def teacher_forced_oracle(
    model: OcrModel, engine: Engine, page: PageInputs, pixels: Pixels, tokens: Seq[int]
) -> Tensor:
    """(T, V): what the engine computes, vision included, in float32 with `oracle_of` its weights.

    All tokens are given, so prompt and tokens go through the decoder in one pass.
    """
    with torch.inference_mode(), full_float32():
        features = []
        for views in pixels.passes:
            outputs = [views.to(torch.float32)]
            for part in model.parts:
                outputs.append(part(*outputs))
            features.append(outputs[-1])
        ids = torch.tensor([page.prompt.ids], device=model.device)
        mask = torch.zeros(ids.shape, dtype=torch.bool, device=model.device)
        for start, length in page.prompt.mask:
            mask[:, start : start + length] = True
        prompt = model.fuse(ids, mask, pixels.fused(features))  # (1, N, C)
        fed = torch.tensor([tokens[:-1]], dtype=torch.long, device=model.device)  # (1, T - 1)
        x = torch.cat([prompt, model.decoder.embed_tokens(fed)], dim=1)  # (1, N + T - 1, C)
        whole = replace(model.config.decoder, window=None)
        cache = KvCache(whole, x.shape[1], model.dtype, model.device)
        rotary = Rotary(whole, x.shape[1], engine.rotary_dtype, model.dtype, model.device)
        core = sdpa_core if engine.core is flash_core else engine.core  # flash-attn has no float32
        if (window := model.config.decoder.window) is not None:
            core = remembering(prompt.shape[1], window)
        # The prompt's last position gives the first token.
        logits = model.decoder(x, cache, rotary, core, len(tokens))
        return logits[0]  # (T, V)


def remembering(prompt: int, window: int) -> AttentionCore:
    """Attention of all positions at once to the prompt and to the last `window` new ones, as a mask."""

    def core(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        at = torch.arange(k.shape[2], device=k.device)
        query = at[-q.shape[2] :, None]
        seen = (at <= query) & ((at < prompt) | (at > query - window))  # (N, P)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=seen)

    return core


def teacher_forced_fast(engine: Engine, page: PageInputs, pixels: Pixels, tokens: Seq[int]) -> TeacherForced:
    """The fast engine's graph of a single page. Its logits are made of the step's last hidden state.

    The engine must ignore the end token.
    """
    from dsocr_core.kernels.rms_norm import rms_norm_reference

    decoder: FastDecoder = engine._decoder  # type: ignore[assignment]
    model, prompt = engine.checkpoint.model, page.prompt.ids
    with engine.modes():
        # One more than there are: the last of these must not end the page.
        sequence = decoder.start(prompt, len(tokens) + 1, 0, engine.core)
        first = engine.prefill(page.prompt, pixels, sequence, _silent(model), None)
        graph = decoder._graph
        assert graph is not None
        step, weights = graph.step, graph.step.weights
        step.begin((*prompt, tokens[0]), len(tokens) + 1, 0)
        rows, chosen = [first], [first.argmax()]
        for number, token in enumerate(tokens[1:], len(prompt) + 1):
            graph.replay()
            normed = rms_norm_reference(step._x, weights.norm, step.config.rms_norm_eps)
            rows.append((weights.head @ normed).to(torch.float32))
            chosen.append(step.tokens[number].clone())
            step.tokens[number] = token
        return TeacherForced(torch.stack(rows), torch.stack(chosen).long())


def teacher_forced_batch(
    reader: BatchReader, page: PageInputs, pixels: Pixels, tokens: Seq[int]
) -> TeacherForced:
    """A slot of the batch, the others finished. The reader must ignore the end token."""
    engine, prompt = reader.engine, page.prompt.ids
    with engine.modes():
        decoder = reader.decoder_for(page, spare=1)
        assert decoder is not None
        decoder.reset()
        step = decoder.step
        slot, cache = decoder.take()
        sequence = Sequence(cache, step.rotary, engine.core, NgramRule(0))
        logits = engine.prefill(page.prompt, pixels, sequence, _silent(engine.checkpoint.model), None)
        step.begin(slot, prompt, len(tokens) + 1, 0)
        step.first(slot, logits)
        rows, chosen = [logits.clone()], [step.tokens[slot, len(prompt)].clone()]
        step.tokens[slot, len(prompt)] = tokens[0]
        for number, token in enumerate(tokens[1:], len(prompt) + 1):
            decoder.replay()
            rows.append(step.logits[slot].to(torch.float32, copy=True))
            chosen.append(step.tokens[slot, number].clone())
            step.tokens[slot, number] = token
        decoder.reset()
        return TeacherForced(torch.stack(rows), torch.stack(chosen).long())


def _sequence(engine: Engine, model: OcrModel, page: PageInputs, tokens: int) -> Sequence:
    return Sequence.start(model, page.prompt.ids, tokens, 0, engine.core, engine.rotary_dtype)


def _silent(model: OcrModel) -> StageTimer:
    return StageTimer(model.device, marks=Marks.NONE)
