"""The tabs of the FLOPs page. Only the open one is computed."""

from __future__ import annotations

from functools import partial

import pandas as pd
import streamlit as st

from analytic_model.frames import stage_costs
from analytic_model.predict import kv_cache_bytes
from dsocr_core.base.words import amount
from pages.widgets.flops import cost_tab, measured_tab
from pages.widgets.flops.address import VIEWS, key
from pages.widgets.flops.selection import Selection
from pages.widgets.shared import figure
from pages.widgets.shared.strip import Strip, strip_html


def draw(selection: Selection) -> None:
    """The strip and the tabs."""
    costs = stage_costs(selection.prediction, selection.hardware)
    st.html(strip_html(strip_of(selection, costs)))
    drawers = (cost_tab.draw, measured_tab.draw)
    drawn = [partial(drawer, selection, costs) for drawer in drawers]
    figure.tabs(dict(zip(VIEWS, drawn, strict=True)), key("view"))


def strip_of(selection: Selection, costs: pd.DataFrame) -> Strip:
    """The workload and its sums in one line."""
    work, hardware = selection.workload, selection.hardware
    columns, rows = work.grid
    cache = kv_cache_bytes(selection.config.decoder, work.cached_length, selection.policy.dtype, work.batch)
    grid = f", tiles {columns} x {rows}" if work.tile_count else ""
    facts = (
        ("", f"{selection.size[0]:,} x {selection.size[1]:,} px, {selection.preset}{grid}"),
        ("views", f"{work.num_views}"),
        ("prompt", f"{work.image_tokens:,} image + {work.prompt_tokens:,} text"),
        ("new", f"{work.decode_tokens:,}"),
        *((("pages at once", f"{work.batch}"),) if work.batch > 1 else ()),
        ("work", amount(costs["flops"].sum(), "FLOP")),
        ("KV cache size", amount(cache, "B")),
        ("least time", f"{amount(costs['bound_s'].sum(), 's')} on {hardware.name}"),
    )
    return Strip("", "none", facts, f"{selection.policy.dtype}, {selection.policy.attention}")
