"""The table of models: which one a config is of, and figures of the published ones worked out elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from analytic_model.policy import Policy
from analytic_model.predict import parameters, predict
from analytic_model.workload import Workload
from dsocr_core.base.errors import DsocrError
from dsocr_core.models.family import MODELS, family_of, parse_config, preset_named

DECODER = {
    "vocab_size": 129280, "hidden_size": 1280, "num_hidden_layers": 12, "num_attention_heads": 10,
    "intermediate_size": 6848, "moe_intermediate_size": 896, "n_routed_experts": 64,
    "num_experts_per_tok": 6, "n_shared_experts": 2, "first_k_dense_replace": 1,
    "max_position_embeddings": 8192, "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
SAM = {"width": 768, "layers": 12, "heads": 12, "global_attn_indexes": [2, 5, 8, 11],
       "downsample_channels": [512, 1024]}  # fmt: skip


def config(architecture: str, second: dict[str, Any], projector: int, **more: Any) -> dict[str, Any]:
    return {
        **DECODER,
        "architectures": [architecture],
        "projector_config": {"input_dim": projector, "n_embed": 1280},
        "vision_config": {"image_size": 1024, "width": {"sam_vit_b": SAM, **second}},
        **more,
    }


OCR2 = config("DeepseekOCR2ForCausalLM", {"qwen2-0-5b": {"dim": 896}}, 896)
CLIP = {"clip-l-14-224": {"width": 1024, "layers": 24, "heads": 16, "image_size": 224, "patch_size": 14}}
UNLIMITED = config("UnlimitedOCRForCausalLM", CLIP, 2048, sliding_window_size=128, sliding_window=64)


def test_the_model_is_found_by_its_architecture() -> None:
    assert family_of(OCR2).name == "deepseek_ocr2" and family_of(UNLIMITED).name == "unlimited_ocr"
    assert family_of({}).name == "deepseek_ocr"
    with pytest.raises(DsocrError, match="DeepseekOCRForCausalLM, DeepseekOCR2ForCausalLM") as caught:
        family_of({"architectures": ["Qwen2ForCausalLM"]})
    assert "\n" not in str(caught.value)


def test_deepseek_ocr2_has_the_published_parameters() -> None:
    counts = parameters(parse_config(OCR2))
    assert counts["total"] == 3_389_119_360
    assert (counts["sam"], counts["projector"]) == (94_979_328, 1_148_160)
    assert counts["encoder"] == 357_898_112 + 129_024 + 229_376
    assert "image_newline" not in counts


@pytest.mark.parametrize(
    ("size", "tiles", "sam", "encoder", "projector"),
    [
        ((1600, 800), 2, 2_005_505_605_632, 815_448_246_272 - 32_768 - 18_432, 1_247_805_440),
        ((1000, 1500), 6, 4_063_302_451_200, 1_668_418_684_928 - 32_768 - 18_432, 2_569_011_200),
    ],
)
def test_deepseek_ocr2_costs_what_torch_counts_in_the_published_modules(
    size: tuple[int, int], tiles: int, sam: int, encoder: int, projector: int
) -> None:
    """They make the rotary angles by a product, once a call: 32,768 FLOPs, or 18,432 of tiles."""
    workload = Workload.from_image(*size, "default", family=MODELS["deepseek_ocr2"])
    assert (workload.tile_count, workload.image_tokens) == (tiles, 144 * tiles + 257)
    costs = predict(parse_config(OCR2), workload, Policy()).stages
    assert [costs[name].cost.flops for name in ("sam", "encoder", "projector")] == [sam, encoder, projector]


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(DsocrError, match="'gundam ': choose one of tiny, small, base, large, gundam"):
        preset_named("gundam ")


def test_a_step_of_unlimited_ocr_stops_growing_at_the_window() -> None:
    """By hand: 61,440 FLOPs a key in all layers and 1,148,190,720 beside them; P + min(k, 128) keys."""
    sizes = parse_config(UNLIMITED)
    assert sizes.decoder.window == 128
    for new in (2, 130, 1001):
        workload = Workload((1024,), prompt_tokens=4, decode_tokens=new)
        decode = predict(sizes, workload, Policy()).stages["decode"].cost.flops  # type: ignore[index]
        seen = sum(277 + min(step, 128) for step in range(1, new))
        assert decode == (new - 1) * 1_148_190_720 + 61_440 * seen
