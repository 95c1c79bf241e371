"""DeepSeek-OCR-2 (January 2026): a Qwen2 with learned queries in place of CLIP, tiles of 768, no row ends."""

from dataclasses import replace
from typing import Any

from dsocr_core.models.config import ModelConfig, Qwen2Config, Section, shared_sizes
from dsocr_core.models.deepseek_ocr import DEEPSEEK_OCR, PROMPTS
from dsocr_core.models.resolution import Preset, by_name
from dsocr_core.models.spec import CELL_IDS
from dsocr_core.models.stages import Stage
from dsocr_core.models.taps.table import ENCODER, PROJECTOR, SAM


def parse(root: Section) -> ModelConfig:
    """Sizes in a config.json. Raises ConfigError.

    Of the encoder the published file has only the width. SAM's last width in it differs from the weights'.
    """
    section = root.section("vision_config").section("width").section("qwen2-0-5b")
    names = [name for name in ("layers", "heads", "kv_heads", "mlp_width") if name in section.data]
    sizes: dict[str, Any] = {name: section.size(name) for name in names}
    encoder = Qwen2Config(section.size("dim"), **sizes)
    sam, projector, decoder = shared_sizes(root)
    sam = replace(sam, downsample_channels=(sam.downsample_channels[0], encoder.width))
    root.hold(
        (encoder.width % (2 * encoder.heads) == 0, "qwen2-0-5b: dim / heads is not even"),
        (encoder.heads % encoder.kv_heads == 0, "qwen2-0-5b: heads is not a multiple of kv_heads"),
        (projector.input_dim == encoder.width, "projector_config.input_dim is not the encoder's dim"),
    )
    return ModelConfig(sam, projector, decoder, encoder=encoder, family="deepseek_ocr2")


DEEPSEEK_OCR2 = replace(
    DEEPSEEK_OCR,
    name="deepseek_ocr2",
    title="DeepSeek-OCR-2",
    architecture="DeepseekOCR2ForCausalLM",
    parse=parse,
    prefixes=(
        ("sam.", "model.sam_model."),
        ("encoder.query_", "model.qwen2_model.query_"),
        ("encoder.", "model.qwen2_model.model.model."),
        *DEEPSEEK_OCR.prefixes[-3:],
    ),
    vision={Stage.SAM: "sam_model", Stage.ENCODER: "qwen2_model", Stage.PROJECTOR: "projector"},
    taps=(SAM, ENCODER, PROJECTOR),
    presets=by_name(
        Preset("default", 1024, 768, crop_mode=True, max_tiles=6, tile_size=768),
        Preset("768", 768, 768, crop_mode=False, max_tiles=6, tile_size=768),
        Preset("1024", 1024, 1024, crop_mode=False, max_tiles=6, tile_size=768),
    ),
    preset="default",
    newline=False,
    views=(768, 1024),  # there are queries only for 144 and 256 features
    decoding=replace(
        DEEPSEEK_OCR.decoding, prompts={name: PROMPTS[name] for name in ("markdown", "free_ocr")}
    ),
    served_rule={"ngram_size": 20, "window_size": 90, "whitelist_token_ids": CELL_IDS},
    masks_encoder=True,
)
