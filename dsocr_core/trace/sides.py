"""One side of a trace: a page read by one backend with taps, its tensors in a directory.

`eager` and `float32` have forward hooks, `fast` buffers of its graphs, `vendor` hooks in its worker.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from dsocr_core.base.errors import Cancelled
from dsocr_core.engine.base import EagerEngine, Engine, EngineOptions
from dsocr_core.engine.checkpoint import Checkpoint
from dsocr_core.engine.device import full_float32
from dsocr_core.engine.generate import Sequence as Decoding
from dsocr_core.engine.generate import greedy
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.models.blocks.attention import AttentionCore
from dsocr_core.models.devices import device_name
from dsocr_core.models.family import load_config, spec_of
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.taps.files import Recorder, fingerprint
from dsocr_core.models.taps.hooks import NewKeys, key_rows, tapped
from dsocr_core.models.weights import published_parameters
from dsocr_core.reading.records import CancelToken, OcrRequest
from dsocr_core.trace.names import taps_of
from dsocr_core.vendor.backend import VendorBackend

Way = Literal["eager", "fast", "float32", "vendor"]
OnCall = Callable[[int], None]


@dataclass(frozen=True)
class Task:
    """Work of one side: `steps` decode steps after the prefill, fed with `forced` tokens if any.

    `only` are the names to record."""

    request: OcrRequest
    steps: int
    directory: Path
    forced: tuple[int, ...] = ()
    only: tuple[str, ...] = ()
    on_call: OnCall = lambda call: None
    cancel: CancelToken | None = None
    about: dict[str, str] = field(default_factory=dict)

    @property
    def limit(self) -> int:
        """Number of new tokens: one of the prefill and one a step."""
        return len(self.forced) or self.steps + 1

    def check(self) -> None:
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled


def trace_engine(engine: Engine, task: Task, way: Way = "eager") -> tuple[int, ...]:
    """Record a page's tensors on an engine with hooks. Returns the new tokens. Raises DsocrError."""
    model = engine.checkpoint.model
    recorder = Recorder(task.directory, about_engine(engine, way) | task.about, task.only, task.check)
    timer = StageTimer(model.device, marks=Marks.NONE)
    tokens, eos = list[int](), engine.checkpoint.tokenizer.eos_token_id
    with engine.modes(), full_float32() if way == "float32" else nullcontext():
        page, pixels = engine.take_in(task.request, None, timer)
        core = tapped_core(engine.core, model.config.decoder.layers, recorder)
        sequence = Decoding.start(
            model, page.prompt.ids, task.limit, engine.ngram_policy(task.request), core, engine.rotary_dtype
        )
        with tapped_model(model, recorder):
            recorder.begin_call()
            logits = engine.prefill(page.prompt, pixels, sequence, timer, task.cancel)
            while True:
                task.on_call(len(tokens))
                token = task.forced[len(tokens)] if task.forced else greedy(logits, sequence.rule.banned())
                tokens.append(token)
                if len(tokens) == task.limit or (not task.forced and token == eos):
                    break
                sequence.rule.push(token)
                recorder.begin_call()
                fed = torch.tensor([[token]], device=model.device)
                logits = sequence.forward(model, model.decoder.embed_tokens(fed))
    recorder.close(prompt_ids=list(page.prompt.ids), token_ids=tokens, weights=weights_of_model(engine))
    return tuple(tokens)


def oracle_engine(engine: Engine) -> Engine:
    """Engine with the same weights in float32, the same pixels and rotary frequencies: the exact side."""
    held = engine.checkpoint
    exact = held.model.dtype == torch.float32
    model = held.model if exact else deepcopy(held.model).to(torch.float32)
    # flash-attn has no float32.
    attention = "sdpa" if engine.options.attention == "flash_attention_2" else engine.options.attention
    checkpoint = Checkpoint(held.source, held.config, model, held.tokenizer)
    options = EngineOptions(attention, engine.rotary_dtype, ignore_eos=True)
    return EagerEngine(checkpoint, options)


def about_engine(engine: Engine, way: Way) -> dict[str, Any]:
    """Facts about the run that made a dump."""
    checkpoint, device = engine.checkpoint, engine.checkpoint.model.device
    return {
        "backend": way, "checkpoint": checkpoint.source, "device": str(device),
        "device_name": device_name(device), "dtype": str(checkpoint.model.dtype).removeprefix("torch."),
        "attention": engine.options.attention,
        "rotary_dtype": str(engine.rotary_dtype).removeprefix("torch."),
        "versions": {"python": platform.python_version(), "torch": str(torch.__version__)},
    }  # fmt: skip


def weights_of_model(engine: Engine) -> dict[str, str]:
    """Fingerprints of the weights, by which both sides can be compared."""
    return {name: fingerprint(weight) for name, weight in published_parameters(engine.checkpoint.model)}


def trace_vendor(backend: VendorBackend, task: Task) -> tuple[int, ...]:
    """Read and record the page with the checkpoint's own code. Raises DsocrError."""
    request = replace(task.request, eval_mode=False, test_compress=False)
    config = load_config(backend.checkpoint)
    name_of, about = spec_of(config).published_name, {"checkpoint": str(backend.checkpoint), **task.about}
    taps = [(tap.name, name_of(f"{tap.module}.")[:-1], tap.at, tap.layout) for tap in taps_of(config)]
    return backend.trace(
        request, task.on_call, task.cancel, steps=task.steps, directory=str(task.directory.resolve()),
        taps=tuple(taps), forced=tuple(task.forced), only=tuple(task.only), about=about,
    )  # fmt: skip


@contextmanager
def tapped_model(model: OcrModel, recorder: Recorder) -> Iterator[None]:
    """Record what the model computes inside the block. The attention core is tapped by `tapped_core`."""
    taps = [tap for tap in taps_of(model.config) if tap.at not in ("keys", "queries")]
    with tapped(model, taps, recorder):
        model.decoder.whole_head = True
        try:
            yield
        finally:
            model.decoder.whole_head = False


def tapped_core(core: AttentionCore, layers: int, recorder: Recorder) -> AttentionCore:
    """Attention core that records rotated queries and new rotated keys, layer by layer."""
    calls, new = 0, NewKeys(recorder)

    def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        nonlocal calls
        name = f"decoder.layer{calls % layers}"
        calls += 1
        recorder.take(f"{name}.queries", key_rows(q[0]))
        new.take(f"{name}.keys", k, q.shape[2])
        return core(q, k, v)

    return attend
