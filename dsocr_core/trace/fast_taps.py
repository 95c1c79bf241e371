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

from dsocr_core.engine.base import Engine
from dsocr_core.engine.fast.ops import Groups, Ops
from dsocr_core.engine.fast.prefill import FastPrefill
from dsocr_core.engine.fast.step import DecodeStep
from dsocr_core.engine.fast.vision import VisionTowers
from dsocr_core.engine.fast.weights import LayerWeights
from dsocr_core.kernels.prefill.route_tokens import route_tokens
from dsocr_core.kernels.rms_norm import rms_norm_reference
from dsocr_core.models.blocks.attention import AttentionCore, Rotary
from dsocr_core.models.taps.hooks import key_rows


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
        each = torch.split(qkv, [q.shape[1], len(keys), len(keys)], dim=1)
        parts = {name: part.flatten(1) for name, part in zip("qkv", each, strict=True)}
        new = keys[:, start : start + len(qkv)]
        self.note("qkv", **parts, queries=q.flatten(1), keys=key_rows(new))
        return q

    def experts(self, x: Tensor, layer: LayerWeights, each: int, scaling: float) -> tuple[Tensor, Tensor]:
        outputs, weights = super().experts(x, layer, each, scaling)
        # Which experts they were stays inside: the same kernel says it again.
        ids = x.new_empty(len(x), each, dtype=torch.int32)
        self.kernels(route_tokens)(x, layer.router, ids, torch.empty_like(weights), scaling)
        self.note("experts", ids=ids, weights=weights, outputs=outputs)
        return outputs, weights


class TappedTowers(VisionTowers):
    """Keeps each stage's log, and what went into the projector."""

    def __init__(self, engine: Engine) -> None:
        model = engine.checkpoint.model
        self._tapped = TappedOps(model.device.type == "cuda")
        super().__init__(model, self._tapped)
        self.of_sam: list[Event] = []
        self.of_behind: list[Event] = []
        self.features = self.into_projector = torch.empty(0)
        self.tokens: tuple[Tensor, ...] = ()

    def sam(self, pixels: Sequence[Tensor]) -> Tensor:
        self._tapped.log = []
        out = super().sam(pixels)
        self.of_sam, self.features = self._tapped.log, out.clone()
        return out

    def behind(self, features: Tensor, groups: Groups) -> Tensor:
        self._tapped.log = []
        out = super().behind(features, groups)
        self.of_behind = self._tapped.log
        return out

    def project(self, patches: Tensor, features: Tensor, groups: Groups) -> tuple[Tensor, ...]:
        out = super().project(patches, features, groups)
        self.into_projector = self.projected(patches, features).clone()
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
        self,
        embeddings: Tensor,
        keys: Tensor,
        values: Tensor,
        rotary: Rotary,
        core: AttentionCore,
        pages: int = 1,
    ) -> Tensor:
        self._tapped.log = []
        logits = super().forward(embeddings, keys, values, rotary, core, pages)
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
        """Give what the last run left, one row each; `position` is that of the token it was fed."""
        copies, self.cache.length = dict(self._copies), position
        slot, _ = self.cache.place()
        for name, copy in copies.items():
            if name.endswith("router.ids"):
                ids, order = copy.sort()
                yield name, ids[None]
                yield name.replace(".ids", ".weights"), copies[name.replace(".ids", ".weights")][order][None]
            elif not name.endswith("router.weights"):
                yield name, copy[None]
        for layer in range(self.config.layers):
            yield f"decoder.layer{layer}.keys", self.cache.keys[layer, 0, :, slot].flatten()[None]
            yield f"decoder.layer{layer}.v", self.cache.values[layer, 0, :, slot].flatten()[None]
        # The head's kernel keeps the best of its rows only: both are made of the last hidden state.
        normed = rms_norm_reference(self._x, self.weights.norm, self.config.rms_norm_eps)
        yield "norm", normed[None]
        yield "logits", (self.weights.head @ normed)[None]
