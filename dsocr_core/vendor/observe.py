"""Observation of one call of the published `infer`, in the worker, without changing its code.

The model's bound `generate` is wrapped during the call, and stage times come from forward hooks.
"""

from __future__ import annotations

import hashlib
import itertools
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from transformers import LogitsProcessorList, TextStreamer

from dsocr_core.models.blocks.decoder import BestTwo
from dsocr_core.models.family import MODELS
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import TopTwo, top_two_steps
from dsocr_core.vendor.errors import StoppedByCaller
from dsocr_core.vendor.protocol import Message, Recognize, StageProgress, Text

_STAGE_MODULES = {item for spec in MODELS.values() for item in spec.vision.items()}
"""Stages, and their attributes in the published inner model. A model has only some of them."""


class UnlikeInfer(RuntimeError):
    """The code does what the published `infer` does not, so the observation may be incomplete."""


class StageTimes:
    """Times of the stages, sent when they are known. On a GPU they are between CUDA events (`settle`)."""

    def __init__(self, device: torch.device, send: Callable[[str, float | None], None]) -> None:
        self._on_gpu, self._send = device.type == "cuda", send
        self._rows: dict[str, dict[str, Any]] = {}
        self._begun: dict[str, Any] = {}
        self._ended: list[tuple[str, Any, Any, int]] = []

    def _now(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event: Any = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def begin(self, stage: str) -> None:
        self._send(stage, None)
        self._begun[stage] = self._now()

    def end(self, stage: str, calls: int = 1) -> None:
        """End a stage after its launches, which the device may not have finished."""
        self._ended.append((stage, self._begun.pop(stage), self._now(), calls))
        if not self._on_gpu:
            self.settle()

    def settle(self) -> None:
        """Add the stages that the device has finished."""
        for stage, start, end, calls in self._ended:
            if self._on_gpu:
                end.synchronize()
            self.add(stage, start.elapsed_time(end) if self._on_gpu else (end - start) * 1e3, calls)
        self._ended.clear()

    def add(self, stage: str, milliseconds: float, calls: int = 1) -> None:
        """Add a stage that ran on the host."""
        row = self._rows.setdefault(stage, {"stage": stage, "milliseconds": 0.0, "calls": 0})
        row["milliseconds"] += milliseconds
        row["calls"] += calls
        self._send(stage, milliseconds)

    def rows(self) -> list[dict[str, Any]]:
        return [self._rows[stage] for stage in Stage if stage in self._rows]


class Observation:
    """Observation of one `infer`. `send` gets progress messages; `stopped` is asked whether to leave."""

    def __init__(
        self, request: Recognize, send: Callable[[Message], None], stopped: Callable[[], bool]
    ) -> None:
        self.request, self.send, self.stopped = request, send, stopped
        self.inputs: dict[str, Any] = {}
        self.overridden: list[str] = []
        self.new_ids: list[int] = []
        self.best = BestTwoProcessor() if request.top_two else None
        self.counter: Any = None
        """torch's FlopCounterMode, if FLOPs are counted."""
        self.flops: dict[str, list[int]] = {}
        self.forwards, self._infer_began, self._generate_ended = 0, 0.0, 0.0
        self._encoding_ms: list[float] = []

    # --- around infer ---------------------------------------------------------------------------

    @contextmanager
    def attached(self, model: Any, tokenizer: Any) -> Iterator[None]:
        """Observe the model and the tokenizer within the block."""
        number = self.request.number
        self.times = StageTimes(model.device, lambda *at: self.send(StageProgress(number, *at)))
        generate, encode = model.generate, tokenizer.encode
        model.generate = lambda *args, **kwargs: self._generate(generate, tokenizer, args, kwargs)
        tokenizer.encode = lambda *args, **kwargs: self._encode(encode, args, kwargs)
        inner = getattr(model, "model", None)
        found = [(getattr(inner, name, None), stage) for stage, name in _STAGE_MODULES]
        watched = [(module, stage) for module, stage in found if module is not None]
        handles = [handle for module, stage in watched for handle in self._stage_hooks(module, stage)]
        if self.request.count_flops:
            handles += [handle for of in (*watched, (model, "forward")) for handle in self._count_hooks(*of)]
        handles += _hooks(model, self._forward_begins, self._forward_ended)
        self._infer_began = time.perf_counter()
        self._announce("preprocess")
        try:
            yield
        finally:
            # Both attributes hide a method of the class; deleting them restores it.
            del model.generate, tokenizer.encode
            for handle in handles:
                handle.remove()

    @property
    def generated(self) -> bool:
        """True when `infer` has all its new tokens."""
        return self._generate_ended > 0.0

    def result(self, model: Any, tokenizer: Any) -> dict[str, Any]:
        """Fields of an `OcrResult`, after `infer`. Raises UnlikeInfer where it did not generate."""
        self.times.add("postprocess", (time.perf_counter() - self._generate_ended) * 1e3)
        if not self.inputs:
            raise UnlikeInfer("infer returned without a call of generate")
        text, text_tokens = tokenizer.decode(self.new_ids), None
        if self.request.arguments.get("test_compress"):
            text_tokens = len(tokenizer.encode(text, add_special_tokens=False))
        own = {"dtype": short_name(model.dtype), "rotary_dtype": rotary_dtype(model)}
        return {
            "text_raw": text,
            "token_ids": self.new_ids,
            "token_texts": [tokenizer.decode([token]) for token in self.new_ids],
            "finish_reason": "eos" if self.new_ids[-1:] == [tokenizer.eos_token_id] else "length",
            "inputs": {**self.inputs, **own, "attention": str(model.config._attn_implementation)},
            "timings": self.times.rows(),
            "top_two": self.best.steps(self.new_ids) if self.best else [],
            "text_tokens": text_tokens,
        }

    # --- around generate ------------------------------------------------------------------------

    def _generate(
        self, generate: Callable[..., Any], tokenizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        if self.inputs:
            raise UnlikeInfer("infer called generate twice; only one call can be observed")
        encoding_ms = sum(self._encoding_ms)
        self.times.add("preprocess", (time.perf_counter() - self._infer_began) * 1e3 - encoding_ms)
        if self._encoding_ms:
            self._announce("tokenizer")
            self.times.add("tokenizer", encoding_ms, len(self._encoding_ms))
        prompt = prompt_of(args, kwargs)
        self._override(prompt, kwargs)
        self.inputs = recorded_inputs(prompt, kwargs, self.request.arguments)
        kwargs["streamer"] = StreamTap(self, tokenizer, kwargs.get("streamer"))
        if self.best is not None:
            kwargs["logits_processor"] = with_processor(kwargs, self.best)
        self._check()
        output = generate(*args, **kwargs)
        if self.forwards:
            self.times.end("decode", self.forwards - 1)
        self.times.settle()
        self.new_ids = output[0, prompt.shape[1] :].tolist()
        self._generate_ended = time.perf_counter()
        self._announce("postprocess")
        return output

    def _override(self, prompt: torch.Tensor, kwargs: dict[str, Any]) -> None:
        """Put the request's token limit and n-gram size in place of the published ones."""
        wanted, ngram = self.request.max_new_tokens, self.request.ngram_size
        if wanted is not None and wanted < most_new_tokens(prompt, kwargs):
            self.overridden.append(limit_new_tokens(prompt, kwargs, wanted))
        if ngram not in (None, kwargs.get("no_repeat_ngram_size", 0)):
            kwargs["no_repeat_ngram_size"] = ngram
            self.overridden.append("no_repeat_ngram_size")

    def _encode(self, encode: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        began = time.perf_counter()
        ids = encode(*args, **kwargs)
        if not self.inputs:  # later calls count words of the answer
            self._encoding_ms.append((time.perf_counter() - began) * 1e3)
        return ids

    # --- hooks ----------------------------------------------------------------------------------

    def _stage_hooks(self, module: torch.nn.Module, stage: str) -> list[Any]:
        def begins() -> None:
            self._check()
            self.times.begin(stage)

        return _hooks(module, begins, lambda: self.times.end(stage))

    def _count_hooks(self, module: torch.nn.Module, name: str) -> list[Any]:
        starts: list[int] = []

        def ended() -> None:
            self.flops.setdefault(name, []).append(self.counter.get_total_flops() - starts.pop())

        return _hooks(module, lambda: starts.append(self.counter.get_total_flops()), ended)

    def _forward_begins(self) -> None:
        self._check()
        if self.forwards == 0:
            self.times.begin("prefill")

    def _forward_ended(self) -> None:
        self.forwards += 1
        if self.forwards == 1:
            self.times.end("prefill")
            self.times.begin("decode")

    def token_arrived(self) -> None:
        """Called at each new token, when the device has finished all earlier work."""
        self._check()
        self.times.settle()

    def _check(self) -> None:
        if self.stopped():
            raise StoppedByCaller

    def _announce(self, stage: str) -> None:
        self.send(StageProgress(self.request.number, stage, None))


def _hooks(module: torch.nn.Module, begins: Callable[[], None], ended: Callable[[], None]) -> list[Any]:
    """Add hooks before and after each call of a module. Returns their handles."""
    before = module.register_forward_pre_hook(lambda _module, _inputs: begins())
    return [before, module.register_forward_hook(lambda _module, _inputs, _output: ended())]


class StreamTap(TextStreamer):  # type: ignore[misc]
    """Streamer in place of the published one: passes all on, sends text, checks for a stop."""

    def __init__(self, observation: Observation, tokenizer: Any, inner: Any) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=False)
        self._observation, self._inner, self._prompt_came = observation, inner, False

    def put(self, value: Any) -> None:
        if self._prompt_came:
            self._observation.token_arrived()
        self._prompt_came = True
        if self._inner is not None:
            self._inner.put(value)
        if self._observation.request.stream_text:
            super().put(value)

    def end(self) -> None:
        if self._inner is not None:
            self._inner.end()
        if self._observation.request.stream_text:
            super().end()

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        if text:
            self._observation.send(Text(self._observation.request.number, text))


class BestTwoProcessor(BestTwo):
    """Logits processor that records each step's two best logits and changes nothing.

    transformers calls a caller's processors after its own, so banned tokens are out already.
    """

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        self.add(scores[0], scores[0].argmax())
        return scores

    def steps(self, tokens: list[int]) -> list[TopTwo]:
        """Steps up to the first that has no margin, or whose best was not chosen."""
        steps = zip(top_two_steps(*self.pairs()), tokens, strict=False)
        return [step for step, _ in itertools.takewhile(lambda each: each[0].ids[0] == each[1], steps)]


# --- a call of generate -----------------------------------------------------------------------------


def prompt_of(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Prompt of a call of `generate`, (1, N)."""
    return args[0] if args else kwargs.get("inputs", kwargs.get("input_ids"))


def with_processor(kwargs: Mapping[str, Any], processor: Any) -> Any:
    """Logits processors of the call, with one more."""
    return LogitsProcessorList([*(kwargs.get("logits_processor") or ()), processor])


def most_new_tokens(prompt: torch.Tensor, kwargs: Mapping[str, Any]) -> int:
    """Limit of new tokens of the call, whose `max_length` counts the prompt."""
    if (most := kwargs.get("max_new_tokens")) is not None:
        return int(most)
    return int(kwargs.get("max_length", sys.maxsize)) - prompt.shape[1]


def limit_new_tokens(prompt: torch.Tensor, kwargs: dict[str, Any], count: int) -> str:
    """Set the limit of new tokens. Returns the name of its argument."""
    name = "max_length" if "max_length" in kwargs else "max_new_tokens"
    kwargs[name] = count + (prompt.shape[1] if name == "max_length" else 0)
    return name


def recorded_inputs(prompt: torch.Tensor, kwargs: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """Fields of `ModelInputs` from the arguments of `generate`."""
    tiles, view = kwargs["images"][0]
    # A rule with a window is a processor; its values are arguments of `infer`.
    ngram = kwargs.get("no_repeat_ngram_size", arguments.get("no_repeat_ngram_size", 0))
    return {
        "prompt_ids": prompt[0].tolist(),
        "image_mask": runs(kwargs["images_seq_mask"][0].tolist()),
        "grid": kwargs["images_spatial_crop"][0].tolist(),
        "global_shape": list(view.shape), "global_sha256": bf16_sha256(view),
        "tiles_shape": list(tiles.shape), "tiles_sha256": bf16_sha256(tiles),
        "no_repeat_ngram_size": int(ngram), "ngram_window": arguments.get("ngram_window", 0),
        "max_new_tokens": most_new_tokens(prompt, kwargs),
    }  # fmt: skip


def runs(mask: list[bool]) -> list[list[int]]:
    """Runs of true positions, as [start, length]."""
    found, start = list[list[int]](), 0
    for inside, group in itertools.groupby(mask):
        length = len(list(group))
        found += [[start, length]] if inside else []
        start += length
    return found


def bf16_sha256(tensor: torch.Tensor) -> str:
    """SHA-256 of the tensor's bytes as bfloat16, little endian."""
    stored = tensor.detach().to("cpu", torch.bfloat16).contiguous().view(torch.int16).numpy()
    return hashlib.sha256(stored.astype("<i2", copy=False).tobytes()).hexdigest()


def rotary_dtype(model: Any) -> str:
    """Dtype to which inverse rotary frequencies were rounded; empty where they are not found."""
    buffers = (short_name(each.dtype) for name, each in model.named_buffers() if name.endswith("inv_freq"))
    return next(buffers, "")


def short_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
