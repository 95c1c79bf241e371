"""Vision and prefill of both engines cut into the same stages, for timing and comparing them.

Letters: M features of all views, V vision tokens, N prompt tokens, C width.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from dsocr_core.engine.fast.graphs import recorder_for
from dsocr_core.engine.fast.prefill import FastPrefill, PromptGraphs
from dsocr_core.engine.fast.vision import FastVision, VisionTowers
from dsocr_core.models.blocks.attention import AttentionCore, Rotary
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import spec_of
from dsocr_core.models.ocr_model import OcrModel, Tokens
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
            shapes.insert(0, (tiles, 3, preset.tile_size, preset.tile_size))
        views = tuple(torch.randn(shape, generator=generator).clamp(-1, 1).to(device) for shape in shapes)
        count = image_token_count(preset, grid, spec_of(config).newline)
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
        names = [*self.model.family.vision]
        vision = {name: partial(self.see, number) for number, name in enumerate(names)}
        return {**vision, Stage.VISION_FUSION: self.fuse, Stage.PREFILL: self.prefill}

    def run(self) -> None:
        for stage in self.stages().values():
            stage()

    def see(self, number: int) -> None:
        """Run the row's vision stage of that number."""
        raise NotImplementedError

    @property
    def tokens_of_views(self) -> Sequence[Tensor]:
        """Vision tokens of each view size, (B, F F, C)."""
        raise NotImplementedError

    @property
    def images(self) -> list[Tokens]:
        tokens = self.tokens_of_views
        return [(tokens[0] if len(tokens) > 1 else None, self.page.grid, tokens[-1])]

    def fuse(self) -> None:
        raise NotImplementedError

    def prefill(self) -> None:
        raise NotImplementedError

    def joined(self) -> dict[Stage, Tensor]:
        """Give what SAM, the tower behind it and all stages after vision made, the views' rows joined."""
        raise NotImplementedError


class EagerVariant(Variant):
    """As `EagerEngine` runs them."""

    def see(self, number: int) -> None:
        if not number:
            self._seen = [[view] for view in self.views]
        for outputs in self._seen:
            outputs[number + 1 :] = [self.model.parts[number](*outputs[: number + 1])]

    @property
    def tokens_of_views(self) -> Sequence[Tensor]:
        return [outputs[-1] for outputs in self._seen]

    def fuse(self) -> None:
        prompt, device = self.page.prompt, self.model.device
        ids = torch.tensor([prompt.ids], device=device)  # (1, N)
        mask = torch.zeros(ids.shape, dtype=torch.bool, device=device)
        for start, length in prompt.mask:
            mask[:, start : start + length] = True
        self.outputs[Stage.VISION_FUSION] = self.model.fuse(ids, mask, self.images)[0]

    def prefill(self) -> None:
        self.cache.length = 0
        embeddings = self.outputs[Stage.VISION_FUSION][None]
        self.outputs[Stage.PREFILL] = self.model.decoder(embeddings, self.cache, self.rotary, self.core)[0, 0]

    def joined(self) -> dict[Stage, Tensor]:
        sam, behind, tokens = zip(*(outputs[1:] for outputs in self._seen), strict=True)
        # A class token stands before the features; no vision token is made of it.
        patches = [x[:, x.shape[1] - last.shape[1] :] for x, last in zip(behind, tokens, strict=True)]
        of_vision = ([x.flatten(2).transpose(1, 2) for x in sam], patches, tokens)
        names = [*self.model.family.vision]
        rows = [torch.cat([x.flatten(0, 1) for x in each]) for each in of_vision]
        return {**dict(zip(names, rows, strict=True)), **self.outputs}


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

    def see(self, number: int) -> None:
        if not number:
            self._pass = self._vision.start(self.views)
        self._pass.stages[number]()

    @property
    def tokens_of_views(self) -> Sequence[Tensor]:
        return self._pass.tokens

    def fuse(self) -> None:
        self.outputs[Stage.VISION_FUSION] = self._prefill.embed(self.page.prompt, self.images)

    def prefill(self) -> None:
        keys, values = self.cache.keys[:, 0], self.cache.values[:, 0]
        embeddings = self.outputs[Stage.VISION_FUSION]
        self.outputs[Stage.PREFILL] = self._prompt_pass.forward(
            embeddings, keys, values, self.rotary, self.core
        )

    def joined(self) -> dict[Stage, Tensor]:
        names = [*self.model.family.vision]
        tokens = torch.cat([x.flatten(0, 1) for x in self._pass.tokens])
        rows = (self._pass.features, self._pass.patches, tokens)
        return {**dict(zip(names, rows, strict=True)), **self.outputs}


class PagesVariant(FastVariant):
    """Several pages of one shape in a pass, as a batch prefills them: the page, and itself moved aside."""

    def __init__(
        self,
        model: OcrModel,
        page: Page,
        core: AttentionCore,
        towers: VisionTowers,
        prefill: FastPrefill,
        pages: int,
    ) -> None:
        super().__init__(model, page, core, towers, prefill)
        self._pages = pages
        self.views = [torch.cat([view.roll(8 * n, -1) for n in range(pages)]) for view in self.views]

    def fuse(self) -> None:
        by_page = zip(*(torch.chunk(x, self._pages) for x in self._pass.tokens), strict=True)
        self.outputs[Stage.VISION_FUSION] = torch.cat(
            [
                self._prefill.embed(self.page.prompt, [(x[0] if len(x) > 1 else None, self.page.grid, x[-1])])
                for x in by_page
            ]
        )

    def prefill(self) -> None:
        keys, values = self.cache.keys[:, 0], self.cache.values[:, 0]
        embeddings = self.outputs[Stage.VISION_FUSION]
        self.outputs[Stage.PREFILL] = self._prompt_pass.forward_pages(
            embeddings, self._pages, self.rotary, self.core
        )
        for number in range(self._pages):
            self._prompt_pass.copy_out(keys, values, self.tokens, number)


def median_position_error(variant: Variant, oracle: Variant) -> float:
    """Measure the error of the last layer's cached values, position by position.

    Rounding sends a token with a near tie to another expert now and then, in any engine. That decides what
    the one position of the logits shows; the median position shows the arithmetic.
    """
    made, exact = (each.cache.values[-1, 0].double() for each in (variant, oracle))  # (h, N, D)
    return float(((made - exact).norm(dim=(0, 2)) / exact.norm(dim=(0, 2))).median())
