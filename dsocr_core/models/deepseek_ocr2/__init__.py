"""DeepSeek-OCR-2 (January 2026): a Qwen2 with learned queries in CLIP's place, tiles of 768, no row ends."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dsocr_core.models.config import (
    ModelConfig,
    Qwen2Config,
    Section,
    check,
    decoder_config,
    projector_config,
    sam_config,
)
from dsocr_core.models.deepseek_ocr2 import others
from dsocr_core.models.resolution import Preset
from dsocr_core.models.row import Decoding, Family, Published, Served, VisionStage, Weights, later
from dsocr_core.models.stages import Stage
from dsocr_core.models.tap_weights import ENCODER, PROJECTOR, SAM

ENCODER_STAGE = Stage("encoder")


@dataclass(frozen=True)
class DeepseekOcr2Config(ModelConfig):
    """Sizes with the encoder's."""

    encoder: Qwen2Config
    family: ClassVar[str] = "deepseek_ocr2"


def parse(root: Section) -> DeepseekOcr2Config:
    """Read the sizes of a config.json. Raises ConfigError.

    Of the encoder the published file has the width alone, and SAM's last width in it is not the weights'.
    """
    section = root.section("vision_config").section("width").section("qwen2-0-5b")
    names = [name for name in ("layers", "heads", "kv_heads", "mlp_width") if name in section.data]
    sizes: dict[str, Any] = {name: section.integer(name) for name in names}
    encoder = Qwen2Config(section.integer("dim"), **sizes)
    sam, projector, decoder = sam_config(root), projector_config(root), decoder_config(root)
    sam = replace(sam, downsample_channels=(sam.downsample_channels[0], encoder.width))
    check(
        root.source,
        (encoder.width % (2 * encoder.heads) == 0, "qwen2-0-5b: dim / heads is not even"),
        (encoder.heads % encoder.kv_heads == 0, "qwen2-0-5b: heads is not a multiple of kv_heads"),
        (projector.input_dim == encoder.width, "projector_config.input_dim is not the encoder's dim"),
        (projector.output_dim == decoder.hidden_size, "projector_config.n_embed is not hidden_size"),
    )
    return DeepseekOcr2Config(sam, projector, decoder, encoder)


PROMPTS = {
    "markdown": "<image>\n<|grounding|>Convert the document to markdown.",
    "free_ocr": "<image>\nFree OCR.",
}

PRESETS = {
    preset.name: preset
    for preset in (
        Preset("default", 1024, 768, crop_mode=True, max_tiles=6, tile_size=768),
        Preset("768", 768, 768, crop_mode=False, max_tiles=6, tile_size=768),
        Preset("1024", 1024, 1024, crop_mode=False, max_tiles=6, tile_size=768),
    )
}

DEEPSEEK_OCR2 = Family(
    name="deepseek_ocr2",
    title="DeepSeek-OCR-2",
    architectures=("DeepseekOCR2ForCausalLM",),
    parse=parse,
    build=later(f"{__name__}.vision", "DeepseekOcr2"),
    weights=Weights(
        prefixes=(
            ("sam.", "model.sam_model."),
            ("encoder.query_", "model.qwen2_model.query_"),
            ("encoder.", "model.qwen2_model.model.model."),
            ("decoder.lm_head.", "lm_head."),
            ("decoder.", "model."),
            ("", "model."),
        ),
        own=("model.qwen2_model.",),
    ),
    vision=(
        VisionStage(Stage.SAM, "sam_model", "#0072B2"),
        VisionStage(ENCODER_STAGE, "qwen2_model", "#332288"),
        VisionStage(Stage.PROJECTOR, "projector", "#009E73"),
    ),
    presets=PRESETS,
    preset="default",
    newline=False,
    views=(768, 1024),  # there are queries for 144 and 256 features alone
    decoding=Decoding(PROMPTS, ngram_size=20, ngram_size_eval=35),
    taps=later(f"{__name__}.taps", "taps"),
    tap_weights={"sam": SAM, "encoder": ENCODER, "projector": PROJECTOR},
    hypotheses=others.HYPOTHESES,
    others=others.PRESETS,
    served=Served({"ngram_size": 20, "window_size": 90, "whitelist_token_ids": [128821, 128822]}),
    published=Published(check=later(f"{__name__}.published", "mask_problem")),
    fast=True,
)
"""The row."""
