"""FLOPs that torch's counter counts in our core, stage by stage.

The core runs under `torch.utils.flop_counter.FlopCounterMode`, by default on the meta device: shapes without
values, so the published sizes need no memory and a page takes about a second. There one expert runs once on
all T * k rows, and one layer of each kind (dense, mixture) stands for the others, unless `whole`; neither
changes the number of multiply-adds. On any other device the model has seeded random weights and runs in full.

The counter (torch 2.13) takes composite operators apart and has formulas for `mm`, `addmm`, `bmm`, `baddbmm`,
`convolution` and CUDA's fused attention. `scaled_dot_product_attention` is two `bmm` over the whole square on
meta; the same number under a kernel's name on CUDA; on the CPU an operator without a formula, which counts
nothing. The plain form runs here on every device; `fused` leaves the choice to torch (`Policy.counter` then
names the device). The package flash-attn is invisible everywhere. Asking for the plain form is a switch of
the whole process: off the meta device let no other model run meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from analytic_model.stage_cost import FUSED_ATTENTION
from analytic_model.workload import Workload
from dsocr_core.models.blocks.attention import Rotary, attention_core
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.blocks.moe import MixtureOfExperts
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.stages import Stage
from dsocr_core.models.weights import build, random_model

META = torch.device("meta")

Flops = Counter[str]
"""FLOPs by operator, under torch's aten names: `mm`, `addmm`, `bmm`, `convolution`."""

_CUDA_ATTENTION = {f"_scaled_dot_product_{kernel}_attention" for kernel in ("flash", "efficient", "cudnn")}


class Meter:
    """Measures workloads of one model; shapes that were measured before are not run again.

    `fused` leaves the form of torch's attention to torch; `whole` runs every layer of the decoder also on
    the meta device. Not safe for concurrent use.
    """

    def __init__(
        self, config: ModelConfig, device: torch.device = META, fused: bool = False, whole: bool = False
    ) -> None:
        self.config, self.device, self.fused = config, device, fused
        self._dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._alike: list[tuple[nn.Module, int]] = []
        """Layers that stand for others, and how often; they are no longer in the model."""
        if device.type == "meta":
            self._model = _meta_model(config if whole else _one_of_each_kind(config))
            if not whole:
                self._alike = _take_out_layers(self._model, config)
        else:
            self._model = random_model(config, device, self._dtype)
        self._views: dict[tuple[int, int], tuple[dict[Stage, Flops], Tensor]] = {}
        self._tokens: dict[tuple[int, int, int, str, int], Flops] = {}

    def measure(self, workload: Workload, attention: str = "sdpa") -> dict[Stage, Flops]:
        """FLOPs of every stage of the workload, by operator; prefill is the language model alone.

        Raises AttentionUnavailableError for an attention that the device does not have.
        """
        attention_core(attention, self.device, self._dtype)  # one that is not here is refused at once
        total: dict[Stage, Flops] = {stage: Counter() for stage in self._model.family.computed}
        features: list[Tensor] = []
        for views, side in workload.view_groups:
            stages, projected = self._view_stages(side, views * workload.batch)
            features.append(projected)
            for stage, flops in stages.items():
                total[stage] += flops
        total[Stage.VISION_FUSION] += self._fusion(workload, features)
        total[Stage.PREFILL] += self.forward(0, workload.sequence_length, workload.batch, attention)
        for step in range(workload.decode_steps):
            context = workload.sequence_length + step
            total[Stage.DECODE] += self.forward(
                context, 1, workload.batch, attention, workload.sequence_length
            )
        return total

    def forward(
        self, context: int, new: int, batch: int = 1, attention: str = "sdpa", prompt: int = 0
    ) -> Flops:
        """The language model on `new` positions after `context` others: prefill, or one decoded token.

        `prompt` of the others are the prompt's, which a decoder with a window asks.
        """
        key = (context, new, batch, attention, prompt if self.config.decoder.window else 0)
        if key not in self._tokens:
            decoder, positions = self.config.decoder, context + new
            x = torch.zeros(batch, new, decoder.hidden_size, dtype=self._dtype, device=self.device)
            cache = KvCache(decoder, positions, self._dtype, self.device, batch)
            cache.keys.zero_()
            cache.values.zero_()
            cache.length, cache.prompt = context, prompt
            rotary = Rotary(decoder, positions, self._dtype, self._dtype, self.device)
            core = attention_core(attention, self.device, self._dtype)
            flops: Flops = Counter()
            for layer, times in self._alike:
                _, one = self._count(layer, x, cache, rotary, core)
                flops += Counter({operator: times * count for operator, count in one.items()})
            _, rest = self._count(self._model.forward_text, x, cache, rotary, core)
            self._tokens[key] = flops + rest
        return self._tokens[key]

    def _view_stages(self, side: int, count: int) -> tuple[dict[Stage, Flops], Tensor]:
        """The towers and the projector on `count` views of `side` pixels, and the vision tokens."""
        key = (side, count)
        if key not in self._views:
            pixels = torch.zeros(count, 3, side, side, dtype=self._dtype, device=self.device)
            flops: dict[Stage, Flops] = {}
            outputs = [pixels]
            for stage, part in zip(self._model.family.vision, self._model.parts, strict=True):
                output, flops[stage.name] = self._count(part, *outputs)
                outputs.append(output)
            self._views[key] = flops, outputs[-1]
        return self._views[key]

    def _fusion(self, workload: Workload, features: list[Tensor]) -> Flops:
        """Vision tokens placed in the prompt's embeddings, page after page."""
        flops: Flops = Counter()
        if workload.num_views != workload.tile_count + 1:
            return flops  # several views of no grid: the core has no fusion for them
        ids = torch.zeros(1, workload.sequence_length, dtype=torch.long, device=self.device)
        # The mask has values on the meta device too: fusion compares its sum with the vision tokens.
        mask = torch.zeros(ids.shape, dtype=torch.bool, device="cpu" if self.device == META else self.device)
        mask[:, : workload.image_tokens] = True
        tiles = features[0][: workload.tile_count] if workload.tile_count else None
        for _ in range(workload.batch):
            _, of_page = self._count(self._model.fuse, ids, mask, [(tiles, workload.grid, features[-1][:1])])
            flops += of_page
        return flops

    def _count(self, call: Callable[..., Tensor], *arguments: Any) -> tuple[Tensor, Flops]:
        """The call's result and what torch counts in it."""
        form = nullcontext() if self.fused or self.device == META else sdpa_kernel(SDPBackend.MATH)
        # Not inference mode: the counter would take every composite operator apart in Python.
        with torch.no_grad(), form, FlopCounterMode(display=False) as counter:
            result = call(*arguments)
        return result, by_name(counter.get_flop_counts().get("Global", {}))


