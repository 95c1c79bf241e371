"""A page read by the fast engine with its CUDA graphs and taps.

Hooks see nothing inside a CUDA graph, so copies are captured with it. The operations between matrix products,
and the kernels of a decode step, copy their outputs into buffers that stay in place. They are read after a
replay. What one kernel computes as a whole has no value between.

An operation is named by the weight it takes: the table of taps has the module of each norm.

Letters: M patches of all views, N tokens, C width, h heads, D head dim, k experts a token, I inner width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from dsocr_core.engine.base import Engine
from dsocr_core.engine.fast.decode import StepGraph
from dsocr_core.engine.fast.graphs import recorder_for
from dsocr_core.engine.fast.ops import Groups, Ops
from dsocr_core.engine.fast.prefill import FastPrefill, PromptGraphs
from dsocr_core.engine.fast.step import DecodeStep
from dsocr_core.engine.fast.vision import FastVision, VisionTowers
from dsocr_core.engine.fast.weights import LayerWeights, pack
from dsocr_core.engine.generate import NO_TOKEN, greedy
from dsocr_core.engine.ngram_rule import NgramRule
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.kernels.prefill.route_tokens import route_tokens
from dsocr_core.kernels.rms_norm import rms_norm_reference
from dsocr_core.models.blocks.attention import AttentionCore, Rotary
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.taps.files import Recorder
from dsocr_core.models.taps.hooks import key_rows
from dsocr_core.reading.records import NgramPolicy
from dsocr_core.reading.trace_records import block_of
from dsocr_core.trace.names import part_of, taps_of
from dsocr_core.trace.sides import Task, about_engine, weights_of_model


def trace_fast(engine: Engine, task: Task) -> tuple[int, ...]:
    """Read and record a page with the fast engine, with the weights of any engine.

    Returns the new tokens. Raises DsocrError.
    """
    model = engine.checkpoint.model
    recorder = Recorder(task.directory, about_engine(engine, "fast") | task.about, task.only, task.check)
    timer = StageTimer(model.device, marks=Marks.NONE)
    with engine.modes():
        page, pixels = engine.take_in(task.request, None, timer)
        prompt = page.prompt.ids
        # One position more: the last token must not end the page before its step is recorded.
        positions = len(prompt) + task.limit + 2
        weights = pack(model.decoder)
        step = TappedStep(weights, model.config.decoder, positions, engine.rotary_dtype, NO_TOKEN)
        graph = StepGraph(step)

        views = pixels.passes
        towers, prefill = TappedTowers(engine), TappedPrefill(engine)
        recorder.begin_call()
        captured = FastVision(towers)
        for _ in range(2):  # of a shape or a length that comes again the pass is a graph
            vision = captured.start(views)
            for run in vision.stages:
                run()
        embeddings = prefill.embed(page.prompt, pixels.fused(vision.tokens))  # (N, C)
        prompt_pass = PromptGraphs(prefill, model.config.decoder, recorder_for(model.device))
        keys, values = step.cache.keys[:, 0], step.cache.values[:, 0]
        for _ in range(2):
            logits = prompt_pass.forward(embeddings, keys, values, step.rotary, prefill.core)
        step.cache.length = 0
        step.cache.advance(len(prompt))
        towers.record(recorder, views)
        for name, copy in prefill.named.copies.items():
            recorder.write(name, copy)

        policy = engine.ngram_policy(task.request)
        ngram = NgramPolicy() if task.forced else policy
        rule = NgramRule(policy, prompt)
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
    recorder.close(prompt_ids=list(prompt), token_ids=tokens, weights=weights_of_model(engine))
    return tuple(tokens)


class NamedOps(Ops):
    """Operations that copy their inputs and outputs by name. A captured graph keeps the copies in buffers."""

    def __init__(self, model: OcrModel) -> None:
        super().__init__(model.device.type == "cuda")
        self.copies: dict[str, Tensor] = {}
        self._block = ""
        self._taps = [tap for tap in taps_of(model.config) if tap.at != "queries" or "decoder" in tap.name]
        self._names = {tap.name for tap in self._taps}
        rows = {tap.module: row for row, tap in enumerate(self._taps) if tap.at == "output"}
        norms = {path: module for path, module in model.named_modules() if "norm" in path or "neck" in path}
        self._norms = {
            module.weight.data_ptr(): rows[path.rpartition(".")[0] if path.startswith("sam.neck.") else path]
            for path, module in norms.items()
            if isinstance(getattr(module, "weight", None), Tensor) and module.weight.ndim == 1
        }

    def note(self, name: str, tensor: Tensor) -> None:
        """Copy a tensor that the table of taps names."""
        if name in self._names:
            self.copies[name] = tensor.detach().clone()

    def note_parts(self, **tensors: Tensor) -> None:
        """Copy tensors of the current block."""
        for part, tensor in tensors.items():
            self.note(f"{self._block}.{part}", tensor)

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
        """In the table a norm's output comes after its input, and before that the outputs that were added."""
        before = None if added is None else added.clone()  # the next operation may overwrite it
        total, normed = super().add_norm(x, gain, eps, added, routed, weights, bias)
        # CLIP's first norm takes a copy of its weight in float32.
        row = self._norms.get(gain.data_ptr())
        if row is None:
            row = next(row for row, tap in enumerate(self._taps) if tap.name == "clip.pre_norm")
        name = self._taps[row].name
        self.note(name, normed)
        if name != "sam.neck":
            above = self._taps[:row]
            if above[-1].name not in self.copies:
                self.note(above[-1].name, total)
            if before is not None:
                self.note(next(tap.name for tap in reversed(above[:-1]) if tap.acting), before)
        self._block = block_of(name)
        return total, normed

    def quick_gelu(self, x: Tensor) -> Tensor:
        before = x.clone()
        out = super().quick_gelu(x)
        self.note_parts(fc1=before, act=out)
        return out

    def gated(self, gate_up: Tensor) -> Tensor:
        out = super().gated(gate_up)
        gate, up = gate_up.chunk(2, dim=-1)
        shared = "shared." if f"{self._block}.shared.act" in self._names else ""
        self.note_parts(**{f"{shared}gate": gate, f"{shared}up": up, f"{shared}act": out})
        return out

    def rotate_and_cache(
        self, qkv: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor, start: int
    ) -> Tensor:
        q = super().rotate_and_cache(qkv, cos, sin, keys, values, start)
        each = torch.split(qkv, [q.shape[1], len(keys), len(keys)], dim=1)
        self.note_parts(**{name: part.flatten(1) for name, part in zip("qkv", each, strict=True)})
        self.note_parts(queries=q.flatten(1), keys=key_rows(keys[:, start : start + len(qkv)]))
        return q

    def experts(self, x: Tensor, layer: LayerWeights, each: int, scaling: float) -> tuple[Tensor, Tensor]:
        outputs, weights = super().experts(x, layer, each, scaling)
        # The ids stay inside: the same kernel makes them once more.
        ids = x.new_empty(len(x), each, dtype=torch.int32)
        self.kernels(route_tokens)(x, layer.router, ids, torch.empty_like(weights), scaling)
        ids, order = ids.sort(dim=-1)
        by_id = outputs.gather(1, order[..., None].expand_as(outputs)).flatten(0, 1)  # (N k, C)
        self.note_parts(**{"router.ids": ids, "router.weights": weights.gather(-1, order), "experts": by_id})
        return outputs, weights


