"""`history regressions` and `history kernels`: what became slower, and in which kernel."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from dsocr_core.base.console import OK, Name, page_table, print_json
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.visible import visible
from dsocr_core.base.words import amount, duration, percent, signed
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
    from dsocr_core.runs.kernel_names import kernel_names
    from dsocr_core.runs.kernel_pairs import kernel_pairs

    with where.opened(tell=False) as history:
        having = {*history.runs_with("kernels"), *history.runs_with("kernel_launches")}
        for run in (a, b):
            if run not in having:
                raise DsocrError(
                    f"run {run}: no run with kernels; see dsocr history list, or import a profile"
                )
        found = kernel_pairs(history, a, b, stage)
    if where.json:
        print_json({"a": a, "b": b, "by_call": found.by_call, "words": found.words,
                    "kernels": records(found.rows)})  # fmt: skip
        return OK
    table = page_table(
        "Kernel", "Stage", "Calls", "Each A", "Each B", "Change", "SM %", "Memory %", "DRAM %", "Found"
    )
    rows = found.rows.head(limit)
    for name, row in zip(kernel_names(rows["kernel"].tolist()), rows.to_dict("records"), strict=True):
        cells = [
            name, row["stage"] or "all", _both(row["calls_a"], row["calls_b"]),
            *(amount(row[f"each_s_{side}"], "s") if row[f"each_s_{side}"] > 0 else "" for side in "ab"),
            signed(row["change_s"], "s"),
            *(_both(row[f"{figure}_a"], row[f"{figure}_b"]) for figure in ("sm", "memory", "dram")),
            row["found"],
        ]  # fmt: skip
        _add(table, cells)
    console.print(table)
    console.print(Text(found.words))
    return OK


def _both(a: float, b: float) -> str:
    """A's figure and B's; a side that has none is a dash, and nothing where none has."""
    words = ["–" if value != value else f"{value:.3g}" for value in map(float, (a, b))]
    return " → ".join(words) if {*words} != {"–"} else ""


def _add(table: Table, cells: Sequence[str]) -> None:
    table.add_row(Name(cells[0]), *map(Text, map(visible, cells[1:])))


COMMANDS: dict[str, Command] = {"regressions": regressions, "kernels": kernels}
