"""What the address of the FLOPs page holds: all of its state, so that a view can be linked."""

from __future__ import annotations

from collections.abc import Mapping

from analytic_model.earlier_estimates import PARTS
from analytic_model.hardware import HARDWARE
from analytic_model.predict import STAGES
from analytic_model.requirements import TARGETS
from analytic_model.sweep import AXES, ENGINES, MOST_VALUE, QUANTITIES
from dsocr_core.resolution import PRESETS
from pages.widgets.shared import navigation
from pages.widgets.shared.url_state import LinkedState, Parameter

VIEWS = (
    "Stages", "Measured", "Roofline", "Compute or memory", "Operators", "Sweeps", "Requirements",
    "First estimate", "Earlier sweeps",
)  # fmt: skip
_EARLIER_VIEWS = {"Crossing": "Compute or memory", "Old estimate": "First estimate"}
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CUSTOM = "custom"
"""Hardware by figures that the user gives."""
MOST_TOKENS = 8192

PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter(VIEWS[0], VIEWS, earlier=_EARLIER_VIEWS),
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
    # Sweeps
    "axis": Parameter("tiles", AXES, view="Sweeps"),
    "quantity": Parameter("flops", QUANTITIES, view="Sweeps"),
    "engines": Parameter("both", ("both", *ENGINES), view="Sweeps"),
    "sweep_as": Parameter("totals", ("totals", "stages"), view="Sweeps"),
    "sweep_scale": Parameter("linear", ("linear", "log"), view="Sweeps"),
    "upto": Parameter(0, (), 0, MOST_VALUE, view="Sweeps"),
    # Requirements
    "target": Parameter("ttft", TARGETS, view="Requirements"),
    "ttft": Parameter(50.0, (), 0, 1e9, view="Requirements"),
    "tpot": Parameter(1.0, (), 0, 1e9, view="Requirements"),
    "pages": Parameter(10.0, (), 0, 1e9, view="Requirements"),
    # Earlier sweeps
    "sweep": Parameter("", view="Earlier sweeps"),
    "part": Parameter("prefill", PARTS, view="Earlier sweeps"),
    "estimate_of": Parameter("eager", ENGINES, view="Earlier sweeps"),
}
_STATE = LinkedState("flops", PARAMETERS)
key, value, put, write = _STATE.key, _STATE.value, _STATE.put, _STATE.write


def read() -> None:
    """Make every parameter have its value; another page may have asked for a run."""
    _STATE.read()
    if (asked := navigation.taken_request("flops")) is not None:
        for name, wanted in (("work", "Run"), ("run", asked["run"]), ("page", ""), ("view", "Roofline")):
            _STATE.put(name, wanted)


def text(name: str) -> str:
    return str(value(name))
