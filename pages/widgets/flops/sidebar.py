"""The sidebar of the FLOPs page: which work, on which model and device, counted how."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import streamlit as st

from analytic_model.hardware import HARDWARE, Hardware, hardware_named
from analytic_model.policy import Policy
from analytic_model.recorded import Reading, Recorded, hardware_key
from analytic_model.workload import Workload
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.models.family import load_config
from pages.widgets.flops import models, runs
from pages.widgets.flops.address import (
    BATCHES,
    MOST_TOKENS,
    OF_RUN,
    PARAMETERS,
    key,
    number_input,
    text,
    value,
)
from pages.widgets.flops.selection import Selection
from pages.widgets.shared import navigation

_USUAL = "h200"
"""Hardware where nothing says which."""


def draw() -> Callable[[], Selection]:
    """Draw the sidebar. What it returns makes the selection, and raises DsocrError when that cannot be.

    In two steps, so that every control is there to mend what is wrong.
    """
    st.segmented_control(
        "Work", PARAMETERS["work"].choices, required=True, key=key("work"), width="stretch",
    )  # fmt: skip
    make: Callable[[], Selection]
    if text("work") == "Run":
        make = partial(_selection_of, runs.draw())
    else:
        _sizes()
        make = _sized_selection
    _hardware()
    return make


# --- controls -------------------------------------------------------------------------------------


def _sizes() -> None:
    models.draw("model")
    left, right = st.columns(2)
    number_input(left, "Width (px)", "width", step=10)
    number_input(right, "Height (px)", "height", step=10)
    st.selectbox("Preset", list(PRESETS), key=key("preset"), format_func=_preset_words)
    st.slider("New tokens", 1, MOST_TOKENS, key=key("tokens"))
    left, right = st.columns(2)
    number_input(left, "Prompt tokens", "prompt", help="Text, without the image's span.")
    right.selectbox("Pages at once", BATCHES, key=key("batch"))
    left, right = st.columns(2)
    left.selectbox("Number type", PARAMETERS["dtype"].choices, key=key("dtype"))
    right.selectbox("Attention", PARAMETERS["attention"].choices, key=key("attention"), help="The decoder's.")


def _preset_words(name: str) -> str:
    preset = PRESETS[name]
    return f"{name}, {preset.base_size} px + tiles" if preset.crop_mode else f"{name}, {preset.image_size} px"


def _whole(name: str) -> int:
    """A number as typed; an empty field counts as 0, which the workload refuses by name."""
    return int(value(name) or 0)


def _hardware() -> None:
    usual = HARDWARE[_USUAL].name
    names = {name: device.name for name, device in HARDWARE.items()}
    names = {OF_RUN: f"where it was read, else {usual}", **names}
    if text("work") == "Sizes":
        names[OF_RUN] = f"as usual: {usual}"
    st.selectbox("Hardware", list(names), format_func=names.__getitem__, key=key("hardware"))


# --- what they choose -----------------------------------------------------------------------------


def _policy(attention: str, dtype: str) -> Policy:
    return Policy(attention=attention, dtype=dtype)  # type: ignore[arg-type]


def _device(policy: Policy, recorded: Recorded | None) -> tuple[Hardware, str]:
    """The chosen hardware and its key. Raises DsocrError for one without a peak in this number type."""
    name = text("hardware")
    if name == OF_RUN:
        name = (recorded and hardware_key(recorded.device, policy.dtype)) or _USUAL
    device = hardware_named(name)
    device.peak_flops(policy.dtype)  # a device without a figure for it is refused before anything
    return device, name


def _sized_selection() -> Selection:
    path = models.path_of(text("model"))
    config = load_config(path)
    size, preset = (_whole("width"), _whole("height")), text("preset")
    workload = Workload.from_image(*size, preset, _whole("prompt"), int(value("tokens")), int(value("batch")))
    policy = _policy(text("attention"), text("dtype"))
    return Selection(
        config, path, size, preset, workload, policy, *_device(policy, None),
    )  # fmt: skip


def _selection_of(read: Callable[[], Reading]) -> Selection:
    found = read()
    policy = _policy(found.attention, found.dtype)
    return Selection(
        load_config(found.config_path), found.config_path, found.size, found.preset, found.workload, policy,
        *_device(policy, found.recorded), found.recorded,
    )  # fmt: skip


def to_compare() -> None:
    """Go where pages are read."""
    navigation.to_compare()
