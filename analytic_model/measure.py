"""What torch's FLOP counter counts in our core, stage by stage and operator by operator.

The core's own modules run under `torch.utils.flop_counter.FlopCounterMode`. On the meta device, the default,
tensors have shapes and no values: the published sizes need no memory, and a page takes about a second.
Two things differ there, neither of them in FLOPs:

- Routing depends on values, so one expert runs once on all T * k rows. Which expert gets a row does not
  change the number of multiply-adds.
- Layers of one kind (dense, mixture) are alike, so one of each is measured and taken as often as it
  occurs. `whole=True` runs them all.

On any other device the model has seeded random weights and runs in full, routing included.

The counter (torch 2.13) takes composite operators apart and has formulas for what remains of them: `mm`,
`addmm`, `bmm`, `baddbmm`, `convolution` and CUDA's fused attention. `scaled_dot_product_attention` has
several forms:

- meta: its plain form, two `bmm` over the whole square, causal or not;
- CUDA: a flash, efficient or cuDNN kernel, each with the same number as the two `bmm`; here all of them
  are called `scaled_dot_product_attention`;
- CPU: `_scaled_dot_product_flash_attention_for_cpu`, which has no formula and so counts nothing.

The plain form is what runs here on every device, so that all give the same counts; `fused=True` leaves the
choice to torch (Policy.counter then names the device). The function of the flash-attn package, attention
`flash_attention_2`, is invisible everywhere. Asking for the plain form is a switch of the whole process: off
the meta device, where it is not needed, let no other model run meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from analytic_model.stage_cost import FUSED_ATTENTION
from analytic_model.workload import Workload
from dsocr_core.config import ModelConfig
from dsocr_core.model.attention import Rotary, attention_core
from dsocr_core.model.kv_cache import KvCache
from dsocr_core.model.moe import MixtureOfExperts
from dsocr_core.model.ocr_model import OcrModel
from dsocr_core.model.weights import random_model
from dsocr_core.stages import INSIDE_PREFILL, Stage

META = torch.device("meta")

MEASURED: tuple[Stage, ...] = (*INSIDE_PREFILL, Stage.PREFILL, Stage.DECODE)
"""The stages with a model in them, vision beside prefill: here each stage is counted alone."""

Flops = Counter[str]
"""FLOPs by operator, under torch's aten names: `mm`, `addmm`, `bmm`, `convolution`."""

_CUDA_ATTENTION = {f"_scaled_dot_product_{kernel}_attention" for kernel in ("flash", "efficient", "cudnn")}

OnStage = Callable[[Stage], None]
"""Called before each stage and each decoded token; what it raises ends the measurement."""


def measure_workload(
    config: ModelConfig,
    workload: Workload,
    attention: str = "sdpa",
    on_stage: OnStage | None = None,
    device: torch.device = META,
    fused: bool = False,
) -> dict[Stage, dict[str, int]]:
    """FLOPs that torch counts for a workload: stage -> operator -> FLOPs.

    Vision stages are counted apart from prefill, prefill is the language model alone. `on_stage` may raise
    (dsocr_core.errors.Cancelled, say) to stop. Raises AttentionUnavailableError for an attention that the
    device does not have.
    """
    measured = Meter(config, device, fused).measure(workload, attention, on_stage)
    return {stage: dict(flops) for stage, flops in measured.items()}


