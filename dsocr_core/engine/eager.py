"""The eager engine: the published order of operations, a forward pass a token."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dsocr_core.engine.base import Engine, EngineOptions
from dsocr_core.engine.checkpoint import Checkpoint
from dsocr_core.engine.generate import Sequence, decode
from dsocr_core.engine.sampling import BestTwo
from dsocr_core.models.blocks.attention import AttentionCore
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.reading.records import CancelToken, FinishReason, NgramPolicy


class EagerDecoder:
    """One forward pass a token, its logits read at once; with `top_two` the two best are recorded."""

    def __init__(
        self, model: OcrModel, eos_token_id: int, rotary_dtype: torch.dtype, top_two: bool = True
    ) -> None:
        self._model, self._eos, self._rotary_dtype = model, eos_token_id, rotary_dtype
        self._top_two = top_two

    def start(
        self, prompt_ids: tuple[int, ...], limit: int, ngram: NgramPolicy | int, core: AttentionCore
    ) -> Sequence:
        sequence = Sequence.start(self._model, prompt_ids, limit, ngram, core, self._rotary_dtype)
        sequence.best = BestTwo() if self._top_two else None
        return sequence

    def decode(
        self,
        sequence: Sequence,
        prompt_ids: tuple[int, ...],
        logits: Tensor,
        limit: int,
        on_token: Callable[[int], None],
        cancel: CancelToken | None,
    ) -> tuple[list[int], FinishReason]:
        return decode(self._model, sequence, logits, limit, self._eos, on_token, cancel)


class EagerEngine(Engine):
    """The published order of operations: same autocast, explicit prefill and decode."""

    name = "eager"

    def __init__(self, checkpoint: Checkpoint, options: EngineOptions | None = None) -> None:
        super().__init__(checkpoint, options)
        self._decoder = EagerDecoder(
            checkpoint.model, self.end_token, self.rotary_dtype, self.options.top_two
        )
