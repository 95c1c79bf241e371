"""Stages of one page's recognition. Those that follow one another are here; vision's are a model's own."""

from __future__ import annotations

from typing import ClassVar


class Stage(str):
    """One timed, NVTX-marked part of a recognition; its text is the name of the NVTX range.

    An open name: which stages there are, and in which order, the rows of `models.family` say.
    """

    PREPROCESS: ClassVar[Stage]
    TOKENIZER: ClassVar[Stage]
    SAM: ClassVar[Stage]
    CLIP: ClassVar[Stage]
    PROJECTOR: ClassVar[Stage]
    VISION_FUSION: ClassVar[Stage]
    PREFILL: ClassVar[Stage]
    DECODE: ClassVar[Stage]
    POSTPROCESS: ClassVar[Stage]

    @property
    def value(self) -> str:
        return str(self)


_NAMES = "preprocess tokenizer sam clip projector vision_fusion prefill decode postprocess"
for _name in _NAMES.split(" "):
    setattr(Stage, _name.upper(), Stage(_name))

TOP_LEVEL: tuple[Stage, ...] = (
    Stage.PREPROCESS, Stage.TOKENIZER, Stage.PREFILL, Stage.DECODE, Stage.POSTPROCESS,
)  # fmt: skip
"""Stages that follow one another; their times sum to the time of a recognition.

All others run on the first forward pass only, so their time is part of prefill: never add it to it.
"""
