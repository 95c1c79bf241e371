"""The fast engine of the other models of the family, in float32 against the eager engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

pytest.importorskip("triton")

from dsocr_core.engine.base import EngineOptions
from dsocr_core.engine.checkpoint import Checkpoint, load_checkpoint
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.engine.fast.engine import FastEngine
from dsocr_core.engine.fast.ops import Ops
from dsocr_core.engine.fast.vision import VisionTowers
from dsocr_core.models.deepseek_ocr2 import DeepseekOcr2Config
from dsocr_core.models.family import parse_config
from dsocr_core.models.weights import random_model
from dsocr_core.settings import InferSettings, Settings
from tests.support.tiny_members import tiny_ocr2, tiny_unlimited, written

CPU = torch.device("cpu")


class SameBuffers:
    """A recorder whose replays write where the first run wrote, as a CUDA graph's do."""

    def recorded(self, run: Any) -> Callable[[], None]:
        held = run.__self__
        before = vars(held).copy()
        run()
        (name,) = (name for name, value in vars(held).items() if value is not before.get(name))
        buffers = getattr(held, name)

        def replay() -> None:
            run()
            for buffer, made in zip(_several(buffers), _several(getattr(held, name)), strict=True):
                buffer.copy_(made)
            setattr(held, name, buffers)

        return replay


def _several(tensors: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return tensors if isinstance(tensors, tuple) else (tensors,)


class FastThenEager(FastEngine):
    """Fast vision and prefill; decoding token by token, which needs no GPU to be quick."""

    start, tokens = EagerEngine.start, EagerEngine.tokens  # type: ignore[assignment]

    def __init__(self, checkpoint: Checkpoint, options: EngineOptions | None = None) -> None:
        super().__init__(checkpoint, options)
        self._vision._recorder = SameBuffers()  # type: ignore[assignment]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pages")
    for number in range(2):
        noise = np.random.default_rng(number).integers(0, 256, (40, 80, 3), np.uint8)
        Image.fromarray(noise).resize((800, 400)).save(folder / f"{number}.png")
    return sorted(folder.iterdir())


@torch.inference_mode()
@pytest.mark.parametrize("kernels", [False, True], ids=["references", "kernels"])
def test_the_encoder_answers_as_its_modules_do(kernels: bool, device: torch.device) -> None:
    """Views of both sizes together, as SAM would leave them: 2 of 4 features, one of 9."""
    config = parse_config(tiny_ocr2())
    assert isinstance(config, DeepseekOcr2Config)
    config = replace(config, encoder=replace(config.encoder, queries=(4, 9)))
    model = random_model(config, device, torch.float32, seed=3)
    towers, groups = VisionTowers(model, Ops(kernels)), [(2, 2), (1, 3)]
    generator = torch.Generator().manual_seed(0)
    maps = [torch.randn(count, 48, side, side, generator=generator).to(device) for count, side in groups]
    features = torch.cat([view.flatten(2).transpose(1, 2).flatten(0, 1) for view in maps])
    expected = torch.cat([model.encoder(view).flatten(0, 1) for view in maps])
    torch.testing.assert_close(towers.behind(features, groups), expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("config", "preset", "count"),
    [
        (tiny_ocr2, "default", 1),
        (tiny_ocr2, "768", 1),
        (tiny_unlimited, "gundam", 1),
        (tiny_unlimited, "base", 2),
    ],
    ids=["tiles", "a view of 768", "tiles in rows", "two pages in a prompt"],
)
def test_a_page_reads_the_same(config, preset: str, count: int, pages: list[Path], tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    source = written(config(), tmp_path)
    checkpoint = load_checkpoint(source, CPU, torch.float32)
    settings = Settings(
        checkpoint=source, preset=preset, infer=InferSettings(max_new_tokens=12, no_repeat_ngram_size=1)
    )
    request = settings.request(pages[0], more=tuple(pages[1:count]) or None)
    options = EngineOptions(ignore_eos=True)
    fast, eager = (engine(checkpoint, options).recognize(request) for engine in (FastThenEager, EagerEngine))
    assert fast.token_ids == eager.token_ids and len(set(fast.token_ids)) == 12
    assert fast.inputs == eager.inputs
    calls = [[(row.stage, row.calls) for row in result.timings] for result in (fast, eager)]
    assert calls[0] == calls[1]
