"""The state of the FLOPs page that its address holds, so that a view can be linked."""

from __future__ import annotations

from collections.abc import Mapping

from analytic_model.hardware import HARDWARE
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.models.family import computed_stages
from pages.widgets.shared.url_state import LinkedState, Parameter

VIEWS = ("All runs", "What if")
TIME, FLOPS = "Time lost", "FLOP gap"
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
MOST_TOKENS = 8192
MOST_VALUE = 1_000_000
"""Largest side of a page, and prompt."""

PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter(VIEWS[0], VIEWS),
    # all runs
    "reading": Parameter(TIME, (TIME, FLOPS), view=VIEWS[0]),
    "run": Parameter("", view=VIEWS[0]),
    "backend": Parameter("", view=VIEWS[0], widget=False),
    "stage": Parameter("", ("", *(stage.value for stage in computed_stages())), view=VIEWS[0], widget=False),
    "older": Parameter(0, (), 0, MOST_VALUE, view=VIEWS[0], widget=False),
    # what if
    "model": Parameter("Published", ("Published", "Embedded"), view=VIEWS[1]),
    "width": Parameter(1654, (), 0, MOST_VALUE, view=VIEWS[1]),
    "height": Parameter(2339, (), 0, MOST_VALUE, view=VIEWS[1]),
    "preset": Parameter("gundam", tuple(PRESETS), view=VIEWS[1]),
    "prompt": Parameter(10, (), 0, MOST_VALUE, view=VIEWS[1]),
    "tokens": Parameter(500, (), 1, MOST_TOKENS, view=VIEWS[1]),
    "batch": Parameter(1, BATCHES, view=VIEWS[1]),
    "dtype": Parameter("bfloat16", ("bfloat16", "float32"), view=VIEWS[1]),
    "hardware": Parameter("h200", tuple(HARDWARE), view=VIEWS[1]),
}
STATE = LinkedState("flops", PARAMETERS)
key, value, put, write = STATE.key, STATE.value, STATE.put, STATE.write
number_input = STATE.number_input


def read() -> None:
    """Make every parameter have its value; another page may have asked for a run."""
    if (asked := STATE.read()) is not None:
        for name, new in {"view": VIEWS[0], "run": asked["run"], "backend": "", "stage": ""}.items():
            put(name, new)
        STATE.follow("run")


def text(name: str) -> str:
    return str(value(name))