class Meter:
    """Measures workloads of one model; shapes that were measured before are not run again.

    `fused` leaves the form of torch's attention to torch; `whole` runs every layer of the decoder also on
    the meta device. Not safe for concurrent use.
    """

    def __init__(
        self,
        config: ModelConfig,
        device: torch.device = META,
        fused: bool = False,
        whole: bool = False,
    ) -> None:
        self.config, self.device, self.fused = config, device, fused
        self._dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._alike: list[tuple[nn.Module, int]] = []
        """Layers that stand for others, and how often; they are no longer in the model."""
        if device.type == "meta":
            self._model = _meta_model(config)
            if not whole:
                self._alike = _take_out_layers(self._model)
        else:
            self._model = random_model(config, device, self._dtype)
        self._views: dict[tuple[int, int], tuple[dict[Stage, Flops], Tensor]] = {}
        self._tokens: dict[tuple[int, int, int, str], Flops] = {}

    def measure(
        self, workload: Workload, attention: str = "sdpa", on_stage: OnStage | None = None
    ) -> dict[Stage, Flops]:
        """Every stage of the workload. See `measure_workload`."""
        attention_core(attention, self.device, self._dtype)  # one that is not here is refused at once
        announce = on_stage or (lambda stage: None)
        total: dict[Stage, Flops] = {stage: Counter() for stage in MEASURED}
        features: list[Tensor] = []
        for views, side in workload.view_groups:
            stages, projected = self._view_stages(side, views * workload.batch, announce)
            features.append(projected)
            for stage, flops in stages.items():
                total[stage] += flops
        announce(Stage.VISION_FUSION)
        total[Stage.VISION_FUSION] += self._fusion(workload, features)
        announce(Stage.PREFILL)
        total[Stage.PREFILL] += self.forward(0, workload.sequence_length, workload.batch, attention)
        for step in range(workload.decode_steps):
            announce(Stage.DECODE)
            context = workload.sequence_length + step
            total[Stage.DECODE] += self.forward(context, 1, workload.batch, attention)
        return total

    def forward(self, context: int, new: int, batch: int = 1, attention: str = "sdpa") -> Flops:
        """The language model on `new` positions after `context` others: prefill, or one decoded token."""
        key = (context, new, batch, attention)
        if key not in self._tokens:
            decoder, positions = self.config.decoder, context + new
            x = torch.zeros(batch, new, decoder.hidden_size, dtype=self._dtype, device=self.device)
            cache = KvCache(decoder, positions, self._dtype, self.device, batch)
            cache.keys.zero_()
            cache.values.zero_()
            cache.length = context
            rotary = Rotary(decoder, positions, self._dtype, self._dtype, self.device)
            core = attention_core(attention, self.device, self._dtype)
            flops: Flops = Counter()
            for layer, times in self._alike:
                _, one = self._count(layer, x, cache, rotary, core)
                flops += Counter({operator: times * count for operator, count in one.items()})
            _, rest = self._count(self._model.forward_text, x, cache, rotary, core)
            self._tokens[key] = flops + rest
        return self._tokens[key]

    def head(self, positions: int) -> int:
        """The logits of so many positions; prefill computes those of the last alone."""
        x = torch.zeros(1, positions, self.config.decoder.hidden_size, dtype=self._dtype, device=self.device)
        return self._count(self._model.decoder.lm_head, x)[1].total()

    def _view_stages(self, side: int, count: int, announce: OnStage) -> tuple[dict[Stage, Flops], Tensor]:
        """The towers and the projector on `count` views of `side` pixels, and the vision tokens."""
        key = (side, count)
        if key not in self._views:
            pixels = torch.zeros(count, 3, side, side, dtype=self._dtype, device=self.device)
            flops: dict[Stage, Flops] = {}
            announce(Stage.SAM)
            sam, flops[Stage.SAM] = self._count(self._model.encode_sam, pixels)
            announce(Stage.CLIP)
            clip, flops[Stage.CLIP] = self._count(self._model.encode_clip, sam)
            announce(Stage.PROJECTOR)
            projected, flops[Stage.PROJECTOR] = self._count(self._model.project, clip, sam)
            self._views[key] = flops, projected
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
            _, of_page = self._count(self._model.fuse, ids, mask, tiles, workload.grid, features[-1][:1])
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
        model = OcrModel(config)
    parts: dict[str, Iterable[Tensor]] = {
        "sam": model.sam.parameters(),
        "clip": model.clip.parameters(),
        "projector": model.projector.parameters(),
        "image_newline": [model.image_newline],
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
        model = OcrModel(config)
        for layer in model.decoder.layers:
            if isinstance(layer.mlp, MixtureOfExperts):
                layer.mlp = _EveryRowOnce(config.decoder)
    return model.requires_grad_(False).eval()


def _take_out_layers(model: OcrModel) -> list[tuple[nn.Module, int]]:
    """Empties the decoder of its layers: the first one of each kind, and how many there were of it."""
    layers = list(model.decoder.layers)
    model.decoder.layers = nn.ModuleList()
    kinds: dict[type[nn.Module], list[nn.Module]] = {}
    for layer in layers:
        kinds.setdefault(type(layer.get_submodule("mlp")), []).append(layer)
    return [(alike[0], len(alike)) for alike in kinds.values()]
