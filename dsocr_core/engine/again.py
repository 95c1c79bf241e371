"""One prefill, several decodes: what only changes how a page is decoded costs neither vision nor prompt."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch import Tensor

from dsocr_core.base.errors import DsocrError
from dsocr_core.engine.base import Engine
from dsocr_core.engine.device import decode_threads
from dsocr_core.engine.generate import Sequence
from dsocr_core.engine.page import PageInputs
from dsocr_core.engine.sampling import NgramRule
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.reading.records import CancelToken, OcrRequest


@dataclass(frozen=True)
class Prefilled:
    """A page after its prefill. The engine's next prefill ends it."""

    page: PageInputs
    sequence: Sequence
    logits: Tensor
    """After the prompt, (V,) float32."""


def prefill(engine: Engine, request: OcrRequest, cancel: CancelToken | None = None) -> Prefilled:
    """Vision and prompt of a page. Raises DsocrError and Cancelled."""
    timer = StageTimer(engine.checkpoint.model.device, marks=Marks.NONE)
    with engine.modes():
        page, pixels = engine.take_in(request, None, timer)
        sequence = engine.start(page.prompt.ids, page.limit, engine.ngram_policy(request))
        sequence.best = None
        logits = engine.prefill(page.prompt, pixels, sequence, timer, cancel).clone()
    return Prefilled(page, sequence, logits)


@contextmanager
def decoding_again(
    engine: Engine, held: Prefilled, request: OcrRequest, limit: int
) -> Iterator[Iterator[int]]:
    """The new tokens of a prefilled page under a request that differs in its n-gram rule alone.

    The prompt's keys and values are never written again, so decoding starts from them as often as wanted.
    Raises DsocrError when `limit` is more than the prefill made space for.
    """
    if limit > held.page.limit:
        raise DsocrError(f"{limit} new tokens do not fit the {held.page.limit} of the prefill")
    prompt, first = held.page.prompt.ids, held.sequence
    first.cache.length = len(prompt)
    rule = NgramRule(engine.ngram_policy(request), prompt)
    sequence = Sequence(first.cache, first.rotary, first.core, rule)
    with engine.modes(), decode_threads(engine.checkpoint.model):
        yield engine.tokens(sequence, prompt, held.logits, limit)
