"""Stages of one page's recognition, of all models, in the order they run."""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """One timed, NVTX-marked part of a recognition; its text is the name of the NVTX range."""

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


TOP_LEVEL: tuple[Stage, ...] = (
    Stage.PREPROCESS, Stage.TOKENIZER, Stage.PREFILL, Stage.DECODE, Stage.POSTPROCESS,
)  # fmt: skip
"""Stages that follow one another; their times sum to the time of a recognition.

All others run on the first forward pass only, so their time is part of prefill: never add it to it.
"""