def by_name(counts: Mapping[Any, int]) -> Flops:
    """The counter's figures under aten's names; CUDA's attention kernels under the one they share."""
    flops: Flops = Counter()
    for operator, count in counts.items():
        name = str(operator).removeprefix("aten.")
        flops[FUSED_ATTENTION["cuda"] if name in _CUDA_ATTENTION else name] += count
    return flops


def count_parameters(config: ModelConfig) -> dict[str, int]:
    """Parameters of the core's modules, counted on the meta device; keys as `predict.parameters`."""
    with META:
        model = build(config)
    parts: dict[str, Iterable[Tensor]] = {
        **{name: [*part.parameters()] for name, part in model.named_children() if name != "decoder"},
        **({"image_newline": [model.image_newline]} if model.family.newline else {}),
        "view_seperator": [model.view_seperator],
        "embed_tokens": model.decoder.embed_tokens.parameters(),
        "layers": model.decoder.layers.parameters(),
        "norm": model.decoder.norm.parameters(),
        "lm_head": model.decoder.lm_head.parameters(),
        "total": model.parameters(),
    }
    return {name: sum(tensor.numel() for tensor in tensors) for name, tensors in parts.items()}


class _EveryRowOnce(MixtureOfExperts):
    """The mixture without routing: one expert takes all T * k rows, so that no value is read."""

    def combine(self, tokens: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        rows = tokens.repeat_interleave(self.experts_per_token, dim=0)  # (T*k, C)
        outputs = self.experts.run(0, rows).view(*chosen.shape, -1).to(weights.dtype)  # (T, k, C)
        return (outputs * weights.unsqueeze(-1)).sum(dim=1).to(tokens.dtype)


def _meta_model(config: ModelConfig) -> OcrModel:
    with META:
        model = build(config)
        for layer in model.decoder.layers:
            if isinstance(layer.mlp, MixtureOfExperts):
                layer.mlp = _EveryRowOnce(config.decoder)
    return model.requires_grad_(False).eval()


def _one_of_each_kind(config: ModelConfig) -> ModelConfig:
    """The same model with one dense layer and one with a mixture: it is built in a fraction of the time."""
    dense = min(config.decoder.first_dense_layers, config.decoder.layers)
    kinds = min(dense, 1), min(config.decoder.layers - dense, 1)
    return replace(config, decoder=replace(config.decoder, layers=sum(kinds), first_dense_layers=kinds[0]))


def _take_out_layers(model: OcrModel, config: ModelConfig) -> list[tuple[nn.Module, int]]:
    """Empty the decoder of its layers: one of each kind, and how many of it the model has."""
    layers = list(model.decoder.layers)
    model.decoder.layers = nn.ModuleList()
    dense = min(config.decoder.first_dense_layers, config.decoder.layers)
    counts = [count for count in (dense, config.decoder.layers - dense) if count]
    return list(zip(layers, counts, strict=True))
