"""The eager engine: the published order of operations, a forward pass a token."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from dsocr_core.engine.base import Engine
from dsocr_core.engine.generate import BestTwo, Sequence, generate
from dsocr_core.reading.records import NgramPolicy


class EagerEngine(Engine):
    """One forward pass a token, its logits read at once; with `top_two` the two best are recorded."""

    name = "eager"

    def start(self, prompt_ids: tuple[int, ...], limit: int, ngram: NgramPolicy | int) -> Sequence:
        model = self.checkpoint.model
        sequence = Sequence.start(model, prompt_ids, limit, ngram, self.core, self.rotary_dtype)
        sequence.best = BestTwo() if self.options.top_two else None
        return sequence

    def tokens(
        self, sequence: Sequence, prompt_ids: tuple[int, ...], logits: Tensor, limit: int
    ) -> Iterator[int]:
        following = sequence.next_logits(self.checkpoint.model)
        return generate(following, logits, sequence.rule, limit, self.end_token, sequence.best)
