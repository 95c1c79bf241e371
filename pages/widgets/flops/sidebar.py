"""The sidebar of the FLOPs page: which work, on which model and device, counted how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import log, sqrt
from pathlib import Path

import streamlit as st

from analytic_model.hardware import HARDWARE, Hardware, hardware_named, measured_hardware
from analytic_model.policy import Policy
from analytic_model.recorded import Reading, Recorded, hardware_key, recorded_workload
from analytic_model.roofline import least_work
from analytic_model.workload import Workload
from dsocr_core.base.errors import DsocrError
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.models.family import all_stages, load_config
from pages.widgets.flops import models, runs
from pages.widgets.flops.address import (
    BATCHES,
    CUSTOM,
    MOST_TOKENS,
    OF_RUN,
    PARAMETERS,
    STATE,
    key,
    number_input,
    put,
    text,
    value,
)
from pages.widgets.flops.selection import NotRecordedError, Selection
from pages.widgets.shared import navigation, resources, sources

ASPECTS: dict[str, float] = {
    "1:9": 1 / 9, "1:6": 1 / 6, "1:4": 1 / 4, "1:3": 1 / 3, "1:2": 1 / 2, "2:3": 2 / 3, "A4": 1 / sqrt(2),
    "3:4": 3 / 4, "1:1": 1.0, "4:3": 4 / 3, "A4 wide": sqrt(2), "3:2": 3 / 2, "16:9": 16 / 9, "2:1": 2.0,
    "3:1": 3.0, "4:1": 4.0, "6:1": 6.0, "9:1": 9.0,
}  # fmt: skip
"""Width over height."""
_USUAL = "h200"
"""Hardware where nothing says which."""


def draw() -> Callable[[], Selection]:
    """Draw the sidebar. What it returns makes the selection, and raises DsocrError when that cannot be.

    In two steps, so that every control is there to mend what is wrong.
    """
    st.segmented_control(
        "Work", PARAMETERS["work"].choices, required=True, key=key("work"), width="stretch",
        format_func=lambda work: "Sample" if work == "Recorded page" else work,
    )  # fmt: skip
    make: Callable[[], Selection]
    if text("work") == "Recorded page":
        _recorded()
        make = partial(_selection_of, _sample_reading)
    elif text("work") == "Run":
        make = partial(_selection_of, runs.draw())
    else:
        _sizes()
        make = _sized_selection
    _hardware()
    _counting()
    return make


# --- controls -------------------------------------------------------------------------------------


def _recorded() -> None:
    pages = sources.samples().keys
    if STATE.missing("page", pages):  # which the reading says
        pages = (*pages, text("page"))
    if text("page") not in pages:
        put("page", pages[0] if pages else "")
    st.selectbox("Page", pages, key=key("page"))
    st.selectbox("Preset", list(PRESETS), key=key("read"))
    runs.backends(resources.base_settings().side_names)


def _sizes() -> None:
    models.draw("model")
    left, right = st.columns(2)
    number_input(left, "Width (px)", "width", step=10)
    number_input(right, "Height (px)", "height", step=10)
    _aspect()
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


def _aspect() -> None:
    """A slider over the page's shape that leaves its area as it is."""
    width, height = _whole("width"), _whole("height")
    if width > 0 and height > 0:
        st.session_state["flops aspect"] = min(
            ASPECTS, key=lambda name: abs(log(ASPECTS[name]) - log(width / height))
        )
    st.select_slider("Width : height", list(ASPECTS), key="flops aspect", on_change=_take_aspect)


def _take_aspect() -> None:
    width, height, aspect = _whole("width"), _whole("height"), ASPECTS[st.session_state["flops aspect"]]
    if width > 0 and height > 0:
        area = width * height
        put("width", max(round(sqrt(area * aspect)), 1))
        put("height", max(round(sqrt(area / aspect)), 1))


def _whole(name: str) -> int:
    """A number as typed; an empty field counts as 0, which the workload refuses by name."""
    return int(value(name) or 0)


def _hardware() -> None:
    usual = HARDWARE[_USUAL].name
    names = {name: device.name for name, device in HARDWARE.items()}
    names = {OF_RUN: f"where it was read, else {usual}", **names, CUSTOM: "your own figures"}
    if text("work") == "Sizes":
        names[OF_RUN] = f"as usual: {usual}"
    st.selectbox("Hardware", list(names), format_func=names.__getitem__, key=key("hardware"))
    if text("hardware") == CUSTOM:
        left, right = st.columns(2)
        number_input(left, "Peak (TFLOP/s)", "peak", step=10.0)
        number_input(right, "Bandwidth (GB/s)", "bandwidth", step=100.0)
    number_input(
        st.container(), "Price an hour", "price", step=0.1,
        help="What you pay for the device, in any currency: 1,000 pages are priced. 0: not known.",
    )  # fmt: skip


