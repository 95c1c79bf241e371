"""Fast vision and prefill against the eager engine, in float32: stage by stage, then whole pages.

Without a GPU the fast engine's code runs with the kernels' references; with the kernels themselves it runs in
`tests/engine/fast/test_stages.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

pytest.importorskip("triton")

from dsocr_core.engine.checkpoint import Checkpoint, load_checkpoint
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.engine.fast.engine import FastEngine
from dsocr_core.engine.fast.graphs import Recorder
from dsocr_core.engine.fast.prefill import FastPrefill, PromptGraphs
from dsocr_core.engine.fast.vision import MOST_SHAPES, FastVision, VisionTowers
from dsocr_core.models.blocks.attention import Rotary, sdpa_core
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.family import parse_config
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import random_model
from dsocr_core.page.prompt import PromptIds
from dsocr_core.reading.records import OcrRequest
from tests.support.paths import SAMPLES
from tests.support.seeded_weights import tiny_config, write_seeded_checkpoint

CPU = torch.device("cpu")
TILES = 2


@pytest.fixture(scope="module")
def model() -> OcrModel:
    return random_model(parse_config(tiny_config()), CPU, torch.float32, seed=3)


@pytest.fixture(scope="module")
def views() -> list[Tensor]:
    """Noise: no two places alike."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator) for shape in ((TILES, 3, 640, 640), (1, 3, 1024, 1024))]


def assert_close(actual: Tensor, expected: Tensor, tolerance: float = 1e-5) -> None:
    torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@torch.inference_mode()
