"""The fast engine's taps: what lies in its graphs' own buffers.

A host's hook sees nothing inside a CUDA graph, so the copies are recorded with it: the operations between
matrix products, and the kernels of a decode step, each leave a copy of what they wrote in a buffer that stays
where it is. After a replay it is read. What one kernel does whole has no value between.

Letters: M patches of all views, N tokens, C width, h heads, D head dim, k experts a token, I inner width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dsocr_core.config import ModelConfig
from dsocr_core.dump.files import DumpWriter
from dsocr_core.dump.hooks import Recorder, key_rows
from dsocr_core.engine.backend import Engine
from dsocr_core.engine.fast.graph import StepGraph, recorder_for
from dsocr_core.engine.fast.ops import Ops
from dsocr_core.engine.fast.packed import MixtureWeights, PackedDecoder
from dsocr_core.engine.fast.prefill import FastPrefill
from dsocr_core.engine.fast.prompt_graphs import PromptGraphs
from dsocr_core.engine.fast.step import DecodeStep
from dsocr_core.engine.fast.vision import Groups, VisionTowers
from dsocr_core.engine.fast.vision_pass import FastVision
from dsocr_core.engine.generate import NO_TOKEN
from dsocr_core.engine.sampling import NgramRule, greedy
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.kernels import route_tokens
from dsocr_core.kernels.rms_norm import rms_norm_reference
from dsocr_core.model.attention import AttentionCore, Rotary
from dsocr_core.trace.sides import Task, about_engine, weights_of_model


@dataclass(frozen=True)
class Event:
    """One operation's copies, by what they are."""

    kind: str
    tensors: dict[str, Tensor]


