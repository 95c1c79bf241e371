"""The state of the FLOPs page that its address holds, so that a view can be linked."""

from __future__ import annotations

from collections.abc import Mapping

from analytic_model.hardware import HARDWARE
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.models.family import computed_stages
from pages.widgets.shared.url_state import LinkedState, Parameter

VIEWS = ("Cost", "Against measured")
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
OF_RUN = "of the run"
"""Hardware on which the chosen run was made; the first of the list where its peaks are not known."""
MOST_TOKENS = 8192
MOST_VALUE = 1_000_000
"""Largest side of a page, and prompt."""

PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter(VIEWS[0], VIEWS),
    # which work
    "work": Parameter("Run", ("Run", "Sizes")),
    "page": Parameter(""),
    "backend": Parameter(""),
    "run": Parameter(""),
    "run_model": Parameter("Run", ("Run", "Published", "Embedded", "File")),
    "model": Parameter("Published", ("Published", "Embedded", "File")),
    "config": Parameter(""),
    "width": Parameter(1654, (), 0, MOST_VALUE),
    "height": Parameter(2339, (), 0, MOST_VALUE),
    "preset": Parameter("gundam", tuple(PRESETS)),
    "prompt": Parameter(10, (), 0, MOST_VALUE),
    "tokens": Parameter(500, (), 1, MOST_TOKENS),
    "batch": Parameter(1, BATCHES),
    # what it runs on
    "hardware": Parameter(OF_RUN, (OF_RUN, *HARDWARE)),
    "dtype": Parameter("bfloat16", ("bfloat16", "float32")),
    "attention": Parameter("sdpa", ("sdpa", "eager", "flash_attention_2")),
    # what a view shows
    "stage": Parameter("sam", tuple(stage.value for stage in computed_stages()), view="Cost"),
}
STATE = LinkedState("flops", PARAMETERS)
key, value, put, write = STATE.key, STATE.value, STATE.put, STATE.write
number_input = STATE.number_input


def read() -> None:
    """Make every parameter have its value; another page may have asked for a run."""
    if (asked := STATE.read()) is not None:
        for name, new in {"work": "Run", "run": asked["run"], "page": "", "view": "Against measured"}.items():
            put(name, new)
        STATE.follow("run")


def text(name: str) -> str:
    return str(value(name))