def test_each_stage_of_vision(model: OcrModel, views: list[Tensor]) -> None:
    towers = VisionTowers(model)
    sam = [model.sam(view) for view in views]
    clip = [model.clip(features) for features in sam]
    groups = [(view.shape[0], view.shape[2] // 64) for view in views]

    features = towers.sam(views)
    assert_close(features, torch.cat([x.flatten(2).transpose(1, 2).flatten(0, 1) for x in sam]))
    patches = towers.behind(features, groups)
    assert_close(patches, torch.cat([x[:, 1:].flatten(0, 1) for x in clip]), 1e-4)
    tokens = towers.project(patches, features, groups)
    for actual, one, other in zip(tokens, clip, sam, strict=True):
        assert_close(actual, model.projector(one, other), 1e-4)


@torch.inference_mode()
def test_a_pass_is_kept_by_its_shapes(model: OcrModel) -> None:
    vision = FastVision(VisionTowers(model))
    generator = torch.Generator().manual_seed(1)

    def read(view: Tensor) -> Tensor:
        found = vision.start([view])
        for stage in found.stages:
            stage()
        return found.tokens[0].clone()

    first, second = (torch.randn(1, 3, 512, 512, generator=generator) for _ in "ab")
    one = read(first)
    assert not torch.equal(read(second), one)
    assert torch.equal(read(first), one)
    assert list(vision._passes._seen) == [((1, 3, 512, 512),)]
    for count in range(2, MOST_SHAPES + 3):  # shapes alone: no stage runs
        vision.start([torch.zeros(count, 3, 64, 64)])
    assert len(vision._passes._seen) == MOST_SHAPES
    assert ((1, 3, 512, 512),) not in vision._passes._seen


def prompt_of(tokens: int) -> PromptIds:
    """Ids with two spans of image places."""
    return PromptIds(tuple(range(7, 7 + tokens)), ((2, 5), (9, 3)))


@torch.inference_mode()
def test_vision_goes_where_the_prompt_says(model: OcrModel) -> None:
    """A grid of one column and two rows of one token each, and a global view of one: 4 + 2 + 1 tokens."""
    prompt = replace(prompt_of(14), mask=((2, 5), (9, 2)))
    generator = torch.Generator().manual_seed(4)
    tiles, whole = (torch.randn(count, 1, 64, generator=generator) for count in (2, 1))
    mask = torch.zeros(1, 14, dtype=torch.bool)
    mask[0, 2:7] = mask[0, 9:11] = True
    expected = model.fuse(torch.tensor([prompt.ids]), mask, [(tiles, (1, 2), whole)])[0]
    prefill = FastPrefill(model)
    assert torch.equal(prefill.embed(prompt, [(tiles, (1, 2), whole)]), expected)
    with pytest.raises(ValueError, match="7 vision tokens for 8 image positions"):
        prefill.embed(prompt_of(14), [(tiles, (1, 2), whole)])


@torch.inference_mode()
@pytest.mark.parametrize("tokens", [53, 1])
def test_the_prefill_fills_the_cache_and_gives_the_eager_logits(model: OcrModel, tokens: int) -> None:
    config = model.config.decoder
    embeddings = torch.randn(1, tokens, config.hidden_size, generator=torch.Generator().manual_seed(tokens))
    rotary = Rotary(config, tokens + 4, torch.float32, torch.float32, CPU)
    expected_cache = KvCache(config, tokens + 4, torch.float32, CPU)
    expected = model.forward_text(embeddings, expected_cache, rotary, sdpa_core)[0]

    # One sequence's part of a cache of three.
    cache = KvCache(config, tokens + 4, torch.float32, CPU, batch=3)
    cache.keys.fill_(7.0)
    cache.values.fill_(7.0)
    before = embeddings.clone()
    keys, values = cache.keys[:, 1], cache.values[:, 1]
    logits = FastPrefill(model).forward(embeddings[0], keys, values, rotary, sdpa_core)
    assert_close(logits, expected, 2e-5)
    assert torch.equal(embeddings, before)
    for actual, wanted in ((cache.keys, expected_cache.keys), (cache.values, expected_cache.values)):
        assert_close(actual[:, 1, :, :tokens], wanted[:, 0, :, :tokens], 2e-5)
        assert (actual[:, 1, :, tokens:] == 7).all()
        assert (actual[:, [0, 2]] == 7).all()


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
    monkeypatch.setattr("dsocr_core.engine.fast.prefill.MOST_LENGTHS", 2)
    config, recorder, plain = model.config.decoder, ListedRecorder(), FastPrefill(model)
    graphs = PromptGraphs(plain, config, recorder)
    generator = torch.Generator().manual_seed(8)

    def check(tokens: int, positions: int, recordings: int) -> None:
        embeddings = torch.randn(tokens, config.hidden_size, generator=generator)
        rotary = Rotary(config, positions, torch.float32, torch.float32, CPU)
        made, wanted = (KvCache(config, positions, torch.float32, CPU, batch=2) for _ in "mw")
        made.keys.fill_(3.0)
        logits = graphs.forward(embeddings, made.keys[:, 1], made.values[:, 1], rotary, sdpa_core)
        expected = plain.forward(embeddings, wanted.keys[:, 1], wanted.values[:, 1], rotary, sdpa_core)
        assert_close(logits, expected)
        for actual, other in ((made.keys, wanted.keys), (made.values, wanted.values)):
            assert_close(actual[:, 1, :, :tokens], other[:, 1, :, :tokens])
        assert (made.keys[:, 1, :, tokens:] == 3).all() and (made.keys[:, 0] == 3).all()
        assert recorder.recordings == recordings

    check(7, 9, 0)
    check(7, 12, 1)
    check(7, 8, 1)
    check(5, 8, 1)
    check(33, 40, 1)
    check(33, 40, 1)  # too long to be recorded
    check(7, 9, 1)
    check(6, 8, 1)  # and 5 is forgotten
    check(5, 8, 1)
    check(5, 8, 2)


@torch.inference_mode()
@pytest.mark.parametrize("recorded", [True, False])
def test_pages_of_one_length_are_prefilled_as_each_is(model: OcrModel, recorded: bool) -> None:
    """The second time, as what comes again is recorded; each page to a cache of its own."""
    config, plain, (pages, tokens) = model.config.decoder, FastPrefill(model), (3, 11)
    graphs = PromptGraphs(plain, config, ListedRecorder() if recorded else None)
    rotary = Rotary(config, 40, torch.float32, torch.float32, CPU)
    for seed in (5, 6):
        embeddings = torch.randn(
            pages, tokens, config.hidden_size, generator=torch.Generator().manual_seed(seed)
        )
        logits = graphs.forward_pages(embeddings.flatten(0, 1), pages, rotary, sdpa_core)
        for page in range(pages):
            made, wanted = (KvCache(config, 20, torch.float32, CPU) for _ in "mw")
            made.keys.fill_(3.0)
            graphs.copy_out(made.keys[:, 0], made.values[:, 0], tokens, page)
            expected = plain.forward(
                embeddings[page], wanted.keys[:, 0], wanted.values[:, 0], rotary, sdpa_core
            )
            assert_close(logits[page], expected)
            assert_close(made.keys[:, 0, :, :tokens], wanted.keys[:, 0, :, :tokens])
            assert_close(made.values[:, 0, :, :tokens], wanted.values[:, 0, :, :tokens])
            assert (made.keys[:, 0, :, tokens:] == 3).all()


class FastThenEager(FastEngine):
    """Fast vision and prefill; decoding token by token, which needs no GPU to be quick."""

    start, tokens = EagerEngine.start, EagerEngine.tokens  # type: ignore[assignment]


@pytest.fixture(scope="module")
def embedded() -> Checkpoint:
    return load_checkpoint(str(SAMPLES.parent / "mini"), CPU, torch.float32)


PAGES = sorted(path.name for path in SAMPLES.glob("*.png"))


def check_page(checkpoint: Checkpoint, page: Path, preset: str, tokens: int | None) -> None:
    request = OcrRequest(page, preset, max_new_tokens=tokens)
    fast, eager = (engine(checkpoint).recognize(request) for engine in (FastThenEager, EagerEngine))
    assert fast.token_ids == eager.token_ids
    assert fast.inputs == eager.inputs
    assert [(row.stage, row.calls) for row in fast.timings] == [
        (row.stage, row.calls) for row in eager.timings
    ]


def test_the_embedded_checkpoint_reads_the_same(embedded: Checkpoint) -> None:
    check_page(embedded, SAMPLES / "01-letter.png", "small", 24)


def test_a_page_with_tiles_reads_the_same(tmp_path: Path) -> None:
    directory = write_seeded_checkpoint(tiny_config(), tmp_path / "tiny_prefill", torch.float32)
    noise = np.random.default_rng(0).integers(0, 256, (150, 100, 3), dtype=np.uint8)
    Image.fromarray(noise).resize((1000, 1500)).save(tmp_path / "page.png")
    check_page(load_checkpoint(str(directory), CPU, torch.float32), tmp_path / "page.png", "gundam", 12)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["small", "gundam"])
@pytest.mark.parametrize("page", PAGES)
def test_the_embedded_checkpoint_reads_every_sample_the_same(
    embedded: Checkpoint, page: str, preset: str
) -> None:
    check_page(embedded, SAMPLES / page, preset, 2000)
