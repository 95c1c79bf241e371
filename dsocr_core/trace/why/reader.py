"""Reader of one page under many settings with our engine. Shared parts are computed once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from dsocr_core.backends.on_device import shared_checkpoint
from dsocr_core.base.errors import Cancelled
from dsocr_core.engine.base import Engine, EngineOptions, Prefilled
from dsocr_core.engine.device import resolve_device, resolve_dtype
from dsocr_core.engine.fast import require_fast_engine
from dsocr_core.engine.fast.engine import ENGINES
from dsocr_core.engine.generate import finish_reason
from dsocr_core.page.documents import Page
from dsocr_core.page.tokenizer import Tokenizer
from dsocr_core.reading.records import CancelToken, FinishReason, ModelInputs, NgramPolicy
from dsocr_core.settings import Settings
from dsocr_core.trace.why.attempt import AS_PUBLISHED, Attempt, ModelChange

CHECKED_EVERY = 16
"""Tokens between two checks whether a reading has diverged from B."""
_RULE = ("no_repeat_ngram_size", "ngram_window", "ngram_whitelist")


@dataclass(frozen=True)
class Reading:
    """Text of a reading. `whole` is false where it was left early."""

    tokens: tuple[int, ...]
    text: str
    finish: FinishReason | None
    inputs: ModelInputs
    whole: bool = True


class Reader:
    """Reader for one thread; hold the device's lock."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.device = resolve_device(settings.device)
        self._engines: dict[tuple[str, ModelChange], Engine] = {}
        self._prefill: tuple[object, Engine, Prefilled] | None = None
        self.dtype = str(resolve_dtype(settings.dtype, self.device)).removeprefix("torch.")

    def attempt(self, page: Page) -> Attempt:
        """A's settings for a page, or for pages of one prompt."""
        return Attempt(self.settings.request(page.path, page.source, page.more), self.dtype)

    @property
    def special_texts(self) -> tuple[str, ...]:
        tokenizer = self._engine(self.dtype).checkpoint.tokenizer
        return tokenizer.special_texts if isinstance(tokenizer, Tokenizer) else ()

    def encode(self, text: str) -> list[int]:
        """Ids of a text; a model may have written it with other ids."""
        return self._engine(self.dtype).checkpoint.tokenizer.encode(text)

    def text(self, tokens: tuple[int, ...]) -> str:
        return self._engine(self.dtype).checkpoint.tokenizer.decode(tokens)

    def policy(self, attempt: Attempt) -> NgramPolicy:
        """N-gram rule of a reading, in ids."""
        return self._engine(self.dtype).ngram_policy(attempt.request)

    def read(
        self,
        attempt: Attempt,
        limit: int | None = None,
        goes_on: Callable[[str], bool] | None = None,
        cancel: CancelToken | None = None,
    ) -> Reading:
        """Read the page, at most `limit` tokens. It is left early where `goes_on` returns false for its text.

        Raises DsocrError and Cancelled.
        """
        engine, page = self._prefilled(attempt, cancel)
        limit = min(limit or page.page.limit, page.page.limit)
        tokenizer, tokens, whole = engine.checkpoint.tokenizer, list[int](), True
        with engine.decoding_again(page, attempt.request, limit) as new:
            for token in new:
                if cancel is not None and cancel.is_set():
                    raise Cancelled
                tokens.append(token)
                if goes_on and len(tokens) % CHECKED_EVERY == 0 and not goes_on(tokenizer.decode(tokens)):
                    whole = False
                    break
        finish = finish_reason(tokens, engine.end_token) if whole else None
        rule = {name: getattr(attempt.request, name) for name in _RULE}
        inputs = replace(page.page.recorded, **rule)
        return Reading(tuple(tokens), tokenizer.decode(tokens), finish, inputs, whole)

    def _prefilled(self, attempt: Attempt, cancel: CancelToken | None) -> tuple[Engine, Prefilled]:
        """Prefill of the page, shared by readings that differ only in the n-gram rule."""
        request = replace(attempt.request, no_repeat_ngram_size=0, ngram_window=0, ngram_whitelist=())
        # The page's name decides nothing.
        key = replace(attempt, request=replace(request, source=""))
        if self._prefill is None or self._prefill[0] != key:
            self._prefill = None
            engine = self._engine(attempt.dtype, attempt.altered)
            self._prefill = key, engine, engine.prefilled(request, cancel)
        return self._prefill[1:]

    def _engine(self, dtype: str, altered: ModelChange = AS_PUBLISHED) -> Engine:
        if (dtype, altered) not in self._engines:
            settings, name = self.settings, self.settings.engine
            if name == "fast":
                require_fast_engine(str(self.device))
                if dtype == "float16" or altered != AS_PUBLISHED:
                    name = "eager"  # the fast engine has no such kernels
            checkpoint = shared_checkpoint(settings.checkpoint, self.device, getattr(torch, dtype))
            rotary = altered.rotary or ("float32" if settings.rotary == "float32" else "")
            rounded = getattr(torch, rotary) if rotary else None
            options = EngineOptions(settings.own_attention, rounded, settings.max_pixels, top_two=False)
            self._engines[dtype, altered] = ENGINES[name](altered.checkpoint(checkpoint), options)
        return self._engines[dtype, altered]
