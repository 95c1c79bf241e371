"""The preset of `auto` on a CPU: a small one for models whose default page would take minutes."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from analytic_model.predict import parameters
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import amount
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import load_config, spec_of
from dsocr_core.settings import Settings

MOST_PARAMETERS = 10**9
"""Most parameters of a model that is read with its default preset on a CPU."""
_DRIVER = Path("/proc/driver/nvidia/version")
_OURS = ("eager", "fast", "vendor")
"""Kinds of backends that read on this machine."""


def small_preset(config: ModelConfig) -> str:
    """Preset named small of the model, or that of its smallest single view."""
    presets = spec_of(config).presets
    views = [name for name, preset in presets.items() if not preset.crop_mode]
    return "small" if "small" in presets else min(views, key=lambda name: presets[name].view_size)


def with_cpu_preset(settings: Settings) -> tuple[Settings, str]:
    """Put the preset of `auto` on this machine into the settings. Returns the reason, too.

    The reason is empty where nothing changes, also for a config.json that cannot be read.
    """
    # `auto` without asking torch, which takes seconds to import.
    no_gpu = settings.device == "auto" and not (_DRIVER.exists() or shutil.which("nvidia-smi"))
    on_cpu = (settings.device == "cpu" or no_gpu) and any(spec.kind in _OURS for spec in settings.specs)
    if settings.preset != "auto" or settings.is_embedded or not on_cpu:
        return settings, ""
    try:
        config = load_config(Path(settings.checkpoint.removeprefix("random:")))
    except DsocrError:
        return settings, ""
    usual, small, size = settings.preset_name, small_preset(config), parameters(config)["total"]
    if size <= MOST_PARAMETERS or small == usual:
        return settings, ""
    return replace(settings, preset=small), (
        f"preset {small}, as this reads a model of {amount(size)} parameters on a CPU: a page takes minutes "
        f"under {usual}, which --preset {usual} asks for"
    )
