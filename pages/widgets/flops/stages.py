"""The stages on the FLOPs page: rows of tables, and bars of each quantity."""

from __future__ import annotations

from collections.abc import Mapping

from dsocr_core.models.family import computed_stages, inside_prefill
from dsocr_core.models.stages import Stage
from pages.widgets.shared import stages
from pages.widgets.shared.stages import Part, StageLine, stage_name


def row_name(stage: str) -> str:
    """A stage as a table's row: prefill's own is the language model, as vision stands beside it."""
    return "prefill › language model" if stage == Stage.PREFILL else stage_name(stage)


def chart(rows: Mapping[str, Mapping[str, float]], units: Mapping[str, str]) -> str:
    """Bars of the stages as HTML: a panel a unit, a line a row of that unit, the legend on top.

    `rows` has each line's amounts by stage, the language model alone under prefill, whose bar is drawn with
    the vision in it; `units` gives each line its unit.
    """
    panels: dict[str, list[StageLine]] = {}
    for label, amounts in rows.items():
        panels.setdefault(units[label], []).append(StageLine(label, parts(amounts)))
    there = [stage for stage in computed_stages() if any(stage in amounts for amounts in rows.values())]
    return stages.legend(there) + "".join(stages.panel(lines, unit) for unit, lines in panels.items())


def parts(amounts: Mapping[str, float]) -> list[Part]:
    """Vision at the head of prefill, decode after it; what is not known is left out."""
    known = {stage: float(size) for stage, size in amounts.items() if size == size}
    inside: list[Part] = [(stage, known[stage], True, "") for stage in inside_prefill() if stage in known]
    whole = sum(part[1] for part in inside) + known.get(Stage.PREFILL, 0.0)
    decode: list[Part] = [(Stage.DECODE, known[Stage.DECODE], False, "")] if Stage.DECODE in known else []
    return [*inside, (Stage.PREFILL, whole, False, ""), *decode]
