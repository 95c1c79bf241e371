"""`history regressions` and `history kernels`: what became slower, and in which kernel."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsocr_core.base.console import OK, Name, page_table, print_json
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.visible import visible
from dsocr_core.base.words import duration, percent, signed
from dsocr_core.cli.history import Where, records
from dsocr_core.cli.options import Command

_COMMIT = 8
_ROWS = 20


def regressions(where: Where, *, contended: bool = False, limit: int = _ROWS, console: Console) -> int:
    """Rank what the newest commit of every workload, setting and card lost against the commit before it.

    Args:
        contended: runs beside other programs count, too
        limit: rows of the table at most; --json has all
    """
    from dsocr_core.runs.regressions import counts, regressions
    from dsocr_core.runs.statistics import NEUTRAL_BAND, outcome_words

    with where.opened(tell=False) as history:
        runs = history.runs(profiled=False, contended=None if contended else False)
        found, _ = regressions(history, runs, contended=contended)
    if where.json:
        print_json({"band": NEUTRAL_BAND, "counts": counts(found), "regressions": records(found)})
        return OK
    heads = ("Stage", "Backend", "Before", "After", "Lost", "Interval", "Runs", "Commits")
    table = page_table(*heads, "Verdict", words="Verdict")
    for row in found.head(limit).to_dict("records"):
        commits = (str(row[f"commit_{side}"])[:_COMMIT] for side in "ab")
        low, high = (percent(100 * (row[end] - 1), "") for end in ("low", "high"))
        verdict = outcome_words(row["verdict"])
        if row["why"]:
            verdict += f": {row['why']}"
        cells = (
            row["stage"], str(row["backend"]), duration(row["median_a"]), duration(row["median_b"]),
            signed(row["lost_ms"] / 1e3, "s"), f"{low} to {high}" if low else "",
            f"{row['runs_a']} and {row['runs_b']}", " ".join(commits), f"{verdict} ({row['under']})",
        )  # fmt: skip
        _add(table, cells)
    console.print(table)
    words = ", ".join(f"{count} {outcome_words(outcome)}" for outcome, count in counts(found).items())
    console.print(Text(f"{words}; the pairs: --json, or Timing's view Regressions"))
    return OK


def kernels(
    where: Where, a: str, b: str, *, stage: str | None = None, limit: int = _ROWS, console: Console
) -> int:
    """Set two runs' kernels side by side: time and Speed of Light, the largest change first, new and gone.

    Args:
        a: id of a run with kernels, before
        b: id of a run with kernels, after
        stage: only kernels of this stage
        limit: rows of the table at most; --json has all
    """
    from dsocr_core.runs.kernel_pairs import HEADS, kernel_pairs

    with where.opened(tell=False) as history:
        having = {*history.runs_with("kernels"), *history.runs_with("kernel_launches")}
        for run in (a, b):
            if run not in having:
                raise DsocrError(f"run {run}: no kernels; see dsocr history list, or import a profile")
        found = kernel_pairs(history, a, b, stage)
    if where.json:
        print_json({"a": a, "b": b, "by_call": found.by_call, "words": found.words,
                    "kernels": records(found.rows)})  # fmt: skip
        return OK
    table = page_table(*HEADS)
    for cells in found.cells(limit):
        _add(table, cells)
    console.print(table)
    console.print(Text(found.words))
    return OK


def _add(table: Table, cells: Sequence[str]) -> None:
    table.add_row(Name(cells[0]), *map(Text, map(visible, cells[1:])))


COMMANDS: dict[str, Command] = {"regressions": regressions, "kernels": kernels}
