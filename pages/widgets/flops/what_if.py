"""Cost of a page of any size, by arithmetic alone."""

from __future__ import annotations

import shlex
from pathlib import Path

import streamlit as st

from analytic_model import PUBLISHED
from analytic_model.frames import stage_costs, summed_costs
from analytic_model.hardware import HARDWARE, hardware_named
from analytic_model.policy import Policy
from analytic_model.predict import kv_cache_bytes, predict
from analytic_model.workload import Workload
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.formatting import amount
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT, PROJECT_ROOT
from dsocr_core.models.deepseek_ocr import PRESETS
from dsocr_core.models.family import load_config
from pages.widgets.flops.address import (
    BATCHES,
    MOST_TOKENS,
    MOST_VALUE,
    PARAMETERS,
    SIZES,
    STATE,
    WHAT_IF,
    bound,
    value,
)
from pages.widgets.flops.gaps import row_name
from pages.widgets.shared import figure, table
from pages.widgets.shared.messages import show_error
from pages.widgets.shared.table import Column

_COSTS = {
    "stage": Column("stage", row_name, left=True),
    "flops": Column("FLOPs", "FLOP", "Products and convolutions, a multiply-add as two."),
    "compulsory_bytes": Column("bytes", "B", "Bytes that have to move however operators are fused."),
    "intensity_flop_per_byte": Column("FLOP/B", ""),
    "bound_s": Column("lower bound", "s"),
    "bound_by": Column("bound by"),
    "weight_bytes": Column("weights", "B", "Each time that they are read: by decode every token."),
    "kv_bytes": Column("KV cache", "B", "Read and written over all tokens."),
    "parameters": Column("parameters", "number", "Weights that the stage uses; stages share some."),
}  # fmt: skip


def draw() -> None:
    """The sizes, and what they cost."""
    shown = value("view") == WHAT_IF or STATE.used(*SIZES) > 0
    figure.opened("What if: another size, tokens, batch, card", "flops what if", _what_if, shown)


def _what_if() -> None:
    """An error names a size that cannot be."""
    _controls()
    try:
        _costs()
    except DsocrError as error:
        show_error(error)


def _costs() -> None:
    path = PUBLISHED if value("model") == "Published" else EMBEDDED_CHECKPOINT / "config.json"
    config, hardware = load_config(path), hardware_named(value("hardware"))
    policy = Policy(dtype=value("dtype"))
    hardware.peak_flops(policy.dtype)  # a device without a figure for it is refused before anything
    sizes = [int(value(name) or 0) for name in ("width", "height", "prompt", "tokens", "batch")]
    width, height, prompt, tokens, batch = sizes
    work = Workload.from_image(width, height, value("preset"), prompt, tokens, batch)
    prediction = predict(config, work, policy)
    costs = stage_costs(prediction, hardware)
    columns, rows = work.grid
    cache = kv_cache_bytes(config.decoder, work.cached_length, policy.dtype, work.batch)
    words = (
        f"{amount(costs['flops'].sum(), 'FLOP')}, at least {amount(costs['bound_s'].sum(), 's')} on "
        f"{hardware.name}: {len(work.views)} views (tiles {columns} x {rows}), {work.image_tokens:,} image + "
        f"{work.prompt_tokens:,} text + {work.decode_tokens:,} new tokens, KV cache {amount(cache, 'B')}."
    )
    whole = summed_costs(costs, prediction.parameters["total"])
    figure.head(words, reproduce=_command(path, sizes), costs=whole)
    table.draw(whole, _COSTS)
    st.caption(f"Peaks of {hardware.name}: {hardware.source}")


def _controls() -> None:
    one, two, three, four = st.columns(4)
    one.selectbox("Model", PARAMETERS["model"].choices, **bound("model"))
    two.selectbox("Preset", list(PRESETS), **bound("preset"))
    three.number_input("Width (px)", 0, MOST_VALUE, step=10, **bound("width"))
    four.number_input("Height (px)", 0, MOST_VALUE, step=10, **bound("height"))
    one, two, three, four, five = st.columns(5)
    one.number_input(
        "Prompt tokens", 0, MOST_VALUE, help="Text, without the image's span.", **bound("prompt")
    )
    two.number_input("New tokens", 1, MOST_TOKENS, **bound("tokens"))
    three.selectbox("Pages at once", BATCHES, **bound("batch"))
    four.selectbox("dtype", PARAMETERS["dtype"].choices, **bound("dtype"))
    names = {name: device.name for name, device in HARDWARE.items()}
    five.selectbox("Hardware", list(names), format_func=names.__getitem__, **bound("hardware"))


def _command(path: Path, sizes: list[int]) -> str:
    width, height, prompt, tokens, batch = map(str, sizes)
    return shlex.join([
        "dsocr", "flops", "report", "--config", str(path.relative_to(PROJECT_ROOT)), "--width", width,
        "--height", height, "--preset", value("preset"), "--prompt-tokens", prompt, "--decode-tokens", tokens,
        "--batch", batch, "--dtype", value("dtype"), "--hardware", value("hardware"),
    ])  # fmt: skip
