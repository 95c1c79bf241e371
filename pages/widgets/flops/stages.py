"""The stages on the FLOPs page: their names, their colours, and their bars, vision inside prefill."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from analytic_model.frames import EVERYTHING, WITH_VISION
from dsocr_core.models.family import computed_stages, inside_prefill, stage_colours
from dsocr_core.stages import Stage
from dsocr_core.words import amount
from pages.widgets.shared.bars import legend_html, panel

SUMS = (WITH_VISION, EVERYTHING)


def legend_name(stage: str) -> str:
    """A stage's name with the one that it lies in."""
    return f"prefill › {stage}" if stage in inside_prefill() else str(stage)


def row_name(stage: str) -> str:
    """A stage as a table's row: prefill's own is the language model, as vision stands beside it."""
    return "prefill › language model" if stage == Stage.PREFILL else legend_name(stage)


def chart(rows: Mapping[str, Mapping[str, float]], units: Mapping[str, str]) -> str:
    """Bars of the stages as HTML: a panel a unit, a line a row of that unit, the legend on top.

    `rows` has each line's amounts by stage, the language model alone under prefill, whose bar is drawn with
    the vision in it; `units` gives each line its unit.
    """
    there = [stage for stage in computed_stages() if any(stage in amounts for amounts in rows.values())]
    legend = legend_html({legend_name(stage): stage_colours()[stage] for stage in there})
    panels: dict[str, list[pd.DataFrame]] = {}
    for label, amounts in rows.items():
        panels.setdefault(units[label], []).append(spans(label, amounts, units[label]))
    return legend + "".join(panel(pd.concat(lines), unit) for unit, lines in panels.items())


def spans(label: str, amounts: Mapping[str, float], unit: str) -> pd.DataFrame:
    """Where the bars of one line lie: vision at the head of prefill, decode after it."""
    made, inner = [], 0.0
    for stage in inside_prefill():
        if (size := amounts.get(stage, float("nan"))) == size:
            made.append((stage, inner, size, True))
            inner += size
    alone = amounts.get(Stage.PREFILL, 0.0)
    whole = inner + (alone if alone == alone else 0.0)
    made.append((Stage.PREFILL, 0.0, whole, False))
    if (size := amounts.get(Stage.DECODE, float("nan"))) == size:
        made.append((Stage.DECODE, whole, size, False))
    rows = [
        (
            label,
            float(start),
            float(size),
            stage_colours()[stage],
            f"{_said(stage)}: {amount(size, unit)}",
            inside,
        )
        for stage, start, size, inside in made
    ]
    return pd.DataFrame(rows, columns=["label", "start", "size", "colour", "words", "inside"])


def _said(stage: str) -> str:
    return "prefill with its vision" if stage == Stage.PREFILL else legend_name(stage)
