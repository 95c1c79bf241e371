"""The report of a change of speed as Markdown: its stages, B against A, and their kernels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from dsocr_core.base.words import duration, significant, speed_ratio
from dsocr_core.review.markdown import plain, table
from dsocr_core.runs.kernel_pairs import HEADS, KernelPairs
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.statistics import outcome_words

_ROWS = 30


def speed_report(
    a: RunRecord, b: RunRecord, stages: pd.DataFrame | None, kernels: KernelPairs, commands: Sequence[str]
) -> str:
    """Write what two runs with kernels say.

    `stages` is `speed.compare_speed` of timed runs of the same commits; `commands` print the figures again.
    """
    lines = [f"# Speed of {plain(b.id)} beside {plain(a.id)}", ""]
    for name, run in (("A, before", a), ("B, after", b)):
        facts = (run.gpu or run.device, run.engine, run.dtype, run.attention, run.preset)
        told = ", ".join(str(fact) for fact in facts if fact)
        lines.append(
            f"- {name}: {plain(run.id)}, commit {plain(run.git_commit or 'not known')}, {plain(told)}"
        )
    if stages is not None and len(stages):
        heads = ("Stage", "A", "B", "B is", "Interval of B / A", "Runs", "Pages", "Outcome")
        lines += ["", "## Stages", "", *table(heads, _stage_rows(stages))]
    lines += ["", "## Kernels", "", plain(kernels.words), "", *table(HEADS, kernels.cells(_ROWS))]
    if len(kernels.rows) > _ROWS:
        lines += ["", f"The {_ROWS} largest changes of {len(kernels.rows)}."]
    lines += ["", "## Again", "", *(f"    {line}" for line in commands)]
    return "\n".join(lines) + "\n"


def _stage_rows(stages: pd.DataFrame) -> Iterator[Sequence[str]]:
    for row in stages.to_dict("records"):
        known = row["ratio"] == row["ratio"]
        why = f": {row['why']}" if row["why"] else ""
        yield (
            row["stage"], duration(row["median_a"]), duration(row["median_b"]),
            speed_ratio(row["ratio"], 1.0) if known else "",
            f"{significant(row['low'])} to {significant(row['high'])}" if known else "",
            f"{row['runs_a']} and {row['runs_b']}", str(row["pages"]), outcome_words(row["verdict"]) + why,
        )  # fmt: skip
