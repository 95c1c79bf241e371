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
    """One engine's stages in their order; `outputs` holds the last ones' results, (N, C) and (V,).

    A subclass has `see`, which runs the vision stage of a number, `fuse`, `prefill`, `tokens_of_views`, and
    `joined`: what vision's stages made, the views' rows joined, and the outputs.
    """

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
        vision = {name: partial(self.see, number) for number, name in enumerate(self.model.family.vision)}
        return {**vision, Stage.VISION_FUSION: self.fuse, Stage.PREFILL: self.prefill}

    def run(self) -> None:
        for stage in self.stages().values():
            stage()

    @property
    def images(self) -> list[Tokens]:
        tokens = self.tokens_of_views
        return [(tokens[0] if len(tokens) > 1 else None, self.page.grid, tokens[-1])]

    def with_outputs(self, *rows: Tensor) -> dict[Stage, Tensor]:
        return {**dict(zip(self.model.family.vision, rows, strict=True)), **self.outputs}


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
        return self.with_outputs(*(torch.cat([x.flatten(0, 1) for x in each]) for each in of_vision))


class FastVariant(Variant):
    """As `FastEngine` runs them; several `pages` of a pass are the page, and itself moved aside."""

    def __init__(
        self, model: OcrModel, page: Page, core: AttentionCore, towers: VisionTowers, prefill: FastPrefill,
        graphs: bool = True, pages: int = 1,
    ) -> None:  # fmt: skip
        super().__init__(model, page, core)
        self._vision, self._prefill, self._pages = FastVision(towers, graphs), prefill, pages
        recorder = recorder_for(model.device) if graphs else None
        self._prompt_pass = PromptGraphs(prefill, model.config.decoder, recorder)
        if pages > 1:
            self.views = [torch.cat([view.roll(8 * n, -1) for n in range(pages)]) for view in self.views]

    def see(self, number: int) -> None:
        if not number:
            self._pass = self._vision.start(self.views)
        self._pass.stages[number]()

    @property
    def tokens_of_views(self) -> Sequence[Tensor]:
        return self._pass.tokens

    def fuse(self) -> None:
        grid, by_page = self.page.grid, zip(*(x.chunk(self._pages) for x in self._pass.tokens), strict=True)
        images = [(x[0] if len(x) > 1 else None, grid, x[-1]) for x in by_page]
        rows = [self._prefill.embed(self.page.prompt, [image]) for image in images]
        self.outputs[Stage.VISION_FUSION] = rows[0] if self._pages == 1 else torch.cat(rows)

    def prefill(self) -> None:
        keys, values = self.cache.keys[:, 0], self.cache.values[:, 0]
        given = self.outputs[Stage.VISION_FUSION]
        if self._pages == 1:
            made = self._prompt_pass.forward(given, keys, values, self.rotary, self.core)
        else:
            made = self._prompt_pass.forward_pages(given, self._pages, self.rotary, self.core)
            for number in range(self._pages):
                self._prompt_pass.copy_out(keys, values, self.tokens, number)
        self.outputs[Stage.PREFILL] = made

    def joined(self) -> dict[Stage, Tensor]:
        tokens = torch.cat([x.flatten(0, 1) for x in self._pass.tokens])
        return self.with_outputs(self._pass.features, self._pass.patches, tokens)


def median_position_error(variant: Variant, oracle: Variant) -> float:
    """Measure the error of the last layer's cached values, position by position.

    Rounding sends a token with a near tie to another expert now and then, in any engine. That decides what
    the one position of the logits shows; the median position shows the arithmetic.
    """
    made, exact = (each.cache.values[-1, 0].double() for each in (variant, oracle))  # (h, N, D)
    return float(((made - exact).norm(dim=(0, 2)) / exact.norm(dim=(0, 2))).median())
