"""The state of the FLOPs page that its address holds, so that a view can be linked."""

from __future__ import annotations

from collections.abc import Mapping

from analytic_model.hardware import HARDWARE
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.models.stages import COMPUTED
from pages.widgets.shared.url_state import LinkedState, Parameter

WHAT_IF = "What if"
TIME, FLOPS = "Time lost", "FLOP gap"
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
MOST_TOKENS = 8192
MOST_VALUE = 1_000_000
"""Largest side of a page, and prompt."""

PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter("", ("", WHAT_IF), widget=False),
    "reading": Parameter(TIME, (TIME, FLOPS)),
    "run": Parameter("", widget=False),
    "backend": Parameter("", widget=False),
    "stage": Parameter("", ("", *(stage.value for stage in COMPUTED)), widget=False),
    # what if
    "model": Parameter("Published", ("Published", "Embedded")),
    "width": Parameter(1654, (), 0, MOST_VALUE),
    "height": Parameter(2339, (), 0, MOST_VALUE),
    "preset": Parameter("gundam", tuple(PRESETS)),
    "prompt": Parameter(10, (), 0, MOST_VALUE),
    "tokens": Parameter(500, (), 1, MOST_TOKENS),
    "batch": Parameter(1, BATCHES),
    "dtype": Parameter("bfloat16", ("bfloat16", "float32")),
    "hardware": Parameter("h200", tuple(HARDWARE)),
}
SIZES = ("model", "width", "height", "preset", "prompt", "tokens", "batch", "dtype", "hardware")
"""Parameters of *What if*."""
STATE = LinkedState("flops", PARAMETERS)
bound, value, put = STATE.bound, STATE.value, STATE.put
