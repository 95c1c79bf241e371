"""What the address of the FLOPs page holds: all of its state, so that a view can be linked."""

from __future__ import annotations

from collections.abc import Mapping

from analytic_model.hardware import HARDWARE
from analytic_model.predict import STAGES
from dsocr_core.resolution import PRESETS
from pages.widgets.shared.url_state import LinkedState, Parameter

VIEWS = ("Stages", "Measured", "Roofline", "Crossing", "Operators", "Old estimate")
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CUSTOM = "custom"
"""Hardware by figures that the user gives."""
MOST_TOKENS = 8192

PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter(VIEWS[0], VIEWS),
    # which work
    "work": Parameter("Sizes", ("Sizes", "Recorded page", "Run")),
    "page": Parameter(""),
    "backend": Parameter(""),
    "read": Parameter("small", tuple(PRESETS)),
    "run": Parameter(""),
    "run_model": Parameter("Run", ("Run", "Published", "Embedded", "File")),
    "model": Parameter("Published", ("Published", "Embedded", "File")),
    "config": Parameter(""),
    "width": Parameter(1654),
    "height": Parameter(2339),
    "preset": Parameter("gundam", tuple(PRESETS)),
    "prompt": Parameter(10),
    "tokens": Parameter(500, (), 1, MOST_TOKENS),
    "batch": Parameter(1, BATCHES),
    # what it runs on
    "hardware": Parameter("h200", (*HARDWARE, CUSTOM)),
    "peak": Parameter(100.0, (), 1e-3, 1e6),
    "bandwidth": Parameter(1000.0, (), 1e-3, 1e6),
    "dtype": Parameter("bfloat16", ("bfloat16", "float32")),
    "attention": Parameter("sdpa", ("sdpa", "eager", "flash_attention_2")),
    # how it is counted
    "unsupported": Parameter(False),
    "causal": Parameter("full", ("full", "halved")),
    "head": Parameter("last", ("last", "all")),
    "padding": Parameter(True),
    "nesting": Parameter(False),
    # what a view shows
    "over": Parameter("batch", ("batch", "prompt")),
    "stage": Parameter("sam", tuple(stage.value for stage in STAGES)),
}
_STATE = LinkedState("flops", PARAMETERS)
key, value, read, write = _STATE.key, _STATE.value, _STATE.read, _STATE.write


def text(name: str) -> str:
    return str(value(name))
