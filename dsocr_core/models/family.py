"""The table of models. Everything that differs between them is asked of a model's spec."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, Missing, parse_json, read_bytes
from dsocr_core.base.errors import DsocrError
from dsocr_core.models.config import ConfigError, ModelConfig, Section
from dsocr_core.models.deepseek_ocr import DEEPSEEK_OCR
from dsocr_core.models.deepseek_ocr2 import DEEPSEEK_OCR2
from dsocr_core.models.resolution import Preset, UnknownPresetError
from dsocr_core.models.spec import ModelSpec as ModelSpec
from dsocr_core.models.stages import Stage
from dsocr_core.models.unlimited_ocr import UNLIMITED_OCR

MODELS: dict[str, ModelSpec] = {spec.name: spec for spec in (DEEPSEEK_OCR, DEEPSEEK_OCR2, UNLIMITED_OCR)}
"""By name."""

FIRST = DEEPSEEK_OCR
"""The model of what names none: old records, and configs without architectures."""

_FILE_LIMIT = 4 * 1024 * 1024
"""Bytes."""


class UnknownModelError(DsocrError):
    """A model that has no spec; names those that have one."""


def family_named(name: str) -> ModelSpec:
    """The spec of that name, title or architecture, in any case. Raises UnknownModelError."""
    wanted = name.casefold()
    for spec in MODELS.values():
        if wanted in {each.casefold() for each in (spec.name, spec.title, spec.architecture)}:
            return spec
    raise UnknownModelError(f"unknown model '{name:.60}': choose one of {', '.join(MODELS)}")


def family_of(config: Any, source: str = "config.json") -> ModelSpec:
    """The model of a parsed config.json, the first where it names none.

    `source` names it in errors. Raises UnknownModelError, ConfigError for what is no JSON object.
    """
    given = Section(config, source).data.get("architectures")
    names = [name for name in given if isinstance(name, str)] if isinstance(given, list) else []
    found = next((spec for spec in MODELS.values() if spec.architecture in names), None)
    if names and found is None:
        known = ", ".join(spec.architecture for spec in MODELS.values())
        raise UnknownModelError(f"{source}: architectures {names!r:.80} is no model known here: {known}")
    return found or FIRST


def spec_of(config: ModelConfig) -> ModelSpec:
    """The spec of a model's sizes."""
    return MODELS[config.family]


def read_config(path: Path) -> tuple[Any, str]:
    """The JSON of a `config.json`, or of the one inside a directory, and its name. Raises ConfigError."""
    file = path / "config.json" if path.is_dir() else path
    try:
        return parse_json(read_bytes(file, _FILE_LIMIT, follow_links=True), any_number=True), str(file)
    except Missing:
        raise ConfigError(f"{file}: no config.json here; give a DeepSeek-OCR directory") from None
    except InvalidFile as error:
        raise ConfigError(f"{file}: {error}") from error


def load_config(path: Path) -> ModelConfig:
    """The sizes in a `config.json`, or in the one inside a directory. Raises ConfigError."""
    return parse_config(*read_config(path))


def parse_config(data: Any, source: str = "config.json") -> ModelConfig:
    """The sizes in the parsed JSON of a config. `source` names it in errors. Raises DsocrError."""
    return family_of(data, source).parse(Section(data, source))


def preset_named(name: str, family: ModelSpec = FIRST) -> Preset:
    """A model's preset of that name, in any case, or another engine's. Raises UnknownPresetError."""
    found = family.presets.get(name.lower()) or family.others.get(name.lower())
    if found is None:
        raise UnknownPresetError(f"unknown preset '{name}': choose one of {', '.join(family.presets)}")
    return found


# --- what all have --------------------------------------------------------------------------------


def inside_prefill() -> tuple[Stage, ...]:
    """The stages of vision of every known model, in the order they run: they are part of prefill's time."""
    return Stage.SAM, Stage.ENCODER, Stage.CLIP, Stage.PROJECTOR, Stage.VISION_FUSION


def all_stages() -> tuple[Stage, ...]:
    """Every stage of every known model, in the order they run."""
    return tuple(Stage)


def computed_stages() -> tuple[Stage, ...]:
    """Those with work of a model in them."""
    return (*inside_prefill(), Stage.PREFILL, Stage.DECODE)


def stage_colours() -> Mapping[str, str]:
    """The colour of every stage, the same in every chart."""
    return {
        Stage.PREPROCESS: "#9AA5B1", Stage.TOKENIZER: "#C3CAD2", Stage.SAM: "#0072B2",
        Stage.ENCODER: "#332288", Stage.CLIP: "#56B4E9", Stage.PROJECTOR: "#009E73",
        Stage.VISION_FUSION: "#7FC8A9", Stage.PREFILL: "#E69F00", Stage.DECODE: "#D55E00",
        Stage.POSTPROCESS: "#CC79A7",
    }  # fmt: skip
