"""Fast vision and prefill against the eager engine, in float32: recorded prompts and whole pages.

Without a GPU most runs with the kernels' references; stage by stage `tests/trace/test_fast.py` compares.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

pytest.importorskip("triton")

from dsocr_core.engine.base import EagerEngine, EngineOptions
from dsocr_core.engine.checkpoint import Checkpoint, load_checkpoint
from dsocr_core.engine.fast.engine import FastEngine
from dsocr_core.engine.fast.graphs import Recorder
from dsocr_core.engine.fast.prefill import FastPrefill, PromptGraphs
from dsocr_core.models.blocks.attention import Rotary, sdpa_core
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.family import parse_config
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import random_model
from dsocr_core.reading.records import OcrRequest
from dsocr_core.settings import InferSettings, Settings
from tests.engine.decoders import DEVICE
from tests.support.paths import SAMPLES
from tests.support.seeded_weights import (
    tiny_config,
    tiny_ocr2_config,
    tiny_unlimited_config,
    written,
)

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model() -> OcrModel:
    return random_model(parse_config(tiny_config()), DEVICE, torch.float32, seed=3)


def assert_close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


# --- the prompt -----------------------------------------------------------------------------------


class ListedRecorder(Recorder):
    """Runs what it is given as a recording would: once, and then at each replay."""

    def __init__(self) -> None:
        self.recordings = 0

    def recorded(self, run: Callable[[], None]) -> Callable[[], None]:
        self.recordings += 1
        run()
        return run


@torch.inference_mode()
def test_a_length_that_comes_again_is_recorded(model: OcrModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever cache the prompt is for, and however far that one's rotary goes."""
    monkeypatch.setattr("dsocr_core.engine.fast.prefill.MOST_TOKENS", 32)
    config, recorder, plain = model.config.decoder, ListedRecorder(), FastPrefill(model)
    graphs = PromptGraphs(plain, config, recorder)
    generator = torch.Generator().manual_seed(8)
    # The last is too long to be recorded.
    asked = ((7, 9, 0), (7, 12, 1), (7, 8, 1), (5, 8, 1), (33, 40, 1), (33, 40, 1))
    for tokens, positions, recordings in asked:
        embeddings = torch.randn(tokens, config.hidden_size, generator=generator).to(DEVICE)
        rotary = Rotary(config, positions, torch.float32, torch.float32, DEVICE)
        made, wanted = (KvCache(config, positions, torch.float32, DEVICE, batch=2) for _ in "mw")
        made.keys.fill_(3.0)
        logits = graphs.forward(embeddings, made.keys[:, 1], made.values[:, 1], rotary, sdpa_core)
        expected = plain.forward(embeddings, wanted.keys[:, 1], wanted.values[:, 1], rotary, sdpa_core)
        assert_close(logits, expected)
        for actual, other in ((made.keys, wanted.keys), (made.values, wanted.values)):
            assert_close(actual[:, 1, :, :tokens], other[:, 1, :, :tokens])
        assert (made.keys[:, 1, :, tokens:] == 3).all() and (made.keys[:, 0] == 3).all()
        assert recorder.recordings == recordings


# --- whole pages ----------------------------------------------------------------------------------


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


def check_page(
    checkpoint: Checkpoint, request: OcrRequest, fast: type[FastEngine] = FastThenEager, different: int = 1
) -> None:
    options = EngineOptions(ignore_eos=True)
    one, two = (engine(checkpoint, options).recognize(request) for engine in (fast, EagerEngine))
    assert one.token_ids == two.token_ids and len(set(one.token_ids)) >= different
    assert (one.inputs, one.text_raw) == (two.inputs, two.text_raw)
    calls = [[(row.stage, row.calls) for row in result.timings] for result in (one, two)]
    assert calls[0] == calls[1]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("pages")
    for number in range(2):
        picture = np.random.default_rng(number).integers(0, 256, (40, 80, 3), np.uint8)
        Image.fromarray(picture).resize((800, 400)).save(folder / f"{number}.png")
    return sorted(folder.iterdir())


@pytest.mark.parametrize(
    ("config", "preset", "count"),
    [
        (tiny_config, "gundam", 1), (tiny_ocr2_config, "default", 1), (tiny_ocr2_config, "768", 1),
        (tiny_unlimited_config, "gundam", 1), (tiny_unlimited_config, "base", 2),
    ],
    ids=["tiles", "OCR-2, tiles", "OCR-2, a view of 768", "tiles in rows", "two pages in a prompt"],
)  # fmt: skip
def test_a_page_reads_the_same(
    config: Callable[[], dict[str, Any]], preset: str, count: int, pages: list[Path], tmp_path: Path
) -> None:
    source = written(config(), tmp_path)
    infer = InferSettings(max_new_tokens=12, no_repeat_ngram_size=1)
    settings = Settings(checkpoint=source, preset=preset, infer=infer)
    request = settings.request(pages[0], more=tuple(pages[1:count]) or None)
    check_page(load_checkpoint(source, CPU, torch.float32), request, different=12)


PAGES = [("01-letter.png", "small", 24)] + [
    pytest.param(path.name, preset, 2000, marks=pytest.mark.slow)
    for preset in ("small", "gundam")
    for path in sorted(SAMPLES.glob("*.png"))
]


@pytest.mark.parametrize(("page", "preset", "tokens"), PAGES)
def test_the_embedded_checkpoint_reads_the_same(page: str, preset: str, tokens: int) -> None:
    checkpoint = load_checkpoint(str(SAMPLES.parent / "mini"), CPU, torch.float32)
    request = OcrRequest(SAMPLES / page, preset, max_new_tokens=tokens)
    one, two = (engine(checkpoint).recognize(request) for engine in (FastThenEager, EagerEngine))
    assert (one.token_ids, one.inputs) == (two.token_ids, two.inputs)
