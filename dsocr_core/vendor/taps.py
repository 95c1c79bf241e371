"""Trace of the published code by forward hooks, its code unchanged. Runs in the worker.

Its `infer` prepares the page and calls `generate`. That call is made with the number of tokens asked for, fed
with the other side's tokens, and `infer` is left right after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import torch

from dsocr_core.models.taps.files import Recorder, fingerprint
from dsocr_core.models.taps.hooks import tapped
from dsocr_core.models.taps.table import At, Layout, Tap
from dsocr_core.vendor.errors import StoppedByCaller
from dsocr_core.vendor.observe import (
    limit_new_tokens,
    prompt_of,
    rotary_dtype,
    short_name,
    with_processor,
)
from dsocr_core.vendor.protocol import Message, Trace, Traced, TraceStep


class GenerateEnded(BaseException):
    """Raised after `generate` to leave `infer`, whose files are not needed."""


class ForcedTokens:
    """Logits processor that allows only the next of the given tokens. It comes after the published ones."""

    def __init__(self, tokens: Sequence[int]) -> None:
        self._tokens, self._next = tokens, 0

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        token = self._tokens[self._next]
        self._next += 1
        forced = torch.full_like(scores, float("-inf"))
        forced[:, token] = 0.0
        return forced


class TracedInfer:
    """One `infer` with taps. `send` gets progress messages; `stopped` is asked whether to leave."""

    def __init__(self, request: Trace, send: Callable[[Message], None], stopped: Callable[[], bool]) -> None:
        self.request, self._send, self._stopped = request, send, stopped
        self._prompt: list[int] = []
        self._tokens: list[int] = []

    @contextmanager
    def attached(self, model: Any, about: dict[str, Any]) -> Iterator[None]:
        """Tap the model within the block, which `generate` ends."""
        request = self.request
        own = {"dtype": short_name(model.dtype), "rotary_dtype": rotary_dtype(model)}
        about |= own | {"backend": "vendor", "attention": str(model.config._attn_implementation)}
        self._recorder = recorder = Recorder(Path(request.directory), about, request.only, self._check)
        taps = [Tap(name, path, cast(At, at), cast(Layout, how)) for name, path, at, how in request.taps]
        generate = model.generate
        model.generate = lambda *args, **kwargs: self._generate(generate, args, kwargs)

        def begins(_module: Any, _inputs: Any) -> None:
            recorder.begin_call()
            self._send(TraceStep(request.number, recorder.call))

        handle = model.register_forward_pre_hook(begins)
        try:
            with tapped(model, taps, recorder):
                yield
        except GenerateEnded as end:  # its frames hold tensors: from Python 3.12 on until a collection
            end.__traceback__ = None
        finally:
            handle.remove()
            del model.generate  # it hid the class's own

    def result(self, model: Any) -> Traced:
        """Close the dump. Raises RuntimeError where `infer` did not generate."""
        if not self._prompt:
            raise RuntimeError("infer returned without a call of generate")
        weights = {name: fingerprint(weight) for name, weight in model.named_parameters()}
        self._recorder.close(prompt_ids=self._prompt, token_ids=self._tokens, weights=weights)
        return Traced(self.request.number, tuple(self._tokens))

    def _generate(self, generate: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        request = self.request
        prompt = prompt_of(args, kwargs)
        self._prompt = prompt[0].tolist()
        limit_new_tokens(prompt, kwargs, len(request.forced) or request.steps + 1)
        kwargs["streamer"] = None
        if request.ngram_size is not None:
            kwargs["no_repeat_ngram_size"] = request.ngram_size
        if request.forced:
            kwargs["logits_processor"] = with_processor(kwargs, ForcedTokens(request.forced))
        output = generate(*args, **kwargs)
        self._tokens = output[0, prompt.shape[1] :].tolist()
        raise GenerateEnded

    def _check(self) -> None:
        if self._stopped():
            raise StoppedByCaller
