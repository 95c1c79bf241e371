"""What the address of the FLOPs page keeps: all of its state, so that a view can be linked.

As in `address`, the session holds the truth and the address follows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import inf

import streamlit as st

from analytic_model.hardware import HARDWARE
from analytic_model.predict import STAGES
from dsocr_core.resolution import PRESETS

Value = str | int | float | bool
VIEWS = ("Stages", "Measured", "Roofline", "Crossing", "Operators", "Old estimate")
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CUSTOM = "custom"
"""Hardware by figures that the user gives."""
MOST_TOKENS = 8192


@dataclass(frozen=True)
class Parameter:
    """One name of the address; its default is left out there and says what type it is."""

    default: Value
    choices: tuple[Value, ...] = ()
    least: float = -inf
    most: float = inf

    def read(self, text: str) -> Value:
        """The value that `text` writes. Raises ValueError when it is none of this parameter's."""
        if isinstance(self.default, bool):
            if text not in ("on", "off"):
                raise ValueError(text)
            return text == "on"
        value = type(self.default)(text)
        if self.choices and value not in self.choices:
            raise ValueError(text)
        if not isinstance(value, str) and not self.least <= value <= self.most:
            raise ValueError(text)
        return value

    def write(self, value: Value) -> str:
        if isinstance(value, bool):
            return "on" if value else "off"
        return f"{value:g}" if isinstance(value, float) else str(value)


PARAMETERS: Mapping[str, Parameter] = {
    "view": Parameter(VIEWS[0], VIEWS),
    # what is looked at
    "work": Parameter("Sizes", ("Sizes", "Recorded page", "Run")),
    "page": Parameter(""),
    "road": Parameter("ours", ("ours", "vendor")),
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
    "unseen": Parameter(False),
    "causal": Parameter("full", ("full", "halved")),
    "head": Parameter("last", ("last", "all")),
    "padding": Parameter(True),
    "nesting": Parameter(False),
    # what a view looks at
    "over": Parameter("batch", ("batch", "prompt")),
    "stage": Parameter("sam", tuple(stage.value for stage in STAGES)),
}


def key(name: str) -> str:
    """The session's key of a parameter; other pages have names of their own."""
    return f"flops {name}"


def value(name: str) -> Value:
    return st.session_state[key(name)]  # type: ignore[no-any-return]


def text(name: str) -> str:
    return str(value(name))


def read() -> None:
    """Make every parameter have its value, before any widget is drawn.

    The address counts in a new session only; later addresses are echoes of the session. Streamlit forgets
    the value of a widget that was not drawn, on another page say: it comes back from what was kept.
    """
    kept: dict[str, Value] | None = st.session_state.get("flops kept")
    if kept is None:
        kept = st.session_state["flops kept"] = _linked()
    for name, parameter in PARAMETERS.items():
        if key(name) not in st.session_state:
            st.session_state[key(name)] = kept.get(name, parameter.default)
        kept[name] = value(name)


def _linked() -> dict[str, Value]:
    """What the address says; a name or a value that is foreign here is ignored."""
    linked: dict[str, Value] = {}
    for name, parameter in PARAMETERS.items():
        with suppress(KeyError, ValueError):
            linked[name] = parameter.read(st.query_params[name])
    return linked


def write() -> None:
    """Make the address say what the session holds."""
    wanted = {
        name: parameter.write(value(name))
        for name, parameter in PARAMETERS.items()
        if value(name) is not None and value(name) != parameter.default
    }
    # What the browser claims may be older than what it was told last: both must agree with the session.
    if st.query_params.to_dict() != wanted or st.session_state.get("flops told") != wanted:
        st.query_params.from_dict(wanted)
        st.session_state["flops told"] = wanted