def _counting() -> None:
    # Drawn when it is open: a browser takes long over that many fields.
    expander = st.expander("How it is counted", expanded=False, key="flops counting", on_change="rerun")
    if not expander.open:
        return
    with expander:
        st.segmented_control(
            "Prefill attention", PARAMETERS["causal"].choices, required=True, key=key("causal"),
            width="stretch", help="full: the whole square, as torch counts it. halved: what the mask keeps.",
        )  # fmt: skip
        st.segmented_control(
            "lm_head at prefill", PARAMETERS["head"].choices, required=True, key=key("head"), width="stretch",
            help="The published code computes logits at all prompt positions; only the last is needed.",
        )  # fmt: skip
        st.toggle("Padding of SAM's windows", key=key("padding"), help="The code computes on these zeros.")
        st.toggle(
            "FlashAttention's core", key=key("unsupported"),
            help="torch's counter does not see it. On: what the algorithm costs.",
        )  # fmt: skip
        st.toggle(
            "Vision counted in prefill", key=key("nesting"),
            help="A clock around prefill has the vision stages in it; the counter has them apart.",
        )  # fmt: skip
        left, right = st.columns(2)
        left.button("As torch", on_click=_count_as, args=(Policy(),), width="stretch")
        right.button(
            "Least work", on_click=_count_as, args=(least_work(Policy()),), width="stretch",
            help="Only what the result needs: bounds that no code can beat.",
        )  # fmt: skip


def _count_as(policy: Policy) -> None:
    for name, chosen in (
        ("unsupported", not policy.ignore_torch_unsupported_flops), ("causal", policy.causal),
        ("head", policy.lm_head), ("padding", policy.vision_window_padding), ("nesting", False),
    ):  # fmt: skip
        put(name, chosen)


# --- what they choose -----------------------------------------------------------------------------


def _policy(attention: str, dtype: str) -> Policy:
    return Policy(
        ignore_torch_unsupported_flops=not value("unsupported"),
        causal=text("causal"),  # type: ignore[arg-type]
        lm_head=text("head"),  # type: ignore[arg-type]
        attention=attention,  # type: ignore[arg-type]
        dtype=dtype,  # type: ignore[arg-type]
        vision_window_padding=bool(value("padding")),
    )


def _device(policy: Policy, recorded: Recorded | None) -> tuple[Hardware, str]:
    """The chosen hardware and its key. Raises DsocrError for one without a peak in this number type."""
    name = text("hardware")
    if name == CUSTOM:
        figures = float(value("peak") or 0), float(value("bandwidth") or 0)
        return measured_hardware(*figures, name="your device"), CUSTOM
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
        config, path, size, preset, workload, policy, bool(value("nesting")), *_device(policy, None),
        price=float(value("price") or 0),
    )  # fmt: skip


def _selection_of(read: Callable[[], Reading]) -> Selection:
    found = read()
    policy = _policy(found.attention, found.dtype)
    return Selection(
        load_config(found.config_path), found.config_path, found.size, found.preset, found.workload, policy,
        bool(value("nesting")), *_device(policy, found.recorded), found.recorded, float(value("price") or 0),
    )  # fmt: skip


def _sample_reading() -> Reading:
    settings = replace(resources.base_settings(), preset=text("read"))
    pages = sources.samples()
    if text("page") not in pages.keys:
        raise DsocrError(f"there is no page {text('page')[:60]} here: choose another")
    page = pages.take(pages.position(text("page")))
    found = resources.runner().page_results(settings, settings.request(page.path, page.name), None)
    if found.problems:
        raise DsocrError(found.problems[0])
    results = found.comparison.results.values() if found.comparison else ()
    result = next((result for result in results if result.backend == text("backend")), None)
    if result is None:
        raise NotRecordedError(
            f"{text('backend')} has not read {page.name} with preset {text('read')} yet. "
            "Read it on Compare, or choose another preset or backend on the left."
        )
    preset = result.request.preset
    if (inputs := result.inputs) is None or (tokens := result.token_ids) is None:
        raise DsocrError(f"{text('backend')} does not tell what went into the model; choose another backend")
    times = {stage: ms for stage in all_stages() if (ms := result.milliseconds(stage)) is not None}
    device = result.environment.get("device_name") or result.environment.get("device") or "?"
    work = recorded_workload(result.image_size, preset, len(inputs.prompt_ids), len(tokens))
    path = Path(settings.checkpoint.removeprefix("random:"))
    recorded = Recorded(result.backend, device, times)
    return Reading(path, result.image_size, preset, work, inputs.attention, inputs.dtype, recorded)


def to_compare() -> None:
    """Go where the chosen page can be read."""
    if text("work") == "Run":
        navigation.to_compare()
    navigation.to_compare(text("page"), text("read"))
