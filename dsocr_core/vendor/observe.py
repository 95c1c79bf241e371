"""Observing one call of the vendor's `infer` from outside: its code is not changed.

The model's bound `generate` is wrapped for the duration of the run, stage times come from forward
hooks. Runs in the worker process.
"""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dsocr_core.models.family import MODELS
from dsocr_core.vendor.protocol import (
    Message,
    Page,
    Recognize,
    Result,
    StageEnded,
    StageStarted,
    Text,
    Timing,
)

STAGE_MODULES = {stage.name: stage.module for row in MODELS.values() for stage in row.vision}
"""Stage name -> attribute of the inner model, published names; a model lacks those of others."""

TEXT_INTERVAL_S = 0.05


class StoppedByCaller(BaseException):
    """Raised inside the vendor's code to leave it; its own `except Exception` must not catch it."""


class UnlikeInfer(RuntimeError):
    """The code does something that the published `infer` does not, so what was seen may not be all."""


class DeviceClock:
    """Points in device time: CUDA events on a GPU, so that nothing waits; else the host's clock."""

    def __init__(self, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"

    def now(self) -> Any:
        if not self.on_gpu:
            return time.perf_counter()
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def milliseconds(self, start: Any, end: Any) -> float:
        if not self.on_gpu:
            return float(end - start) * 1e3
        end.synchronize()
        return float(start.elapsed_time(end))


class Observation:
    """Observation of one `infer` call. `send` takes progress messages, `stopped` tells it to leave."""

    def __init__(
        self, request: Recognize, send: Callable[[Message], None], stopped: Callable[[], bool]
    ) -> None:
        self.request, self.send, self.stopped = request, send, stopped
        self.inputs: dict[str, Any] = {}
        self.overridden: list[str] = []
        self.new_ids: list[int] = []
        self.best = BestTwo() if request.top_two else None
        self.counter: Any = None
        """torch's FlopCounterMode where FLOPs are counted."""
        self.flops: dict[str, list[int]] = {}
        self.forwards = 0
        self._milliseconds: dict[str, float] = {}
        self._calls: dict[str, int] = {}
        self._unsettled: list[tuple[str, Any, Any]] = []
        self._infer_began = self._generate_ended = 0.0
        self._prefill_began: Any = None
        self._decode_began: Any = None

    # --- around infer ---------------------------------------------------------------------------

    @contextmanager
    def attached(self, model: Any, tokenizer: Any) -> Iterator[None]:
        """Observe what the two do inside the block."""
        self.clock = DeviceClock(model.device)
        generate, encode = model.generate, tokenizer.encode
        model.generate = lambda *args, **kwargs: self._generate(generate, tokenizer, args, kwargs)
        tokenizer.encode = lambda *args, **kwargs: self._encode(encode, args, kwargs)
        handles = [
            handle
            for stage, name in STAGE_MODULES.items()
            if (module := getattr(getattr(model, "model", None), name, None)) is not None
            for handle in self._hooks(module, stage)
        ]
        if self.request.count_flops:
            handles += self._counts(model, "forward")
        handles += [
            model.register_forward_pre_hook(self._forward_begins),
            model.register_forward_hook(self._forward_ended),
        ]
        self._infer_began = time.perf_counter()
        self.send(StageStarted(self.request.number, "preprocess"))
        try:
            yield
        finally:
            # Both hide a method of the class: deleting them restores it.
            del model.generate, tokenizer.encode
            for handle in handles:
                handle.remove()

    @property
    def generated(self) -> bool:
        """Tell whether `infer` came as far as all its new tokens."""
        return self._generate_ended > 0.0

    def result(
        self, model: Any, tokenizer: Any, image_sizes: list[tuple[int, int]], postprocess_error: str = ""
    ) -> Result:
        """All that was seen, once `infer` has ended. Raises UnlikeInfer when it never generated."""
        self._host_stage("postprocess", time.perf_counter() - self._generate_ended)
        if not self.inputs:
            raise UnlikeInfer("infer returned without a call of generate")
        text = tokenizer.decode(self.new_ids)
        counted = (
            len(tokenizer.encode(text, add_special_tokens=False)) if self.request.test_compress else None
        )
        top_ids, top_logits = self.best.steps(self.new_ids) if self.best else ([], [])
        return Result(
            number=self.request.number,
            image_sizes=[list(size) for size in image_sizes],
            text_raw=text,
            token_ids=self.new_ids,
            token_texts=[tokenizer.decode([token]) for token in self.new_ids],
            finish_reason="eos" if self.new_ids[-1:] == [tokenizer.eos_token_id] else "length",
            attention=str(model.config._attn_implementation),
            dtype=short_name(model.dtype),
            rotary_dtype=rotary_dtype(model),
            timings=[
                Timing(stage, milliseconds, self._calls[stage])
                for stage, milliseconds in self._milliseconds.items()
            ],
            overridden=self.overridden,
            top_ids=top_ids,
            top_logits=top_logits,
            text_tokens=counted,
            flops=self.flops,
            postprocess_error=postprocess_error,
            **self.inputs,
        )

    # --- around generate ------------------------------------------------------------------------

    def _generate(
        self, generate: Callable[..., Any], tokenizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self.inputs:
            raise UnlikeInfer("infer called generate twice; only one call can be observed")
        preprocess_s = (
            time.perf_counter() - self._infer_began - self._milliseconds.get("tokenizer", 0.0) / 1e3
        )
        self._host_stage("preprocess", preprocess_s)
        if "tokenizer" in self._milliseconds:
            self.send(StageStarted(self.request.number, "tokenizer"))
            self.send(StageEnded(self.request.number, "tokenizer", self._milliseconds["tokenizer"]))
        prompt: Any = args[0] if args else kwargs.get("inputs", kwargs.get("input_ids"))
        self._override(prompt, kwargs)
        self.inputs = seen_inputs(prompt, kwargs, self.request.page)
        kwargs["streamer"] = StreamTap(self, tokenizer, kwargs.get("streamer"))
        if self.best is not None:
            kwargs["logits_processor"] = self.best.after(kwargs.get("logits_processor"))
        self._check()
        output = generate(*args, **kwargs)
        self._settle()
        if self._decode_began is not None:
            milliseconds = self.clock.milliseconds(self._decode_began, self.clock.now())
            self._add("decode", milliseconds, calls=self.forwards - 1)
            self.send(StageEnded(self.request.number, "decode", milliseconds))
        self.new_ids = output[0, prompt.shape[1] :].tolist()
        self._generate_ended = time.perf_counter()
        self.send(StageStarted(self.request.number, "postprocess"))
        return output

    def _override(self, prompt: torch.Tensor, kwargs: dict[str, Any]) -> None:
        """Apply what the request sets differently from the vendor: fewer tokens, another n-gram size."""
        wanted, page = self.request.max_new_tokens, self.request.page
        if wanted is not None and wanted < most_new_tokens(prompt, kwargs):
            self.overridden.append(limit_new_tokens(prompt, kwargs, wanted))
        ngram = None if page.ngram_window else page.no_repeat_ngram_size
        if ngram is not None and ngram != kwargs.get("no_repeat_ngram_size", 0):
            kwargs["no_repeat_ngram_size"] = ngram
            self.overridden.append("no_repeat_ngram_size")

    def _encode(self, encode: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        began = time.perf_counter()
        ids = encode(*args, **kwargs)
        if not self.inputs:  # later calls count words of the answer
            self._add("tokenizer", (time.perf_counter() - began) * 1e3)
        return ids

    # --- hooks ----------------------------------------------------------------------------------

    def _hooks(self, module: torch.nn.Module, stage: str) -> list[Any]:
        starts: list[Any] = []

        def begins(_module: Any, _inputs: Any) -> None:
            self._check()
            self.send(StageStarted(self.request.number, stage))
            starts.append(self.clock.now())

        def ended(_module: Any, _inputs: Any, _output: Any) -> None:
            self._device_stage(stage, starts.pop())

        counts = self._counts(module, stage) if self.request.count_flops else []
        return [module.register_forward_pre_hook(begins), module.register_forward_hook(ended), *counts]

    def _counts(self, module: torch.nn.Module, name: str) -> list[Any]:
        """Hooks that note the FLOPs of each call of the module."""
        starts: list[int] = []

        def begins(_module: Any, _inputs: Any) -> None:
            starts.append(self.counter.get_total_flops())

        def ended(_module: Any, _inputs: Any, _output: Any) -> None:
            self.flops.setdefault(name, []).append(self.counter.get_total_flops() - starts.pop())

        return [module.register_forward_pre_hook(begins), module.register_forward_hook(ended)]

    def _forward_begins(self, _module: Any, _inputs: Any) -> None:
        self._check()
        if self.forwards == 0:
            self.send(StageStarted(self.request.number, "prefill"))
            self._prefill_began = self.clock.now()

    def _forward_ended(self, _module: Any, _inputs: Any, _output: Any) -> None:
        self.forwards += 1
        if self.forwards == 1:
            self._device_stage("prefill", self._prefill_began)
            self._decode_began = self.clock.now()
            self.send(StageStarted(self.request.number, "decode"))

    def tokens_arrived(self) -> None:
        """The device has finished what was launched before; called for each new token."""
        self._check()
        self._settle()

    def _check(self) -> None:
        if self.stopped():
            raise StoppedByCaller

    # --- book-keeping ---------------------------------------------------------------------------

    def _device_stage(self, stage: str, start: Any) -> None:
        """A stage whose end is still queued on the device; reported once the device has reached it."""
        self._unsettled.append((stage, start, self.clock.now()))
        if not self.clock.on_gpu:
            self._settle()

    def _settle(self) -> None:
        for stage, start, end in self._unsettled:
            milliseconds = self.clock.milliseconds(start, end)
            self._add(stage, milliseconds)
            self.send(StageEnded(self.request.number, stage, milliseconds))
        self._unsettled.clear()

    def _host_stage(self, stage: str, seconds: float) -> None:
        self._add(stage, seconds * 1e3)
        self.send(StageEnded(self.request.number, stage, seconds * 1e3))

    def _add(self, stage: str, milliseconds: float, calls: int = 1) -> None:
        self._milliseconds[stage] = self._milliseconds.get(stage, 0.0) + milliseconds
        self._calls[stage] = self._calls.get(stage, 0) + calls


class StreamTap:
    """Stands in for the vendor's streamer: passes everything on, sends text, checks for a stop."""

    def __init__(self, observation: Observation, tokenizer: Any, inner: Any) -> None:
        self._observation, self._inner = observation, inner
        self._tokens = -1  # the first call brings the prompt
        self._text: list[str] = []
        self._sent_at = 0.0
        self._decoder: Any = None
        if observation.request.stream_text:
            from transformers import TextStreamer

            self._decoder = TextStreamer(tokenizer, skip_prompt=True, skip_special_tokens=False)
            self._decoder.on_finalized_text = lambda text, stream_end=False: self._text.append(text)

    def put(self, value: Any) -> None:
        self._tokens += 1
        if self._tokens:
            self._observation.tokens_arrived()
        if self._inner is not None:
            self._inner.put(value)
        if self._decoder is not None:
            self._decoder.put(value)
            if time.perf_counter() - self._sent_at >= TEXT_INTERVAL_S:
                self._flush()

    def end(self) -> None:
        if self._inner is not None:
            self._inner.end()
        if self._decoder is not None:
            self._decoder.end()
            self._flush()

    def _flush(self) -> None:
        if any(self._text):
            self._observation.send(Text(self._observation.request.number, "".join(self._text), self._tokens))
            self._text.clear()
        self._sent_at = time.perf_counter()


class BestTwo:
    """A logits processor that changes nothing and records each step's two best logits.

    transformers calls a caller's processors after its own, so these are the logits without what the n-gram
    rule forbids, of which greedy search then takes the best. They stay on the device until the end; all
    logits of a page would be gigabytes.
    """

    def __init__(self) -> None:
        self._ids: list[torch.Tensor] = []
        self._logits: list[torch.Tensor] = []

    def after(self, processors: Any) -> Any:
        """The list of processors with this one at its end."""
        from transformers import LogitsProcessorList

        return LogitsProcessorList([*(processors or ()), self])

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        chosen = scores.argmax(dim=1, keepdim=True)  # (1, 1), of (1, V)
        rest = scores.scatter(1, chosen, float("-inf")).max(dim=1, keepdim=True)
        self._ids += [chosen, rest.indices]
        self._logits += [scores.gather(1, chosen), rest.values]
        return scores

    def steps(self, tokens: list[int]) -> tuple[list[int], list[float]]:
        """Ids and logits, two a step, up to the first step that is not finite or chose otherwise."""
        if not self._ids:
            return [], []
        ids, logits = torch.cat(self._ids).flatten().tolist(), torch.cat(self._logits).flatten().tolist()
        count = next(
            (
                step
                for step, token in enumerate(tokens)
                if ids[2 * step : 2 * step + 1] != [token]
                or not all(map(math.isfinite, logits[2 * step : 2 * step + 2]))
            ),
            len(tokens),
        )
        return ids[: 2 * count], logits[: 2 * count]


def most_new_tokens(prompt: torch.Tensor, kwargs: dict[str, Any]) -> int:
    """The limit of a call of `generate`, which may be one of the prompt and the new tokens together."""
    if (most := kwargs.get("max_new_tokens")) is not None:
        return int(most)
    return int(kwargs.get("max_length", sys.maxsize)) - prompt.shape[1]


def limit_new_tokens(prompt: torch.Tensor, kwargs: dict[str, Any], count: int) -> str:
    """Set that limit, by the argument that has it; returns its name."""
    name = "max_length" if "max_length" in kwargs else "max_new_tokens"
    kwargs[name] = count + (prompt.shape[1] if name == "max_length" else 0)
    return name


def seen_inputs(prompt: torch.Tensor, kwargs: dict[str, Any], page: Page) -> dict[str, Any]:
    """The fields of `Result` that describe what went into `generate`."""
    tiles, view = kwargs["images"][0]
    return {
        "prompt_ids": prompt[0].tolist(),
        "image_mask": runs(kwargs["images_seq_mask"][0].tolist()),
        "grid": kwargs["images_spatial_crop"][0].tolist(),
        "global_shape": list(view.shape),
        "global_sha256": bf16_sha256(view),
        "tiles_shape": list(tiles.shape),
        "tiles_sha256": bf16_sha256(tiles),
        # A rule with a window is a processor, whose size and window are those that `infer` was given.
        "no_repeat_ngram_size": int(kwargs.get("no_repeat_ngram_size", page.no_repeat_ngram_size or 0)),
        "ngram_window": page.ngram_window,
        "max_new_tokens": most_new_tokens(prompt, kwargs),
    }


def runs(mask: list[bool]) -> list[list[int]]:
    """The true positions as [start, length] runs."""
    found: list[list[int]] = []
    for position, inside in enumerate(mask):
        if inside and found and sum(found[-1]) == position:
            found[-1][1] += 1
        elif inside:
            found.append([position, 1])
    return found


def bf16_sha256(tensor: torch.Tensor) -> str:
    """SHA-256 of the tensor's bytes as bfloat16, little endian."""
    stored = tensor.detach().to("cpu", torch.bfloat16).contiguous().view(torch.int16).numpy()
    return hashlib.sha256(stored.astype("<i2", copy=False).tobytes()).hexdigest()


def rotary_dtype(model: Any) -> str:
    """Dtype that the rotary inverse frequencies were rounded to; empty when they are not found."""
    for name, buffer in model.named_buffers():
        if name.endswith("inv_freq"):
            return short_name(buffer.dtype)
    return ""


def short_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
