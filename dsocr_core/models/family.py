"""The table of models. All that differs between them is in a model's spec."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, Missing, parse_json, read_bytes
from dsocr_core.base.errors import DsocrError
from dsocr_core.models.config import ConfigError, ModelConfig, Section
from dsocr_core.models.deepseek_ocr import DEEPSEEK_OCR
from dsocr_core.models.deepseek_ocr2 import DEEPSEEK_OCR2
from dsocr_core.models.resolution import Preset
from dsocr_core.models.spec import ModelSpec as ModelSpec
from dsocr_core.models.unlimited_ocr import UNLIMITED_OCR

MODELS: dict[str, ModelSpec] = {spec.name: spec for spec in (DEEPSEEK_OCR, DEEPSEEK_OCR2, UNLIMITED_OCR)}
"""Specs by name."""

FIRST = DEEPSEEK_OCR
"""Spec for whatever names no model: old records, and configs without architectures."""

_FILE_LIMIT = 4 * 1024 * 1024  # bytes


def family_named(name: str) -> ModelSpec:
    """Spec of that name. Raises DsocrError."""
    if (spec := MODELS.get(name)) is None:
        raise DsocrError(f"unknown model '{name:.60}': choose one of {', '.join(MODELS)}")
    return spec


def family_of(config: Any, source: str = "config.json") -> ModelSpec:
    """Spec for a parsed config.json; the first model where it names none.

    `source` names the file in errors. Raises DsocrError, ConfigError for JSON that is no object.
    """
    given = Section(config, source).data.get("architectures")
    names = [name for name in given if isinstance(name, str)] if isinstance(given, list) else []
    known = {spec.architecture: spec for spec in MODELS.values()}
    found = next((spec for architecture, spec in known.items() if architecture in names), None)
    if names and found is None:
        raise DsocrError(f"{source}: architectures {names!r:.80} is no model known here: {', '.join(known)}")
    return found or FIRST


def spec_of(config: ModelConfig) -> ModelSpec:
    """Spec of the model with these sizes."""
    return MODELS[config.family]


def read_config(path: Path) -> tuple[Any, str]:
    """JSON of a `config.json`, or of the one in a directory, and its path. Raises ConfigError."""
    file = path / "config.json" if path.is_dir() else path
    try:
        return parse_json(read_bytes(file, _FILE_LIMIT, follow_links=True), any_number=True), str(file)
    except Missing:
        raise ConfigError(f"{file}: no config.json here; give a DeepSeek-OCR directory") from None
    except InvalidFile as error:
        raise ConfigError(f"{file}: {error}") from error


def load_config(path: Path) -> ModelConfig:
    """Sizes in a `config.json`, or in the one in a directory. Raises ConfigError."""
    return parse_config(*read_config(path))


def parse_config(data: Any, source: str = "config.json") -> ModelConfig:
    """Sizes in the parsed JSON of a config. `source` names it in errors. Raises DsocrError."""
    return family_of(data, source).parse(Section(data, source))


def preset_named(name: str, family: ModelSpec = FIRST) -> Preset:
    """Preset of a model, by its name in any case. Raises DsocrError."""
    if (found := family.presets.get(name.lower())) is None:
        raise DsocrError(f"unknown preset '{name}': choose one of {', '.join(family.presets)}")
    return found
