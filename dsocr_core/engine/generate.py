"""Prefill and greedy decoding under an n-gram rule, with the tokens of transformers' `generate`."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass

import torch
from torch import Tensor

from dsocr_core.base.errors import DsocrError
from dsocr_core.engine.ngram_rule import NgramRule
from dsocr_core.engine.read_ahead import choose_once
from dsocr_core.models.blocks.attention import AttentionCore, Rotary
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.blocks.decoder import BestTwo
from dsocr_core.models.blocks.token_step import TokenStep
from dsocr_core.models.config import DecoderConfig
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.reading.records import UNLIMITED, FinishReason, NgramPolicy, Unlimited

NO_TOKEN = -1
"""End token that never occurs."""

UNBOUNDED_DECODE_CEILING = 8192
"""Token limit for `inf` where the config names no context limit."""

log = logging.getLogger(__name__)


@functools.cache
def _warn_unbounded() -> None:
    words = "max_new_tokens=inf: config.json names no context limit; stopping at %d tokens"
    log.warning(words, UNBOUNDED_DECODE_CEILING)


def token_limit(requested: int | Unlimited, prompt_tokens: int, config: DecoderConfig) -> int:
    """Limit of new tokens. UNLIMITED is what the context still holds. Raises DsocrError if it is full."""
    if requested != UNLIMITED:
        if requested < 1:
            raise DsocrError(f"max_new_tokens is {requested}; give a positive integer or inf")
        return requested
    if config.max_positions is None:
        _warn_unbounded()
        return UNBOUNDED_DECODE_CEILING
    if prompt_tokens >= config.max_positions:
        raise DsocrError(
            f"the prompt takes {prompt_tokens} tokens and the context holds {config.max_positions}; "
            "choose a smaller preset"
        )
    return config.max_positions - prompt_tokens


def greedy(logits: Tensor, banned: set[int], best: BestTwo | None = None) -> int:
    """`best_allowed` as a number, for which the host waits."""
    return int(best_allowed(logits, banned, best))


def best_allowed(logits: Tensor, banned: set[int], best: BestTwo | None = None) -> Tensor:
    """Best token () of (V,) float32 logits that is not `banned`; the lowest id on a tie. Adds to `best`."""
    if banned:
        logits = logits.clone()
        logits[list(banned)] = float("-inf")
    chosen = logits.argmax()  # ()
    if best is not None:
        best.add(logits, chosen)
    return chosen


@dataclass
class Sequence:
    """State of one page between prefill and decode: cache, rotary tables, n-gram rule."""

    cache: KvCache
    rotary: Rotary
    core: AttentionCore
    rule: NgramRule
    best: BestTwo | None = None
    """Recorder of the two best logits; None where they are not wanted."""

    @classmethod
    def start(
        cls,
        model: OcrModel,
        prompt_ids: tuple[int, ...],
        limit: int,
        ngram: NgramPolicy | int,
        core: AttentionCore,
        rotary_dtype: torch.dtype,
    ) -> Sequence:
        """Allocate all that a page with this prompt and token limit needs."""
        config, prompt = model.config.decoder, len(prompt_ids)
        return cls(
            KvCache(config, KvCache.positions(config, prompt, limit), model.dtype, model.device),
            Rotary(config, prompt + limit, rotary_dtype, model.dtype, model.device),
            core,
            NgramRule(ngram, prompt_ids),
        )

    def forward(self, model: OcrModel, embeddings: Tensor) -> Tensor:
        """Append (1, N, C) to the sequence. Returns logits of its last position, (V,) float32."""
        return model.decoder(embeddings, self.cache, self.rotary, self.core)[0, 0]

    def next_logits(self, model: OcrModel) -> Callable[[int], Tensor]:
        """Function that appends a token and returns the logits after it, (V,), until its next call."""
        if TokenStep.fits(model.decoder):
            choose_once(model.decoder)
            return TokenStep(model.decoder, self.cache, self.rotary, self.core).forward
        embed = model.decoder.embed_tokens
        return lambda token: self.forward(model, embed(torch.tensor([[token]], device=model.device)))


def generate(
    next_logits: Callable[[int], Tensor],
    logits: Tensor,
    rule: NgramRule,
    limit: int,
    eos: int,
    best: BestTwo | None = None,
) -> Iterator[int]:
    """Yield the greedy tokens after the prefill's `logits` (V,): up to the end token, `limit` at most."""
    for left in range(limit, 0, -1):
        token = greedy(logits, rule.banned(), best)
        yield token
        if token == eos or left == 1:
            return
        rule.push(token)
        logits = next_logits(token)  # (V,)


def finish_reason(tokens: Seq[int], eos: int) -> FinishReason:
    """Why the new tokens ended: "eos" or "length"."""
    return "eos" if tokens[-1] == eos else "length"
