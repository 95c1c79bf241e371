"""Launches of kernels under the device's roofs. DataFrame -> figure, pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

from analytic_model.hardware import Hardware
from dsocr_core.base.formatting import amount, significant
from dsocr_core.runs.kernel_names import kernel_names
from pages.widgets.shared import plots

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

CLASS_COLOURS = {"memory": "#0072B2", "compute": "#D55E00", "latency": plots.NEUTRAL}
_SYMBOLS = {"memory": "circle", "compute": "diamond", "latency": "square"}


def kernel_roofline(rows: pd.DataFrame, device: Hardware) -> Figure:
    """Kernels whose FLOPs were counted, under the device's bandwidth and the peaks of what they use.

    With a column `side` marks of A are open.
    The tensor cores' dense bf16 peak is a line, that of float32 outside them a broken one.
    """
    classes = rows["class"].fillna("")
    points = rows.assign(
        group=[f"{name} bound" for name in classes],
        intensity=rows["flops"] / rows["bytes"].clip(lower=1),
        flops_per_s=rows["flops"] / rows["duration_s"],
        symbol=_signs(rows),
        edge=[2.0 if sign.endswith("-open") else 0.6 for sign in _signs(rows)],
    ).assign(**_sizes(rows))
    points["words"] = [
        f"{name}: {amount(speed, 'FLOP/s')}, {significant(at)} FLOP a byte, {amount(spent, 's')}"
        for name, speed, at, spent in zip(
            _names(rows), points["flops_per_s"], points["intensity"], rows["duration_s"], strict=True
        )
    ]
    marks = {
        f"{name} bound": {"color": CLASS_COLOURS[name], "symbol": _SYMBOLS[name]}
        for name in CLASS_COLOURS
        if (classes == name).any()
    }
    words = f"FLOPs a byte of DRAM · {device.name}, {amount(device.bandwidth, 'B/s')}"
    more = {"height": 400, "margin": plots.MARGIN | {"t": 52}}
    return plots.roofline(points, roofs(rows, device), device.bandwidth, marks, words, more)


def roofs(rows: pd.DataFrame, device: Hardware) -> list[tuple[str, float, str]]:
    """(name, FLOP/s, line) of each unit that the kernels use, as far as the device's peak is known."""
    tensor = rows["tensor_flops"].fillna(0)
    found = []
    if device.bfloat16_tflops is not None and ((tensor > 0).any() or device.float32_tflops is None):
        found.append(("tensor cores, bf16", device.peak_flops("bfloat16"), "solid"))
    if (rows["flops"] - tensor > 0).any() and device.float32_tflops is not None:
        found.append(("float32, no tensor cores", device.peak_flops("float32"), "dash"))
    return found


def _sizes(part: pd.DataFrame) -> dict[str, Any]:
    """The larger the mark, the larger the part of the time."""
    return {"size": 8 + 40 * part["share"].fillna(0).clip(0, 1) ** 0.5}


def _signs(rows: pd.DataFrame) -> list[str]:
    sides = rows["side"] if "side" in rows else [""] * len(rows)
    return [
        _SYMBOLS.get(name, "circle") + "-open" * (side == "A")
        for name, side in zip(rows["class"], sides, strict=True)
    ]


def _names(rows: pd.DataFrame) -> list[str]:
    # Plotly reads HTML in what it shows on hover.
    names = [name[:60] for name in kernel_names(rows["kernel"].tolist())]
    if "side" in rows:
        names = [f"{side}: {name}" for side, name in zip(rows["side"], names, strict=True)]
    return [name.replace("&", "&amp;").replace("<", "&lt;") for name in names]
