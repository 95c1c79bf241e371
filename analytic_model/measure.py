"""FLOPs of our modules by torch's counter, stage by stage.

By default they run on the meta device: shapes without values, so a page of the published sizes takes a
fraction of a second. There one expert runs once on all T * k rows, and one layer of each kind stands for all
of its kind, unless `whole`. Neither changes the number of multiply-adds. On any other device the model has
seeded random weights and runs in full.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from analytic_model.workload import Workload
from dsocr_core.models.blocks.attention import Rotary, attention_core
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.blocks.moe import MixtureOfExperts
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.flop_counter import EVERYTHING, Flops, count_flops
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.stages import Stage
from dsocr_core.models.weights import empty_model, random_model

META = torch.device("meta")


class Meter:
    """Counter of workloads of one model. A shape is run once.

    `fused` keeps torch's fused attention. `whole` runs every layer of the decoder also on the meta device.
    Not safe for concurrent use.
    """

    def __init__(
        self, config: ModelConfig, device: torch.device = META, fused: bool = False, whole: bool = False
    ) -> None:
        self.config, self.device, self.fused = config, device, fused
        self._dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._others: dict[str, int] = {}
        """By module path, the number of layers for which a layer stands."""
        if device.type == "meta":
            self._model = _meta_model(config, self._dtype)
            if not whole:
                self._others = _leave_one_of_each_kind(self._model)
        else:
            self._model = random_model(config, device, self._dtype)
        self._views: dict[tuple[int, int], tuple[dict[Stage, Flops], Tensor]] = {}
        self._tokens: dict[tuple[int, int, int, str, int], Flops] = {}

    def measure(self, workload: Workload, attention: str = "sdpa") -> dict[Stage, Flops]:
        """FLOPs of every stage by operator. Prefill is the language model alone.

        Raises DsocrError for an attention that the device does not have.
        """
        attention_core(attention, self.device, self._dtype)  # refuses an attention that is not installed
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
        """FLOPs of the language model on `new` positions after `context` others: prefill or a decoded token.

        `prompt` of the others are the prompt's, which matters with a window.
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
            _, self._tokens[key] = self._count(self._model.decoder, x, cache, rotary, core)
        return self._tokens[key]

    def _view_stages(self, side: int, count: int) -> tuple[dict[Stage, Flops], Tensor]:
        """Run towers and projector on `count` views of `side` pixels. Returns FLOPs and vision tokens."""
        key = (side, count)
        if key not in self._views:
            pixels = torch.zeros(count, 3, side, side, dtype=self._dtype, device=self.device)
            flops: dict[Stage, Flops] = {}
            outputs = [pixels]
            for stage, part in zip(self._model.family.vision, self._model.parts, strict=True):
                output, flops[stage] = self._count(part, *outputs)
                outputs.append(output)
            self._views[key] = flops, outputs[-1]
        return self._views[key]

    def _fusion(self, workload: Workload, features: list[Tensor]) -> Flops:
        """FLOPs of putting vision tokens into the prompt's embeddings."""
        flops: Flops = Counter()
        if len(workload.views) != workload.tile_count + 1:
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
        """Run a call. Returns its result and torch's count."""
        plain = not self.fused and self.device != META  # the only form on meta
        result, modules = count_flops(call, *arguments, fused=not plain)
        flops = modules[EVERYTHING]
        for path, times in self._others.items():
            for operator, count in modules.get(path, Counter()).items():
                flops[operator] += times * count
        return result, flops


def count_parameters(config: ModelConfig) -> dict[str, int]:
    """Parameters of our modules, counted on the meta device; keys as in `predict.parameters`."""
    with META:
        model = OcrModel(config)
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


class _Unrouted(MixtureOfExperts):
    """Mixture without routing: one expert takes all T * k rows, so no value is read."""

    def combine(self, tokens: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        rows = tokens.repeat_interleave(self.experts_per_token, dim=0)  # (T*k, C)
        outputs = self.experts.run(0, rows).view(*chosen.shape, -1).to(weights.dtype)  # (T, k, C)
        return (outputs * weights.unsqueeze(-1)).sum(dim=1).to(tokens.dtype)


def _meta_model(config: ModelConfig, dtype: torch.dtype) -> OcrModel:
    model = empty_model(config, dtype)
    with META:
        for layer in model.decoder.layers:
            if isinstance(layer.mlp, MixtureOfExperts):
                layer.mlp = _Unrouted(config.decoder)
    return model.requires_grad_(False).eval()


def _leave_one_of_each_kind(model: OcrModel) -> dict[str, int]:
    """Remove layers equal to an earlier one. Returns for how many each remaining layer stands."""
    others: dict[str, int] = {}
    for part in model.children():
        for name, layers in part.named_modules():
            if isinstance(layers, nn.ModuleList):
                kinds = [_kind(layer) for layer in layers]
                for at in reversed(range(len(kinds))):
                    if kinds[at] in kinds[:at]:
                        del layers[at]
                counts = enumerate(Counter(kinds).values())
                others |= {f"{type(part).__name__}.{name}.{at}": count - 1 for at, count in counts}
    return others


def _kind(layer: nn.Module) -> object:
    """Facts that decide a layer's work: its modules, their shapes, SAM's window."""
    shapes = tuple(parameter.shape for parameter in layer.parameters())
    return repr(layer), shapes, getattr(layer, "window", None)
