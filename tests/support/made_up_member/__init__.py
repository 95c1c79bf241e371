"""A model that nobody made, as one folder and one row.

Another second encoder, no row ends, tiles of 96, a window of 8 in the decoder, two images a prompt.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from dsocr_core.models.config import ModelConfig, Section, decoder_config, projector_config, sam_config
from dsocr_core.models.resolution import Preset
from dsocr_core.models.row import Decoding, Family, VisionStage, Weights, later
from dsocr_core.models.stages import Stage
from dsocr_core.models.tap_weights import PROJECTOR, SAM
from tests.support.seeded_weights import tiny_config

MIXER = Stage("mixer")
WINDOW = 8


@dataclass(frozen=True)
class MadeUpConfig(ModelConfig):
    """Sizes with the mixer's."""

    mixer: int
    family: ClassVar[str] = "made_up"


def parse(root: Section) -> MadeUpConfig:
    """Read the sizes of a config.json."""
    decoder = replace(decoder_config(root), window=root.integer("window"))
    mixer = root.section("vision_config").section("width").section("mixer").integer("width")
    return MadeUpConfig(sam_config(root), projector_config(root), decoder, mixer)


MADE_UP = Family(
    name="made_up",
    title="Made-up",
    architectures=("MadeUpForCausalLM",),
    parse=parse,
    build=later(f"{__name__}.parts", "MadeUp"),
    weights=Weights(
        prefixes=(
            ("sam.", "model.sam_model."),
            ("decoder.lm_head.", "lm_head."),
            ("decoder.", "model."),
            ("", "model."),
        ),
        own=("model.mixer.",),
    ),
    vision=(
        VisionStage(Stage.SAM, "sam_model", "#0072B2"),
        VisionStage(MIXER, "mixer", "#117733"),
        VisionStage(Stage.PROJECTOR, "projector", "#009E73"),
    ),
    presets={
        "cut": Preset("cut", 128, 96, crop_mode=True, max_tiles=4, tile_size=96),
        "whole": Preset("whole", 128, 128, crop_mode=False, max_tiles=4, tile_size=96),
    },
    preset="cut",
    newline=False,
    decoding=Decoding({"markdown": "<image>Read."}, 0, 0, images=2, new_tokens=24),
    costs=later(f"{__name__}.parts", "costs"),
    parameters=later(f"{__name__}.parts", "parameters"),
    taps=later(f"{__name__}.parts", "taps"),
    tap_weights={"sam": SAM, "mixer": {"out": ("model.mixer.",)}, "projector": PROJECTOR},
)
"""The row."""


def config() -> dict[str, Any]:
    """Make a config.json of it."""
    made = tiny_config() | {"architectures": ["MadeUpForCausalLM"], "window": WINDOW, "vocab_size": 300}
    made["vision_config"]["width"].pop("clip-l-14-224")
    made["vision_config"]["width"]["mixer"] = {"width": 48}
    made["projector_config"]["input_dim"] = 48
    return made


def write_config(directory: Path) -> str:
    """Write it; returns the checkpoint with random weights."""
    (directory / "config.json").write_text(json.dumps(config()), encoding="utf-8")
    return f"random:{directory / 'config.json'}"
