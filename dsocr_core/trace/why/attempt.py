"""A reading of ours with changes in the request, the number type, or the model.

Weights stay the same. Facts with their sources: docs/why.md. Hypotheses are listed in `models.hypotheses`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

from dsocr_core.engine.checkpoint import Checkpoint
from dsocr_core.models.hypotheses import Hypothesis
from dsocr_core.reading.records import OcrRequest


@dataclass(frozen=True)
class ModelChange:
    """Changes of a model that no setting makes. By default there is none."""

    full_attention: bool = False
    """True lets new tokens see all keys, without a window."""
    rotary: str = ""
    """Number type to which rotary frequencies are rounded; empty as published."""
    causal_encoder: bool = False

    def checkpoint(self, published: Checkpoint) -> Checkpoint:
        """The checkpoint with its model changed; weights are shared."""
        model = copy(published.model)
        if self.full_attention:
            model.config = replace(model.config, decoder=replace(model.config.decoder, window=None))
        if self.causal_encoder:
            encoder = copy(model.get_submodule("encoder"))
            vars(encoder).update(causal=True)
            model._modules = {**model._modules, "encoder": encoder}
        return replace(published, config=model.config, model=model)


AS_PUBLISHED = ModelChange()


@dataclass(frozen=True)
class Attempt:
    """Settings with which our engine reads the page."""

    request: OcrRequest
    dtype: str
    """`Settings.dtype`, with `auto` resolved."""
    altered: ModelChange = AS_PUBLISHED

    def under(self, hypotheses: Iterable[Hypothesis]) -> Attempt:
        """Copy with the changes of all hypotheses."""
        attempt = self
        for hypothesis in hypotheses:
            attempt = attempt.changed(hypothesis.change)
        return attempt

    def changed(self, change: Mapping[str, Any]) -> Attempt:
        """Copy with some fields changed. `reversed` puts the images into the opposite order."""
        own = {name: value for name, value in change.items() if name in vars(self.altered)}
        rest = {name: value for name, value in change.items() if name not in own}
        dtype = rest.pop("dtype", self.dtype)
        if rest.pop("reversed", False):
            first, *more = reversed(self.request.images)
            rest |= {"image": first, "more": tuple(more)}
        return Attempt(replace(self.request, **rest), dtype, replace(self.altered, **own))
