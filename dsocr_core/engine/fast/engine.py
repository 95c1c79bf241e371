"""The engine of a single page on a GPU, over the parts of this package."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from functools import partial
from typing import Any

import torch
from torch import Tensor

from dsocr_core.base.errors import Cancelled
from dsocr_core.engine import preparing
from dsocr_core.engine.base import EagerEngine, Engine, EngineOptions, ToPrefill
from dsocr_core.engine.checkpoint import Checkpoint
from dsocr_core.engine.generate import Sequence
from dsocr_core.engine.page import PageInputs, Pixels, most_tokens
from dsocr_core.engine.stage_timer import StageTimer
from dsocr_core.models.stages import Stage
from dsocr_core.page.prompt import PromptIds
from dsocr_core.reading.records import CancelToken, NgramPolicy

PAGES_A_PASS = 4
"""Pages of one shape that are prefilled together in a batch."""


class FastEngine(Engine):
    """Engine for a GPU: an image's views at once, the prompt in few launches, decoding by CUDA graphs."""

    name = "fast"

    def __init__(self, checkpoint: Checkpoint, options: EngineOptions | None = None) -> None:
        super().__init__(checkpoint, options)
        # These need triton, which `require_fast_engine` checks first.
        from dsocr_core.engine.fast.decode import FastDecoder
        from dsocr_core.engine.fast.graphs import recorder_for
        from dsocr_core.engine.fast.prefill import FastPrefill, PromptGraphs
        from dsocr_core.engine.fast.vision import FastVision, VisionTowers

        model = checkpoint.model
        self._towers, self._prompt, self._ready = VisionTowers(model), FastPrefill(model), set[str]()
        self._vision = FastVision(self._towers)
        self._prompt_pass = PromptGraphs(self._prompt, model.config.decoder, recorder_for(model.device))
        self._decoder = FastDecoder(model, self.end_token, self.rotary_dtype)

    def make_ready(self, page: PageInputs, pixels: Pixels, step: Any = None, at_once: int = 1) -> None:
        """Compile all kernels in parallel before the first page, or batch, is read."""
        kind = "page" if step is None else "batch"
        if kind in self._ready or self.checkpoint.model.device.type != "cuda":
            return
        from dsocr_core.engine.fast.prefill import MOST_TOKENS
        from dsocr_core.engine.fast.vision import VisionPass
        from dsocr_core.kernels.compile import compiled_together

        model, tokens = self.checkpoint.model, len(page.prompt.ids)

        def compiled(ready: int, count: int) -> None:
            say(f"compiling kernels, {ready} of {count}")

        with preparing.saying() as say, compiled_together(model.device, compiled):
            own: Any = self._decoder.step_for((tokens, page.limit)) if step is None else step
            shape = min(at_once * tokens, MOST_TOKENS), model.config.decoder.hidden_size
            embeddings = torch.zeros(shape, dtype=model.dtype, device=model.device)
            # The kernels that take longest come first.
            self._prompt_pass.run(embeddings, own.rotary, self.core, at_once)
            shapes = [(at_once * len(view), *view.shape[1:]) for view in pixels.images[0]]
            for run in VisionPass(self._towers, shapes, None).stages:
                run()
            for run in [own.run] if step is None else [partial(own.run, rows) for rows in own.rows]:
                run()
            self._prompt.run_experts()
        self._ready.add(kind)

    def _embed(
        self, prompt: PromptIds, pixels: Pixels, timer: StageTimer, cancel: CancelToken | None
    ) -> Tensor:
        features: list[Tensor] = []
        for views in pixels.images:
            tokens = self._see(views, timer, cancel)
            # copied: the next image's pass overwrites them
            features += tokens if len(pixels.images) == 1 else [each.clone() for each in tokens]
        with timer.stage(Stage.VISION_FUSION):
            return self._prompt.embed(prompt, pixels.fused(features))[None]

    def _see(self, views: Seq[Tensor], timer: StageTimer, cancel: CancelToken | None) -> tuple[Tensor, ...]:
        """Vision tokens of each view size, valid until the next pass."""
        if cancel is not None and cancel.is_set():
            raise Cancelled
        vision = self._vision.start(views)
        for stage, run in zip(self.checkpoint.model.family.vision, vision.stages, strict=True):
            with timer.stage(stage, len(views)):
                run()
        return vision.tokens

    def pages_a_pass(self, page: PageInputs) -> int:
        from dsocr_core.engine.fast.prefill import MOST_TOKENS

        fits = PAGES_A_PASS * len(page.prompt.ids) <= MOST_TOKENS and len(page.sizes) == 1
        return PAGES_A_PASS if fits else 1

    def prefill_pages(
        self, pages: Seq[ToPrefill], at_once: int, timer: StageTimer, cancel: CancelToken | None
    ) -> list[Tensor]:
        if at_once == 1:
            return super().prefill_pages(pages, at_once, timer, cancel)
        # Fewer pages are padded with one of them: products with as many rows have the same bits.
        filled = [*pages, *[pages[-1]] * (at_once - len(pages))]
        views = [torch.cat(each) for each in zip(*(pixels.passes for _, pixels, _ in filled), strict=True)]
        tokens = self._see(views, timer, cancel)
        of_page = list(zip(*(torch.chunk(each, len(filled)) for each in tokens), strict=True))
        with timer.stage(Stage.VISION_FUSION):
            embeddings = torch.cat(
                [
                    self._prompt.embed(prompt, pixels.fused(features))
                    for (prompt, pixels, _), features in zip(filled, of_page, strict=True)
                ]
            )
        first = pages[0][2]
        logits = self._prompt_pass.forward_pages(embeddings, len(filled), first.rotary, first.core).clone()
        for number, (prompt, _, sequence) in enumerate(pages):
            cache, count = sequence.cache, len(prompt.ids)
            self._prompt_pass.copy_out(cache.keys[:, 0], cache.values[:, 0], count, number)
            cache.advance(count)
        return list(logits[: len(pages)])

    def start(self, page: PageInputs, ngram: NgramPolicy | int) -> Sequence:
        room = most_tokens(page, self.checkpoint.model.config.decoder.max_positions)
        return self._decoder.start(page.prompt.ids, page.limit, ngram, self.core, room)

    def tokens(
        self, sequence: Sequence, prompt_ids: tuple[int, ...], logits: Tensor, limit: int
    ) -> Iterator[int]:
        beside = self._vision.passes.pending + self._prompt_pass.passes.pending
        return self._decoder.tokens(sequence, prompt_ids, logits, limit, *beside)

    def _prefill(self, sequence: Sequence, embeddings: Tensor) -> Tensor:
        cache = sequence.cache
        keys, values = cache.keys[:, 0], cache.values[:, 0]  # (L, h, P, D)
        logits = self._prompt_pass.forward(embeddings[0], keys, values, sequence.rotary, sequence.core)
        cache.advance(embeddings.shape[1])
        return logits


ENGINES: dict[str, type[Engine]] = {engine.name: engine for engine in (EagerEngine, FastEngine)}
"""Engines by name."""
