"""Vision and prefill at the published sizes on a real GPU: `pytest -m gpu tests/engine/fast`.

Recorded against launched, without a wait for the device, and errors against float32 beside eager's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dsocr_core.engine.device import full_float32
from dsocr_core.engine.fast.ops import Ops
from dsocr_core.engine.fast.prefill import FastPrefill
from dsocr_core.engine.fast.vision import VisionTowers
from dsocr_core.models.blocks.attention import sdpa_core
from dsocr_core.models.family import load_config, preset_named
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.stages import Stage
from dsocr_core.models.weights import random_model
from tests.perf.prefill_variants import EagerVariant, FastVariant, Page, median_position_error
from tests.support.paths import MINI

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]

BF16 = torch.bfloat16


def error(actual: Tensor, exact: Tensor) -> float:
    return float((actual.double() - exact.double()).norm() / exact.double().norm())


@pytest.fixture(scope="module", params=["embedded", "published width"])
def model(request: pytest.FixtureRequest) -> OcrModel:
    """The second is the published model with fewer layers."""
    config = load_config(MINI)
    if request.param != "embedded":
        sam = replace(config.sam, width=768, heads=12, layers=3, downsample_channels=(512, 1024))
        assert config.clip is not None
        clip = replace(config.clip, width=1024, heads=16, layers=3)
        projector = replace(config.projector, input_dim=2048, output_dim=1280)
        decoder = replace(
            config.decoder, hidden_size=1280, heads=10, layers=3, intermediate_size=6848,
            moe_intermediate_size=896, routed_experts=64, experts_per_token=6,
        )  # fmt: skip
        config = replace(config, sam=sam, projector=projector, decoder=decoder, clip=clip)
    return random_model(config, torch.device("cuda"), BF16)


@pytest.fixture(params=[(2, 2), (1, 1)], ids=["tiles", "no tiles"])
def page(request: pytest.FixtureRequest, model: OcrModel) -> Page:
    return Page.random(model.config, preset_named("gundam"), request.param, 9, torch.device("cuda"))


def fast_variant(model: OcrModel, page: Page, graphs: bool = True) -> FastVariant:
    towers = VisionTowers(model, Ops(kernels=True))
    return FastVariant(model, page, sdpa_core, towers, FastPrefill(model), graphs)


@pytest.fixture
def no_waiting() -> Iterator[None]:
    """Whatever waits for the device raises."""
    yield
    torch.cuda.set_sync_debug_mode("default")


@torch.inference_mode()
def test_graphs_change_no_bit_and_are_queued_without_waiting(
    model: OcrModel, page: Page, no_waiting: None
) -> None:
    recorded, launched = fast_variant(model, page), fast_variant(model, page, graphs=False)
    for _ in range(3):  # the prompt is recorded when its length comes again
        recorded.run()
    launched.run()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    recorded.run()
    torch.cuda.set_sync_debug_mode("default")
    assert torch.equal(recorded.cache.keys, launched.cache.keys)
    assert torch.equal(recorded.cache.values, launched.cache.values)
    for stage, rows in launched.joined().items():
        assert torch.equal(rows, recorded.joined()[stage]), stage


@torch.inference_mode()
def test_shapes_do_not_disturb_each_other(model: OcrModel) -> None:
    """Graphs of several shapes share memory: each page reads as it did, in whatever order."""
    device, preset = torch.device("cuda"), preset_named("gundam")
    variant = fast_variant(model, Page.random(model.config, preset, (2, 1), 9, device))
    pages = [Page.random(model.config, preset, grid, 9, device) for grid in ((2, 1), (1, 1), (3, 1))]
    seen: dict[int, Tensor] = {}
    for page in (0, 1, 2, 0, 2, 1, 0):
        variant.page, variant.views = pages[page], [view.to(BF16) for view in pages[page].views]
        variant.embed()
        assert torch.equal(variant.embeddings, seen.setdefault(page, variant.embeddings.clone()))
    assert len(seen) == 3


@torch.inference_mode()
def test_no_further_from_float32_than_eager(model: OcrModel, page: Page) -> None:
    variant, eager = fast_variant(model, page), EagerVariant(model, page, sdpa_core)
    variant.run()
    with torch.autocast("cuda", BF16):
        eager.run()
    fast_rows, eager_rows = variant.joined(), eager.joined()
    model.float()
    try:
        with full_float32():
            oracle = EagerVariant(model, page, sdpa_core)
            oracle.run()
            exact = oracle.joined()
    finally:
        model.to(BF16)  # other tests have it as well
    for stage in (Stage.SAM, Stage.CLIP, Stage.PROJECTOR, Stage.VISION_FUSION):
        assert error(fast_rows[stage], exact[stage]) <= 1.1 * error(eager_rows[stage], exact[stage]), stage
    assert median_position_error(variant, oracle) <= 1.1 * median_position_error(eager, oracle)
