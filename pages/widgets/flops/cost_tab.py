"""The tab Cost of the FLOPs page: what is computed, what has to move, and how long both take at least."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from analytic_model.frames import operators, summed_costs
from dsocr_core.base.words import plural
from dsocr_core.models.stages import Stage
from pages.widgets.flops import stages
from pages.widgets.flops.address import key, text
from pages.widgets.flops.selection import Selection
from pages.widgets.shared import bars, figure, table
from pages.widgets.shared.table import Column

_BARS = {"FLOPs": ("flops", "FLOP"), "bytes": ("compulsory_bytes", "B"), "least time": ("bound_s", "s")}
_COSTS = {
    "stage": Column("stage", stages.row_name, left=True),
    "flops": Column(
        "FLOPs", "FLOP", "Matrix products and convolutions, a multiply-add as two, as torch counts them."
    ),
    "compulsory_bytes": Column(
        "least traffic", "B",
        "Bytes that have to move between memory and the chip however operators are fused.",
    ),
    "intensity_flop_per_byte": Column(
        "FLOP/B", "", "FLOPs for each byte of the least traffic: the place on the roofline."
    ),
    "bound_s": Column(
        "least time", "s", "The longer of computing at peak and moving the least traffic at full bandwidth."
    ),
    "bound_by": Column("by", about="What the least time is bound by."),
    "weight_bytes": Column(
        "weights", "B", "Bytes of weights, each time that they are read: by decode every token."
    ),
    "kv_bytes": Column(
        "KV cache", "B",
        "Bytes of the KV cache that are read and written over all tokens; its size is above the tabs.",
    ),
    "bytes_read": Column("read", "B", "Read by all operators, were none of them fused."),
    "bytes_written": Column("written", "B", "Written by all operators, were none of them fused."),
    "other_flops": Column(
        "elementwise", "FLOP",
        "Norms, softmax, activations, rotary: arithmetic that torch's counter leaves out.",
    ),
    "parameters": Column(
        "parameters", "number", "Weights that the stage uses; stages share some."
    ),
}  # fmt: skip
_OPERATORS = {
    "module": Column("module"), "operator": Column("operator"), "calls": Column("calls", "count"),
    "flops": Column("FLOPs", "FLOP"), "share_of_flops": Column("of FLOPs", "bar"),
    "other_flops": Column("other", "FLOP"), "bytes_read": Column("read", "B"),
    "bytes_written": Column("written", "B"), "share_of_bytes": Column("of bytes", "bar"),
    "parameters": Column("parameters", "number"),
}  # fmt: skip


def draw(selection: Selection, costs: pd.DataFrame) -> None:
    """Bars and figures of the stages, the operators of one of them, and what is not counted."""
    words = "What is computed, what has to move however it is fused, and the least time of both."
    whole = summed_costs(costs, selection.prediction.parameters["total"])
    figure.head(words, reproduce=selection.report(), stages=whole)
    rows = {panel: costs.set_index("stage")[column].to_dict() for panel, (column, _) in _BARS.items()}
    units = {panel: unit for panel, (_, unit) in _BARS.items()}
    bars.draw(stages.chart(rows, units), "FLOPs, bytes and least time by stage")
    table.draw(whole, _COSTS)
    _operators(selection)
    with st.expander("What is not counted"):
        st.markdown("\n".join(f"- {note}" for note in selection.prediction.not_counted))
        st.caption(f"Peaks of {selection.hardware.name}: {selection.hardware.source}")


def _operators(selection: Selection) -> None:
    st.segmented_control(
        "Operators of", [str(name) for name in selection.prediction.stages], required=True, key=key("stage"),
        format_func=stages.row_name,
    )  # fmt: skip
    stage = Stage(text("stage"))
    frame = operators(selection.prediction.stages[stage])
    words = f"{plural(len(frame), 'operator')} over all layers and runs, the largest first."
    figure.head(words, reproduce=selection.report("--json"), **{f"operators_{stage.value}": frame})
    table.draw(frame, _OPERATORS)
