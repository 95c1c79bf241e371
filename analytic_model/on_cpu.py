"""The preset that `auto` means on a CPU: the small one where a page of the usual one takes over a minute.

Its times are estimates, by the bounds of an A4 page of 1,000 tokens in float32 on a processor that is named
here: a faster one is faster, and no code reaches its bounds.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from analytic_model.hardware import measured_hardware
from analytic_model.policy import Policy
from analytic_model.predict import predict
from analytic_model.roofline import least_s
from analytic_model.workload import Workload
from dsocr_core.base.errors import DsocrError
from dsocr_core.models.config import ModelConfig
from dsocr_core.models.family import MODELS, load_config
from dsocr_core.settings import Settings

PROCESSOR = measured_hardware(0.3, 50, "a processor of 300 GFLOP/s and 50 GB/s", "named, not measured")
MOST_S = 60.0
"""Seconds of a page above which nobody waits for it."""
_A4 = (1654, 2339)
_TOKENS = 1000
_DRIVER = Path("/proc/driver/nvidia/version")
_OURS = ("eager", "fast", "vendor")
"""Kinds of backends that read in this machine's memory."""


def page_s(config: ModelConfig, preset: str) -> float:
    """Estimate the seconds of a page under that preset."""
    work = Workload.from_image(*_A4, preset, decode_tokens=_TOKENS, family=MODELS[config.family])
    found = least_s(predict(config, work, Policy(dtype="float32")), PROCESSOR)
    assert found is not None
    return found


def small_preset(config: ModelConfig) -> str:
    """The model's preset named small, else that of its smallest single view."""
    presets = MODELS[config.family].presets
    views = [name for name, preset in presets.items() if not preset.crop_mode]
    return "small" if "small" in presets else min(views, key=lambda name: presets[name].view_size)


def of_cpu(settings: Settings) -> tuple[Settings, str]:
    """The settings with the preset that `auto` means on this machine, and why; as they are, and no word,
    where it means the usual one. A config.json that cannot be read is an error of whoever opens it.
    """
    reads_here = any(spec.kind in _OURS for spec in settings.specs)
    if settings.preset != "auto" or settings.is_embedded or not reads_here or not _is_cpu(settings.device):
        return settings, ""
    try:
        config = load_config(Path(settings.checkpoint.removeprefix("random:")))
    except DsocrError:
        return settings, ""
    usual, small = settings.preset_name, small_preset(config)
    took = page_s(config, usual)
    if took <= MOST_S or small == usual:
        return settings, ""
    return replace(settings, preset=small), (
        f"preset {small}, as this reads on a CPU: a page is estimated at {took:.0f} s under {usual} and at "
        f"{page_s(config, small):.0f} s under {small}, at best, for an A4 page of {_TOKENS:,} tokens on "
        f"{PROCESSOR.name}; --preset {usual} reads it so"
    )


def _is_cpu(device: str) -> bool:
    """Tell whether a device is the processor; `auto` without asking torch, which takes seconds to import."""
    there = _DRIVER.exists() or shutil.which("nvidia-smi") is not None
    return device == "cpu" or (device == "auto" and not there)
