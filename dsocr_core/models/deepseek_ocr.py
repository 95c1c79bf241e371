"""DeepSeek-OCR (October 2025): SAM, CLIP over its features, one linear projector, a mixture of experts."""

from dsocr_core.models.config import ClipConfig, ModelConfig, Section, shared_sizes
from dsocr_core.models.resolution import Preset, by_name
from dsocr_core.models.spec import CELL_IDS, Decoding, ModelSpec
from dsocr_core.models.stages import Stage
from dsocr_core.models.taps.table import CLIP, PROJECTOR, SAM


def parse(root: Section, window: bool = False) -> ModelConfig:
    """Sizes in a config.json. A `window` is passed in, not read here. Raises ConfigError."""
    section = root.section("vision_config").section("width").section("clip-l-14-224")
    clip = ClipConfig(*section.sizes("width", "layers", "heads", "image_size", "patch_size"))
    sam, projector, decoder = shared_sizes(root, window)
    root.hold(
        (clip.width % clip.heads == 0, "clip-l-14-224.width is not a multiple of heads"),
        (sam.downsample_channels[1] == clip.width, "sam_vit_b.downsample_channels[1] is not clip's width"),
        (projector.input_dim == 2 * clip.width, "projector_config.input_dim is not twice clip's width"),
    )
    return ModelConfig(sam, projector, decoder, clip)


PROMPTS = {
    "markdown": "<image>\n<|grounding|>Convert the document to markdown.",
    "free_ocr": "<image>\nFree OCR.",
    "figure": "<image>\nParse the figure.",
    "locate": "<image>\nLocate <|ref|>TEXT<|/ref|> in the image.",
}
PRESETS = by_name(
    Preset("tiny", 512, 512, crop_mode=False),
    Preset("small", 640, 640, crop_mode=False),
    Preset("base", 1024, 1024, crop_mode=False),
    Preset("large", 1280, 1280, crop_mode=False),
    Preset("gundam", 1024, 640, crop_mode=True),
)

DEEPSEEK_OCR = ModelSpec(
    name="deepseek_ocr",
    title="DeepSeek-OCR",
    architecture="DeepseekOCRForCausalLM",
    parse=parse,
    prefixes=(
        ("sam.", "model.sam_model."),
        ("clip.", "model.vision_model."),
        ("decoder.lm_head.", "lm_head."),
        ("decoder.", "model."),
        ("", "model."),
    ),
    vision={Stage.SAM: "sam_model", Stage.CLIP: "vision_model", Stage.PROJECTOR: "projector"},
    taps=(SAM, CLIP, PROJECTOR),
    presets=PRESETS,
    preset="gundam",
    newline=True,
    decoding=Decoding(PROMPTS, ngram_size=20, ngram_size_eval=35),
    served_rule={"ngram_size": 30, "window_size": 90, "whitelist_token_ids": CELL_IDS},
)
