"""A reading of ours with some things set otherwise: by the request, the number type, or in the model.

Weights stay the same; windows, frequencies and masks are set as another engine has them. Facts with their
sources: docs/why.md. Hypotheses of a model are in its spec.

Letters: B batch, h heads, N new tokens, P positions, D head dim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor

from dsocr_core.engine.base import Engine
from dsocr_core.engine.checkpoint import Checkpoint
from dsocr_core.models.blocks.attention import AttentionCore
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.spec import Hypothesis, ngram_hypothesis
from dsocr_core.reading.records import ModelInputs, OcrRequest

Span = Literal["ring", "all", "sliding", "time"]
"""Keys that a new token sees: as published; all; the last of prompt and new tokens; the published ones in the
order of time.
"""


@dataclass(frozen=True)
class Altered:
    """Changes of a model. The default is none."""

    span: Span = "ring"
    window: int | Literal["half", "double"] = 0
    """Tokens more, or less, in the window."""
    rotary: str = ""
    """Number type to which the rotary frequencies are rounded; empty: as published."""
    causal_encoder: bool = False
    interpolated_queries: bool = False
    rule_over_prompt: bool | None = None
    """True to let a window of the n-gram rule reach into the prompt; None: as published."""

    def __bool__(self) -> bool:
        """Tell whether anything is changed."""
        return self != AS_PUBLISHED

    @property
    def rotary_dtype(self) -> torch.dtype | None:
        return getattr(torch, self.rotary) if self.rotary else None

    def checkpoint(self, held: Checkpoint) -> Checkpoint:
        """The checkpoint with its model changed; weights are shared."""
        if not self:
            return held
        model = copy(held.model)
        decoder = model.config.decoder
        model.config = replace(model.config, decoder=replace(decoder, window=self._ring(decoder.window)))
        if self.rule_over_prompt is not None:
            decoding = replace(model.family.decoding, window_over_prompt=self.rule_over_prompt)
            model.family = replace(model.family, decoding=decoding)
        if self.causal_encoder or self.interpolated_queries:
            self._change_encoder(model)
        return replace(held, config=model.config, model=model)

    def _change_encoder(self, model: OcrModel) -> None:
        encoder = copy(model.get_submodule("encoder"))
        vars(encoder).update(causal=self.causal_encoder, interpolates=self.interpolated_queries)
        model._modules = {**model._modules, "encoder": encoder}

    def _ring(self, window: int | None) -> int | None:
        """The ring of the cache; None where the core cuts the span out of all keys."""
        if window is None or self.span != "ring":
            return None
        if isinstance(self.window, int):
            return window + self.window
        return window // 2 if self.window == "half" else window * 2

    def change_core(self, engine: Engine, window: int | None) -> None:
        """Let the engine's attention see another span of `window` tokens."""
        if window is not None and self.span in ("sliding", "time"):
            engine.core = _Spanned(engine.core, window, keeps_prompt=self.span == "time")


AS_PUBLISHED = Altered()


class _Spanned:
    """A core that sees the last tokens alone, of all keys in the order of time, beside the prompt or not."""

    def __init__(self, core: AttentionCore, window: int, keeps_prompt: bool) -> None:
        self._core, self._window, self._keeps_prompt = core, window, keeps_prompt
        self._prompt = 0

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """(B, h, N, D), (B, h, P, D) twice -> (B, h, N, D)"""
        if q.shape[2] > 1:
            self._prompt = k.shape[2]
            return self._core(q, k, v)
        first = self._prompt if self._keeps_prompt else 0
        if k.shape[2] > first + self._window:
            k, v = (torch.cat([x[:, :, :first], x[:, :, -self._window :]], dim=2) for x in (k, v))
        return self._core(q, k, v)


@dataclass(frozen=True)
class Attempt:
    """Settings under which our engine is to read the page."""

    request: OcrRequest
    dtype: str
    """As `Settings.dtype`, resolved."""
    altered: Altered = AS_PUBLISHED
    """Changes of the model that no setting makes."""

    def changed(self, change: Mapping[str, Any]) -> Attempt:
        """The same with some fields set otherwise; `reversed` has the images in the opposite order."""
        own = {name: value for name, value in change.items() if name in vars(self.altered)}
        rest = {name: value for name, value in change.items() if name not in own}
        dtype, turned = rest.pop("dtype", self.dtype), rest.pop("reversed", False)
        if turned:
            first, *more = reversed(self.request.images)
            rest |= {"image": first, "more": tuple(more)}
        return Attempt(replace(self.request, **rest), dtype, replace(self.altered, **own))

    def under(self, hypotheses: Iterable[Hypothesis]) -> Attempt:
        """The same with the changes of all hypotheses."""
        attempt = self
        for hypothesis in hypotheses:
            attempt = attempt.changed(hypothesis.change)
        return attempt


def recorded_hypotheses(inputs: ModelInputs, attempt: Attempt) -> tuple[Hypothesis, ...]:
    """Differences that B itself has recorded: these come before any guess."""
    found = []
    theirs = (inputs.no_repeat_ngram_size, inputs.ngram_window, inputs.ngram_whitelist)
    request = attempt.request
    if theirs != (request.no_repeat_ngram_size, request.ngram_window, request.ngram_whitelist):
        found.append(ngram_hypothesis(*theirs))
    if inputs.dtype != attempt.dtype and inputs.dtype in ("bfloat16", "float16", "float32"):
        found.append(Hypothesis(f"dtype-{inputs.dtype}", inputs.dtype, "dtype", {"dtype": inputs.dtype}))
    return tuple(found)
