"""Vision and prefill of both engines cut into the same stages, for timing and comparing them.

Letters: M features of all views, V vision tokens, N prompt tokens, C width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from dsocr_core.engine.fast.cuda_graph import recorder_for
from dsocr_core.engine.fast.prefill import FastPrefill
from dsocr_core.engine.fast.prefill_graphs import PromptGraphs
from dsocr_core.engine.fast.vision import VisionTowers
from dsocr_core.engine.fast.vision_graphs import FastVision
from dsocr_core.models.blocks.attention import AttentionCore, Rotary
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.deepseek_ocr.vision import DeepseekOcr
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.resolution import Preset
from dsocr_core.models.stages import Stage
from dsocr_core.page.prompt import PromptIds
from dsocr_core.page.tiling import Grid, image_token_count


@dataclass(frozen=True)
class Page:
    """Random pixels, (B, 3, S, S) float32 of each view size, tiles first; and their positions in a prompt."""

    views: tuple[Tensor, ...]
    prompt: PromptIds
    grid: Grid

    @classmethod
    def random(
        cls, config: ModelConfig, preset: Preset, grid: Grid, text_tokens: int, device: torch.device
    ) -> Page:
        generator = torch.Generator().manual_seed(0)
        side, tiles = preset.view_size, grid[0] * grid[1]
        shapes = [(1, 3, side, side)]
        if tiles > 1:
            shapes.insert(0, (tiles, 3, preset.image_size, preset.image_size))
        views = tuple(torch.randn(shape, generator=generator).clamp(-1, 1).to(device) for shape in shapes)
        count = image_token_count(preset, grid)
        ids = torch.randint(0, config.decoder.vocab_size, (1 + count + text_tokens,), generator=generator)
        return cls(views, PromptIds(tuple(ids.tolist()), ((1, count),)), grid)


class Variant:
    """One engine's stages in their order; `outputs` holds the last ones' results, (N, C) and (V,)."""

    def __init__(self, model: OcrModel, page: Page, core: AttentionCore) -> None:
        config, device = model.config.decoder, model.device
        self.model, self.page, self.core = model, page, core
        self.views = [view.to(model.dtype) for view in page.views]
        self.tokens = len(page.prompt.ids)
        self.cache = KvCache(config, self.tokens, model.dtype, device)
        self.rotary = Rotary(config, self.tokens, torch.float32, model.dtype, device)
        self.outputs: dict[Stage, Tensor] = {}

    def stages(self) -> dict[Stage, Callable[[], None]]:
        """PREFILL is the language model alone."""
        return {
            Stage.SAM: self.sam,
            Stage.CLIP: self.clip,
            Stage.PROJECTOR: self.project,
            Stage.VISION_FUSION: self.fuse,
            Stage.PREFILL: self.prefill,
        }

    def run(self) -> None:
        for stage in self.stages().values():
            stage()

    def sam(self) -> None:
        raise NotImplementedError

    def clip(self) -> None:
        raise NotImplementedError

    def project(self) -> None:
        raise NotImplementedError

    def fuse(self) -> None:
        raise NotImplementedError

    def prefill(self) -> None:
        raise NotImplementedError

    def joined(self) -> dict[Stage, Tensor]:
        """Give what every stage made, the views' rows joined."""
        raise NotImplementedError


class EagerVariant(Variant):
    """As `EagerEngine` runs them."""

    def sam(self) -> None:
        self._sam = [self.model.sam(view) for view in self.views]

    def clip(self) -> None:
        self._clip = [cast(DeepseekOcr, self.model).clip(features) for features in self._sam]

    def project(self) -> None:
        self._tokens = [self.model.projector(c, s) for c, s in zip(self._clip, self._sam, strict=True)]

    def fuse(self) -> None:
        prompt, device = self.page.prompt, self.model.device
        ids = torch.tensor([prompt.ids], device=device)  # (1, N)
        mask = torch.zeros(ids.shape, dtype=torch.bool, device=device)
        for start, length in prompt.mask:
            mask[:, start : start + length] = True
        tiles = self._tokens[0] if len(self._tokens) > 1 else None
        self.outputs[Stage.VISION_FUSION] = self.model.fuse(
            ids, mask, [(tiles, self.page.grid, self._tokens[-1])]
        )[0]

    def prefill(self) -> None:
        self.cache.length = 0
        embeddings = self.outputs[Stage.VISION_FUSION][None]
        self.outputs[Stage.PREFILL] = self.model.forward_text(embeddings, self.cache, self.rotary, self.core)[
            0
        ]

    def joined(self) -> dict[Stage, Tensor]:
        return {
            Stage.SAM: torch.cat([x.flatten(2).transpose(1, 2).flatten(0, 1) for x in self._sam]),
            Stage.CLIP: torch.cat([x[:, 1:].flatten(0, 1) for x in self._clip]),
            Stage.PROJECTOR: torch.cat([x.flatten(0, 1) for x in self._tokens]),
            **self.outputs,
        }


class FastVariant(Variant):
    """As `FastEngine` runs them, with whatever towers, graphs and prefill are given."""

    def __init__(
        self,
        model: OcrModel,
        page: Page,
        core: AttentionCore,
        towers: VisionTowers,
        prefill: FastPrefill,
        graphs: bool = True,
    ) -> None:
        super().__init__(model, page, core)
        self._vision, self._prefill = FastVision(towers, graphs), prefill
        recorder = recorder_for(model.device) if graphs else None
        self._prompt_pass = PromptGraphs(prefill, model.config.decoder, recorder)

    def sam(self) -> None:
        self._pass = self._vision.start(self.views)
        self._pass.sam()

    def clip(self) -> None:
        self._pass.clip()

    def project(self) -> None:
        self._tokens = self._pass.project()

    def fuse(self) -> None:
        tiles = self._tokens[0] if len(self._tokens) > 1 else None
        self.outputs[Stage.VISION_FUSION] = self._prefill.embed(
            self.page.prompt, tiles, self.page.grid, self._tokens[-1]
        )

    def prefill(self) -> None:
        keys, values = self.cache.keys[:, 0], self.cache.values[:, 0]
        embeddings = self.outputs[Stage.VISION_FUSION]
        self.outputs[Stage.PREFILL] = self._prompt_pass.forward(
            embeddings, keys, values, self.rotary, self.core
        )

    def joined(self) -> dict[Stage, Tensor]:
        return {
            Stage.SAM: self._pass.features,
            Stage.CLIP: self._pass.patches,
            Stage.PROJECTOR: torch.cat([x.flatten(0, 1) for x in self._tokens]),
            **self.outputs,
        }