class TappedOps(Ops):
    """Copies what the operations take and give into `log`; in a recorded graph the copies are its buffers."""

    def __init__(self, kernels: bool) -> None:
        super().__init__(kernels)
        self.log: list[Event] = []

    def note(self, kind: str, **tensors: Tensor) -> None:
        self.log.append(Event(kind, {name: tensor.detach().clone() for name, tensor in tensors.items()}))

    def add_norm(
        self,
        x: Tensor,
        gain: Tensor,
        eps: float,
        added: Tensor | None = None,
        routed: Tensor | None = None,
        weights: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        before = {} if added is None else {"added": added.clone()}  # it may be overwritten
        total, normed = super().add_norm(x, gain, eps, added, routed, weights, bias)
        self.note("norm", sum=total, normed=normed, **before)
        return total, normed

    def quick_gelu(self, x: Tensor) -> Tensor:
        before = x.clone()
        out = super().quick_gelu(x)
        self.note("gelu", fc1=before, act=out)
        return out

    def gated(self, gate_up: Tensor) -> Tensor:
        out = super().gated(gate_up)
        gate, up = gate_up.chunk(2, dim=-1)
        self.note("gated", gate=gate, up=up, act=out)
        return out

    def turn_and_cache(
        self, qkv: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, start: int
    ) -> Tensor:
        q = super().turn_and_cache(qkv, cos, sin, keys, values, start)
        parts = {name: qkv[:, number].flatten(1) for number, name in enumerate("qkv")}
        new = keys[:, start : start + len(qkv)]
        self.note("qkv", **parts, queries=q.flatten(1), keys=key_rows(new))
        return q

    def experts(self, x: Tensor, mixture: MixtureWeights, each: int, scaling: float) -> tuple[Tensor, Tensor]:
        outputs, weights = super().experts(x, mixture, each, scaling)
        # Which experts they were stays inside: the same kernel says it again.
        ids = x.new_empty(len(x), each, dtype=torch.int32)
        if self.kernels:
            route_tokens.route_tokens(x, mixture.router, ids, torch.empty_like(weights), scaling)
        else:
            ids, _ = route_tokens.route_tokens_reference(x, mixture.router, each, scaling)
        self.note("experts", ids=ids, weights=weights, outputs=outputs)
        return outputs, weights


class TappedTowers(VisionTowers):
    """Keeps each stage's log; `projected` is what went into the projector."""

    def __init__(self, engine: Engine) -> None:
        model = engine.checkpoint.model
        self._tapped = TappedOps(model.device.type == "cuda")
        super().__init__(model, self._tapped)
        self.of_sam: list[Event] = []
        self.of_clip: list[Event] = []
        self.features = self.projected = torch.empty(0)
        self.tokens: tuple[Tensor, ...] = ()

    def sam(self, pixels: Sequence[Tensor]) -> Tensor:
        self._tapped.log = []
        out = super().sam(pixels)
        self.of_sam, self.features = self._tapped.log, out.clone()
        return out

    def clip(self, features: Tensor, groups: Groups) -> Tensor:
        self._tapped.log = []
        out = super().clip(features, groups)
        self.of_clip = self._tapped.log
        return out

    def project(self, clip: Tensor, features: Tensor, groups: Groups) -> tuple[Tensor, ...]:
        out = super().project(clip, features, groups)
        self.projected = torch.cat([clip, features], dim=-1)  # (M, 2 C)
        self.tokens = tuple(tokens.clone() for tokens in out)
        return out


class TappedPrefill(FastPrefill):
    """Keeps the log of a prompt's pass."""

    def __init__(self, engine: Engine) -> None:
        model = engine.checkpoint.model
        self._tapped = TappedOps(model.device.type == "cuda")
        super().__init__(model, self._tapped)
        self._attend = engine.core
        self.log: list[Event] = []

    def core(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """The engine's attention core; (1, h, N, D) in and out."""
        out = self._attend(q, k, v)
        self._tapped.note("mixed", mixed=key_rows(out[0]))
        return out

    def forward(
        self, embeddings: Tensor, keys: Tensor, values: Tensor, rotary: Rotary, core: AttentionCore
    ) -> Tensor:
        self._tapped.log = []
        logits = super().forward(embeddings, keys, values, rotary, core)
        self._tapped.note("logits", logits=logits[None])
        self.log = self._tapped.log
        return logits


class TappedStep(DecodeStep):
    """A decode step that copies what each kernel wrote before the next one overwrites it."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._copies: dict[str, Tensor] = {}

    def run(self) -> None:
        """As `DecodeStep.run`; the copies are part of a graph that is recorded of it."""
        layer = -1
        for kernel, launch in self.kernels():
            launch()
            layer += kernel == "qkv_rotary"
            for name, written in self._written(kernel, layer):
                self._copy(name, written)

    def _written(self, kernel: str, layer: int) -> Iterator[tuple[str, Tensor]]:
        name = f"decoder.layer{layer}"
        if kernel == "embed_token":
            yield "embeddings", self._x
        elif kernel == "qkv_rotary":
            yield f"{name}.queries", self._q.flatten()
        elif kernel == "attention_output":
            yield f"{name}.mid", self._x
        elif kernel == "route":
            yield f"{name}.router.ids", self._expert_ids
            yield f"{name}.router.weights", self._expert_weights
        elif kernel == "gate_up":
            yield f"{name}.shared.act", self._shared
        elif kernel == "dense_gate_up":
            yield f"{name}.act", self._dense
        elif kernel in ("dense_down", "mixture_down"):
            yield f"{name}.out", self._x

    def _copy(self, name: str, written: Tensor) -> None:
        # Made in the run that compiles the kernels: while a graph is recorded nothing is allocated.
        if name not in self._copies:
            self._copies[name] = torch.empty_like(written)
        self._copies[name].copy_(written)

    def rows(self, position: int) -> Iterator[tuple[str, Tensor]]:
        """What the last run left, one row each; `position` is that of the token it was fed."""
        copies = dict(self._copies)
        for name, copy in copies.items():
            if name.endswith("router.ids"):
                ids, order = copy.sort()
                yield name, ids[None]
                yield name.replace(".ids", ".weights"), copies[name.replace(".ids", ".weights")][order][None]
            elif not name.endswith("router.weights"):
                yield name, copy[None]
        for layer in range(self.config.layers):
            yield f"decoder.layer{layer}.keys", self.cache.keys[layer, 0, :, position].flatten()[None]
            yield f"decoder.layer{layer}.v", self.cache.values[layer, 0, :, position].flatten()[None]
        # The head's kernel keeps the best of its rows only: both are made of the last hidden state.
        normed = rms_norm_reference(self._x, self.weights.norm, self.config.rms_norm_eps)
        yield "norm", normed[None]
        yield "logits", (self.weights.head @ normed)[None]


def trace_fast(engine: Engine, task: Task) -> tuple[int, ...]:
    """Read the page as the fast engine does, graphs and all, with the weights of any engine.

    Returns the new tokens. Raises DsocrError.
    """
    model = engine.checkpoint.model
    writer = DumpWriter(task.directory, about_engine(engine, "fast") | task.about)
    recorder = Recorder(writer, task.only, None, task.check)
    timer = StageTimer(model.device, marks=Marks.NONE)
    with engine.modes():
        page, pixels = engine.take_in(task.request, None, timer)
        prompt = page.prompt.ids
        # One position to spare: the last token must not end the page before its step was seen.
        positions = len(prompt) + task.limit + 2
        weights = PackedDecoder.of(model.decoder)
        step = TappedStep(weights, model.config.decoder, positions, engine.rotary_dtype, NO_TOKEN)
        graph = StepGraph(step)

        views = [pixels.global_view] if pixels.tiles is None else [pixels.tiles, pixels.global_view]
        towers, prefill = TappedTowers(engine), TappedPrefill(engine)
        recorder.begin_call()
        vision = FastVision(towers).start(views)
        vision.sam()
        vision.clip()
        features = vision.project()
        local = None if pixels.tiles is None else features[0]
        embeddings = prefill.embed(page.prompt, local, pixels.grid, features[-1])  # (N, C)
        prompt_pass = PromptGraphs(prefill, model.config.decoder, recorder_for(model.device))
        keys, values = step.cache.keys[:, 0], step.cache.values[:, 0]
        for _ in range(2):  # of a length that comes again the pass is a graph
            logits = prompt_pass.forward(embeddings, keys, values, step.rotary, prefill.core)
        _record_vision(recorder, model.config, towers, views)
        _record_prompt(recorder, prefill.log, embeddings, model.config.decoder.layers)

        ngram = 0 if task.forced else task.request.no_repeat_ngram_size
        rule = NgramRule(task.request.no_repeat_ngram_size, prompt)
        tokens = [task.forced[0] if task.forced else greedy(logits, rule.banned())]
        task.on_call(0)
        step.begin((*prompt, tokens[0]), task.limit + 1, ngram)
        eos = engine.checkpoint.tokenizer.eos_token_id
        while len(tokens) < task.limit and (task.forced or tokens[-1] != eos):
            recorder.begin_call()
            graph.replay()
            at = len(prompt) + len(tokens)  # where the step puts its token
            for name, row in step.rows(at - 1):
                recorder.write(name, row)
            token = task.forced[len(tokens)] if task.forced else int(step.tokens[at])
            step.tokens[at] = token
            task.on_call(len(tokens))
            tokens.append(token)
    writer.close(prompt_ids=list(prompt), token_ids=tokens, weights=weights_of_model(engine))
    return tuple(tokens)


# --- logs to names --------------------------------------------------------------------------------


def _record_vision(
    recorder: Recorder, config: ModelConfig, towers: TappedTowers, views: Sequence[Tensor]
) -> None:
    patch = config.sam.patch_size
    patches: Groups = [(view.shape[0], view.shape[2] // patch) for view in views]
    features: Groups = [(count, side // 4) for count, side in patches]
    for number, view in enumerate(views):
        recorder.write(_key("pixels", number), view.permute(0, 2, 3, 1))
    for name, rows in _sam(config, towers.of_sam):
        _split(recorder, name, rows, patches)
    _split(recorder, "sam.out", towers.features, features)
    with_class = [(count, side, 1) for count, side in features]
    for name, rows in _clip(config, towers.of_clip):
        _split(recorder, name, rows, with_class)
    _split(recorder, "projector.in", towers.projected, features)
    for number, tokens in enumerate(towers.tokens):
        recorder.write(_key("projector", number), tokens)


def _split(
    recorder: Recorder, name: str, rows: Tensor, groups: Sequence[tuple[int, int] | tuple[int, int, int]]
) -> None:
    """Rows of all views as a tensor of each view size, which is a pass of the eager engine."""
    start = 0
    for number, (count, side, *extra) in enumerate(groups):
        end = start + count * (side**2 + sum(extra))
        recorder.write(_key(name, number), rows[start:end])
        start = end


def _sam(config: ModelConfig, log: Sequence[Event]) -> Iterator[tuple[str, Tensor]]:
    """Of the last block only what comes before its feed-forward is seen; windows have another layout."""
    norms = [event.tensors for event in log if event.kind == "norm"]
    last = config.sam.layers - 1
    yield "sam.embeddings", norms[0]["sum"]
    yield "sam.block0.norm1", norms[0]["normed"]
    for number in range(config.sam.layers):
        name, middle = f"sam.block{number}", norms[1 + 2 * number]
        if number in config.sam.global_attn_indexes:
            yield f"{name}.attn", middle["added"]
        yield f"{name}.mid", middle["sum"]
        yield f"{name}.norm2", middle["normed"]
        if number < last:
            end = norms[2 + 2 * number]
            yield f"{name}.mlp", end["added"]
            yield f"{name}.out", end["sum"]
            yield f"sam.block{number + 1}.norm1", end["normed"]
    yield "sam.neck", norms[-1]["normed"]


def _clip(config: ModelConfig, log: Sequence[Event]) -> Iterator[tuple[str, Tensor]]:
    norms = [event.tensors for event in log if event.kind == "norm"]
    gelus = [event.tensors for event in log if event.kind == "gelu"]
    yield "clip.embeddings", norms[0]["sum"]
    yield "clip.pre_norm", norms[0]["normed"]
    yield "clip.block0.norm1", norms[1]["normed"]
    for number in range(config.clip.layers):
        name, middle = f"clip.block{number}", norms[2 + 2 * number]
        yield f"{name}.attn", middle["added"]
        yield f"{name}.mid", middle["sum"]
        yield f"{name}.norm2", middle["normed"]
        yield from ((f"{name}.{part}", tensor) for part, tensor in gelus[number].items())
        if number < config.clip.layers - 1:
            end = norms[3 + 2 * number]
            yield f"{name}.fc2", end["added"]
            yield f"{name}.out", end["sum"]
            yield f"clip.block{number + 1}.norm1", end["normed"]


def _record_prompt(recorder: Recorder, log: Sequence[Event], embeddings: Tensor, layers: int) -> None:
    recorder.write("embeddings", embeddings)
    layer, prefix, norms, last = -1, "", 0, embeddings
    for event in log:
        found, name = event.tensors, f"decoder.layer{layer}"
        if event.kind == "norm":
            norms += 1
            if norms == 1:
                recorder.write("decoder.layer0.norm1", found["normed"])
            elif norms % 2 == 0:
                for part, kind in (("attn", "added"), ("mid", "sum"), ("norm2", "normed")):
                    recorder.write(f"{name}.{part}", found[kind])
                prefix = ""
            else:
                recorder.write(f"{name}.{prefix}down", found["added"])
                recorder.write(f"{name}.out", found["sum"])
                last = found["normed"]  # the next layer's norm, or the final one
                if layer + 1 < layers:
                    recorder.write(f"decoder.layer{layer + 1}.norm1", last)
        elif event.kind == "qkv":
            layer += 1
            name = f"decoder.layer{layer}"
        elif event.kind == "experts":
            prefix = "shared."
            ids, order = found["ids"].sort(dim=-1)
            recorder.write(f"{name}.router.ids", ids)
            recorder.write(f"{name}.router.weights", found["weights"].gather(-1, order))
            outputs = found["outputs"]  # (N, k, C)
            each = outputs.gather(1, order[..., None].expand_as(outputs))
            recorder.write(f"{name}.experts", each.flatten(0, 1))
        if event.kind in ("qkv", "mixed", "gated"):
            inner = prefix if event.kind == "gated" else ""
            for part, tensor in found.items():
                recorder.write(f"{name}.{inner}{part}", tensor)
        elif event.kind == "logits":
            recorder.write("norm", last)
            recorder.write("logits", found["logits"])


def _key(name: str, number: int) -> str:
    return f"{name}@{number}" if number else name
