"""Vision and prefill of both engines over random pixels, for timing and comparing them.

Letters: M features of all views, V vision tokens, N prompt tokens, C width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    """One engine; `run` makes `embeddings` (N, C) and `logits` (V,). A subclass has `embed` and `prefill`."""

    def __init__(self, model: OcrModel, page: Page, core: AttentionCore) -> None:
        config, device = model.config.decoder, model.device
        self.model, self.page, self.core = model, page, core
        self.views = [view.to(model.dtype) for view in page.views]
        self.tokens = len(page.prompt.ids)
        self.cache = KvCache(config, self.tokens, model.dtype, device)
        self.rotary = Rotary(config, self.tokens, torch.float32, model.dtype, device)

    def run(self) -> None:
        self.embed()
        self.prefill()

    def images(self, tokens: Sequence[Tensor]) -> list[Tokens]:
        """The page's vision tokens as fusion takes them, of those of its views."""
        return [(tokens[0] if len(tokens) > 1 else None, self.page.grid, tokens[-1])]

    def with_outputs(self, *rows: Tensor) -> dict[Stage, Tensor]:
        outputs = {Stage.VISION_FUSION: self.embeddings, Stage.PREFILL: self.logits}
        return dict(zip(self.model.family.vision, rows, strict=True)) | outputs


class EagerVariant(Variant):
    """As `EagerEngine` runs them."""

    def embed(self) -> None:
        self._seen = [[view] for view in self.views]
        for outputs in self._seen:
            for part in self.model.parts:
                outputs.append(part(*outputs))
        prompt, device = self.page.prompt, self.model.device
        ids = torch.tensor([prompt.ids], device=device)  # (1, N)
        mask = torch.zeros(ids.shape, dtype=torch.bool, device=device)
        for start, length in prompt.mask:
            mask[:, start : start + length] = True
        images = self.images([outputs[-1] for outputs in self._seen])
        self.embeddings = self.model.fuse(ids, mask, images)[0]

    def prefill(self) -> None:
        self.cache.length = 0
        self.logits = self.model.decoder(self.embeddings[None], self.cache, self.rotary, self.core)[0, 0]

    def joined(self) -> dict[Stage, Tensor]:
        """What each stage made, the rows of all views joined."""
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

    def embed(self) -> None:
        self._pass = self._vision.start(self.views)
        for number in range(len(self.model.family.vision)):
            self._pass.stages[number]()
        by_page = zip(*(x.chunk(self._pages) for x in self._pass.tokens), strict=True)
        rows = [self._prefill.embed(self.page.prompt, self.images(tokens)) for tokens in by_page]
        self.embeddings = rows[0] if self._pages == 1 else torch.cat(rows)

    def prefill(self) -> None:
        keys, values = self.cache.keys[:, 0], self.cache.values[:, 0]
        if self._pages == 1:
            self.logits = self._prompt_pass.forward(self.embeddings, keys, values, self.rotary, self.core)
            return
        self.logits = self._prompt_pass.forward_pages(self.embeddings, self._pages, self.rotary, self.core)
        for number in range(self._pages):
            self._prompt_pass.copy_out(keys, values, self.tokens, number)

    def joined(self) -> dict[Stage, Tensor]:
        """What each stage made."""
        tokens = torch.cat([x.flatten(0, 1) for x in self._pass.tokens])
        return self.with_outputs(self._pass.features, self._pass.patches, tokens)


def median_position_error(variant: Variant, oracle: Variant) -> float:
    """Measure the error of the last layer's cached values, position by position.

    Rounding sends a token with a near tie to another expert now and then, in any engine. That decides what
    the one position of the logits shows; the median position shows the arithmetic.
    """
    made, exact = (each.cache.values[-1, 0].double() for each in (variant, oracle))  # (h, N, D)
    return float(((made - exact).norm(dim=(0, 2)) / exact.norm(dim=(0, 2))).median())
