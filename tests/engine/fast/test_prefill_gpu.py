"""Vision and prefill at the published sizes on a real GPU: `pytest -m gpu tests/kernels`.

Kernels against float32 references, recorded against launched, run against run, and no wait for the device.
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
from dsocr_core.kernels.launch import is_roomy
from dsocr_core.kernels.prefill.expert_order import order_by_expert, order_by_expert_reference
from dsocr_core.kernels.prefill.grouped_experts import (
    grouped_down,
    grouped_down_reference,
    grouped_gate_up,
    grouped_gate_up_reference,
    grouped_launches,
)
from dsocr_core.kernels.prefill.route_tokens import route_tokens, route_tokens_reference
from dsocr_core.kernels.prefill.window_attention import (
    position_terms,
    window_attention,
    window_attention_reference,
    window_launch,
)
from dsocr_core.models.blocks.attention import sdpa_core
from dsocr_core.models.family import load_config, preset_named
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.stages import Stage
from dsocr_core.models.weights import random_model
from tests.support.paths import MINI
from tests.support.prefill_variants import EagerVariant, FastVariant, Page, median_position_error

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]

BF16 = torch.bfloat16


def normal(generator: torch.Generator, *shape: int, scale: float = 1.0) -> Tensor:
    return (torch.randn(shape, generator=generator, device="cuda") * scale).to(BF16)


def error(actual: Tensor, exact: Tensor) -> float:
    return float((actual.double() - exact.double()).norm() / exact.double().norm())


@torch.inference_mode()
@pytest.mark.parametrize(("views", "side", "window"), [
    (1, 64, 64), (4, 40, 40), (1, 64, 14), (4, 40, 14), (2, 32, 32), (1, 80, 80), (1, 32, 14),
])  # fmt: skip
def test_window_attention_matches_its_reference_at_the_published_sizes(
    views: int, side: int, window: int
) -> None:
    generator = torch.Generator("cuda").manual_seed(side)
    heads, dim, tokens = 12, 64, views * side**2
    qkv, bias = normal(generator, tokens, 3, heads, dim), normal(generator, 3 * heads * dim)
    terms = position_terms(qkv, normal(generator, dim, 4 * window, scale=0.05))
    at = window_launch(window, is_roomy(qkv.device))
    out = torch.full((tokens, heads * dim), float("nan"), dtype=BF16, device="cuda")
    window_attention(qkv, bias, terms, out, side, window, at)
    wide = torch.empty_like(out, dtype=torch.float32)
    window_attention_reference(qkv.float(), bias.float(), terms.float(), wide, side, window)
    assert error(out, wide) < 6e-3
    again = torch.full_like(out, float("nan"))
    window_attention(qkv, bias, terms, again, side, window, at)
    assert torch.equal(out, again)


@torch.inference_mode()
@pytest.mark.parametrize("tokens", [729, 256, 64, 1, 1500])
def test_the_experts_match_their_reference_at_the_published_sizes(tokens: int) -> None:
    generator = torch.Generator("cuda").manual_seed(tokens)
    width, inner, experts, each = 1280, 896, 64, 6
    x, router = normal(generator, tokens, width), normal(generator, experts, width, scale=width**-0.5)
    gate, up = (normal(generator, experts, inner, width, scale=width**-0.5) for _ in "gu")
    down = normal(generator, experts, width, inner, scale=inner**-0.5)
    chosen = torch.full((tokens, each), -7, dtype=torch.int32, device="cuda")
    weights = torch.full((tokens, each), float("nan"), device="cuda")
    route_tokens(x, router, chosen, weights, 1.0)
    ids, exact = torch.empty_like(chosen), torch.empty_like(weights)
    route_tokens_reference(x, router, ids, exact, 1.0)
    assert (chosen == ids).float().mean() > 0.999  # sums in another order may turn a near tie
    torch.testing.assert_close(weights, exact, rtol=1e-3, atol=1e-5)

    slots, starts = chosen.new_full((tokens * each,), -7), chosen.new_full((experts + 1,), -7)
    order_by_expert(chosen, slots, starts)
    wanted = torch.empty_like(slots), torch.empty_like(starts)
    order_by_expert_reference(chosen, *wanted)
    assert torch.equal(slots, wanted[0]) and torch.equal(starts, wanted[1])
    at = grouped_launches(tokens * each, experts, BF16, x.device)
    gated = torch.full((tokens * each, inner), float("nan"), dtype=BF16, device="cuda")
    grouped_gate_up(x, slots, starts, gate, up, gated, at[0])
    wide = torch.empty_like(gated, dtype=torch.float32)
    grouped_gate_up_reference(x.float(), slots, starts, gate, up, wide)
    assert error(gated, wide) < 4e-3
    routed = torch.full((tokens, each, width), float("nan"), dtype=BF16, device="cuda")
    grouped_down(gated, slots, starts, down, routed, at[1])
    wide = torch.empty_like(routed, dtype=torch.float32)
    grouped_down_reference(gated.float(), slots, starts, down, wide)
    assert error(routed, wide) < 4e-3


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
def test_a_page_is_queued_without_waiting(model: OcrModel, page: Page, no_waiting: None) -> None:
    variant = fast_variant(model, page)
    for _ in range(3):  # the prompt is recorded when its length comes again
        variant.run()
    first = {stage: rows.clone() for stage, rows in variant.joined().items()}
    torch.cuda.set_sync_debug_mode("error")
    variant.run()
    torch.cuda.set_sync_debug_mode("default")
    for stage, rows in variant.joined().items():
        assert torch.equal(rows, first[stage]), stage


@torch.inference_mode()
def test_graphs_change_no_bit(model: OcrModel, page: Page) -> None:
    recorded, launched = fast_variant(model, page), fast_variant(model, page, graphs=False)
    for _ in range(3):
        recorded.run()
    launched.run()
    for made, wanted in (
        (recorded.cache.keys, launched.cache.keys),
        (recorded.cache.values, launched.cache.values),
    ):
        assert torch.equal(made, wanted)
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
        for number in range(3):
            variant.see(number)
        variant.fuse()
        embeddings = variant.outputs[Stage.VISION_FUSION]
        assert torch.equal(embeddings, seen.setdefault(page, embeddings.clone()))
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
