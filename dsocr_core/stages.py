"""The stages of one page's recognition: the only spelling of stage names."""

from enum import StrEnum


class Stage(StrEnum):
    """One timed, NVTX-marked part of a recognition; the value is the NVTX range name."""

    PREPROCESS = "preprocess"
    TOKENIZER = "tokenizer"
    SAM = "sam"
    CLIP = "clip"
    PROJECTOR = "projector"
    VISION_FUSION = "vision_fusion"
    PREFILL = "prefill"
    DECODE = "decode"
    POSTPROCESS = "postprocess"


INSIDE_PREFILL: tuple[Stage, ...] = (Stage.SAM, Stage.CLIP, Stage.PROJECTOR, Stage.VISION_FUSION)
"""Vision runs on the first forward only, so its time is part of prefill: never add it to it."""

TOP_LEVEL: tuple[Stage, ...] = tuple(stage for stage in Stage if stage not in INSIDE_PREFILL)
"""Stages that follow one another; their times sum to the time of a recognition."""