class TappedTowers(VisionTowers):
    """Vision whose copies are named by stage, with the projector's input."""

    def __init__(self, engine: Engine) -> None:
        model = engine.checkpoint.model
        self._named, self._config = NamedOps(model), model.config
        super().__init__(model, self._named)
        self._copies: list[dict[str, Tensor]] = [{}, {}]
        self._features = self._into_projector = torch.empty(0)
        self._tokens: tuple[Tensor, ...] = ()

    def sam(self, pixels: Sequence[Tensor]) -> Tensor:
        self._named.copies = {}
        out = super().sam(pixels)
        self._copies[0], self._features = self._named.copies, out.clone()
        return out

    def second_tower(self, features: Tensor, groups: Groups) -> Tensor:
        self._named.copies = {}
        out = super().second_tower(features, groups)
        self._copies[1] = self._named.copies
        return out

    def project(self, patches: Tensor, features: Tensor, groups: Groups) -> tuple[Tensor, ...]:
        out = super().project(patches, features, groups)
        self._into_projector = self.projected(patches, features).clone()
        self._tokens = tuple(tokens.clone() for tokens in out)
        return out

    def record(self, recorder: Recorder, views: Sequence[Tensor]) -> None:
        """Write the copies of a pass, as a tensor for each view size."""
        patches: Groups = [(view.shape[0], view.shape[2] // self._config.sam.patch_size) for view in views]
        features: Groups = [(count, side // 4) for count, side in patches]
        windowed = set(range(self._config.sam.layers)) - set(self._config.sam.global_attn_indexes)
        # CLIP has a class token beside a view's features, an encoder a query for each.
        second = getattr(self._config, "encoder", None)
        more = [1 if second is None else side**2 for _, side in features]
        # The last block of an encoder goes on with its answers alone.
        answers = "" if second is None else f"encoder.block{second.layers - 1}"
        for name, rows in self._copies[0].items():
            if name not in {f"sam.block{number}.attn" for number in windowed}:  # windows have another layout
                _write(recorder, name, rows, patches)
        _write(recorder, "sam.out", self._features, features)
        for name, rows in self._copies[1].items():
            cut = block_of(name) == answers and part_of(name) not in ("norm1", "q", "k", "v")
            if not cut and name != "encoder.norm":
                _write(recorder, name, rows, features, more)
        _write(recorder, "projector.in", self._into_projector, features)
        for number, (view, tokens) in enumerate(zip(views, self._tokens, strict=True)):
            recorder.write(_key("pixels", number), view.permute(0, 2, 3, 1))
            recorder.write(_key("projector", number), tokens)


def _write(
    recorder: Recorder, name: str, rows: Tensor, groups: Groups, more: Sequence[int] | None = None
) -> None:
    """Write a tensor for each view size, like the eager engine. A view has `more` rows than patches."""
    start = 0
    for number, (count, side) in enumerate(groups):
        end = start + count * (side**2 + (more[number] if more else 0))
        recorder.write(_key(name, number), rows[start:end])
        start = end


def _key(name: str, number: int) -> str:
    return f"{name}@{number}" if number else name


class TappedPrefill(FastPrefill):
    """Prefill of a prompt with copies."""

    def __init__(self, engine: Engine) -> None:
        model = engine.checkpoint.model
        self.named, self._attend = NamedOps(model), engine.core
        super().__init__(model, self.named)

    def core(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attention core of the engine with taps; (1, h, N, D) in and out."""
        out = self._attend(q, k, v)
        self.named.note_parts(mixed=key_rows(out[0]))
        return out

    def forward(
        self,
        embeddings: Tensor,
        keys: Tensor,
        values: Tensor,
        rotary: Rotary,
        core: AttentionCore,
        pages: int = 1,
    ) -> Tensor:
        self.named.copies = {}
        logits = super().forward(embeddings, keys, values, rotary, core, pages)
        self.named.note("logits", logits[None])
        return logits


_WRITTEN = {
    "embed_token": (("embeddings", "_x"),),
    "qkv_rotary": (("{}.queries", "_q"),),
    "attention_output": (("{}.mid", "_x"),),
    "route": (("{}.router.ids", "_expert_ids"), ("{}.router.weights", "_expert_weights")),
    "gate_up": (("{}.shared.act", "_shared"),),
    "dense_gate_up": (("{}.act", "_dense"),),
    "dense_down": (("{}.out", "_x"),),
    "mixture_down": (("{}.out", "_x"),),
}
"""Taps by kernel of a step, with the step's attribute that the kernel wrote."""


class TappedStep(DecodeStep):
    """Decode step that copies each kernel's outputs before the next kernel overwrites them."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._copies: dict[str, Tensor] = {}

    def run(self) -> None:
        """Run the step and copy its tensors, also when it is captured."""
        layer = -1
        for kernel, launch in self.kernels():
            launch()
            layer += kernel == "qkv_rotary"
            for name, attribute in _WRITTEN.get(kernel, ()):
                name, written = name.format(f"decoder.layer{layer}"), getattr(self, attribute)
                # Made in the run that compiles the kernels: while a graph is recorded nothing is allocated.
                if name not in self._copies:
                    self._copies[name] = torch.empty_like(written)
                self._copies[name].copy_(written)

    def rows(self, position: int) -> Iterator[tuple[str, Tensor]]:
        """Tensors of the last run, one row each. `position` is that of the token that was fed."""
        copies, self.cache.length = dict(self._copies), position
        slot, _ = self.cache.place()
        for name, copy in copies.items():
            if name.endswith("router.ids"):
                ids, order = copy.sort()
                yield name, ids[None]
                yield name.replace(".ids", ".weights"), copies[name.replace(".ids", ".weights")][order][None]
            elif not name.endswith("router.weights"):
                yield name, copy.flatten()[None]
        for layer in range(self.config.layers):
            yield f"decoder.layer{layer}.keys", self.cache.keys[layer, 0, :, slot].flatten()[None]
            yield f"decoder.layer{layer}.v", self.cache.values[layer, 0, :, slot].flatten()[None]
        # The head's kernel keeps its best rows only: both are made from the hidden state.
        normed = rms_norm_reference(self._x, self.weights.norm, self.config.rms_norm_eps)
        yield "norm", normed[None]
        yield "logits", (self.weights.head @ normed)[None]
