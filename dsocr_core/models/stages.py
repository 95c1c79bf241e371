"""Stages of one page's recognition, of all models, in the order they run."""

from collections.abc import Mapping
from enum import StrEnum


class Stage(StrEnum):
    """One timed and marked part of reading a page. Its text is the name of the NVTX range."""

    PREPROCESS = "preprocess"
    TOKENIZER = "tokenizer"
    SAM = "sam"
    ENCODER = "encoder"
    CLIP = "clip"
    PROJECTOR = "projector"
    VISION_FUSION = "vision_fusion"
    PREFILL = "prefill"
    DECODE = "decode"
    POSTPROCESS = "postprocess"


INSIDE_PREFILL = (Stage.SAM, Stage.ENCODER, Stage.CLIP, Stage.PROJECTOR, Stage.VISION_FUSION)
"""Vision stages, which are part of prefill: never add their times to it."""
COMPUTED = (*INSIDE_PREFILL, Stage.PREFILL, Stage.DECODE)
"""Stages in which the model computes."""
TOP_LEVEL = tuple(stage for stage in Stage if stage not in INSIDE_PREFILL)
"""Stages that follow one another. Their times add up to the time of a page."""
COLOURS: Mapping[str, str] = {
    Stage.PREPROCESS: "#9AA5B1", Stage.TOKENIZER: "#C3CAD2", Stage.SAM: "#0072B2", Stage.ENCODER: "#332288",
    Stage.CLIP: "#56B4E9", Stage.PROJECTOR: "#009E73", Stage.VISION_FUSION: "#7FC8A9",
    Stage.PREFILL: "#E69F00", Stage.DECODE: "#D55E00", Stage.POSTPROCESS: "#CC79A7",
}  # fmt: skip
"""Colours of the stages in every chart."""
