"""The report of a gate: a table, JSON, Markdown for a pull request, and its exit code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from dsocr_core.base.console import FAILED, INCONCLUSIVE, OK, SLOWER, titled_table
from dsocr_core.base.formatting import NOT_MEASURED, amount, duration, plural, share
from dsocr_core.measure.gate import GateResult, Row
from dsocr_core.measure.processes import RATES
from dsocr_core.models.stages import Stage
from dsocr_core.runs.labels import short
from dsocr_core.runs.statistics import outcome_words

_COLUMNS = ("Metric", "Before", "After", "Change", "Interval", "Verdict")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]<>|#&!~$@])")
_MOST_CHARACTERS = 1000


def exit_code(gated: GateResult) -> int:
    """Exit code: 1 for pages that differ, then 3 slower, 4 inconclusive, 0."""
    if gated.pages_equal is False:
        return FAILED
    return {"slower": SLOWER, "inconclusive": INCONCLUSIVE}.get(gated.judged.verdict, OK)


def document(gated: GateResult) -> dict[str, Any]:
    """JSON-ready values. Changes are of the metric itself: a falling rate is negative."""
    rows = [{**asdict(row), "unit": row.metric if row.metric in RATES else "ms"} for row in gated.judged.rows]
    plan = gated.plan
    return {
        "before": {"name": gated.before, "runs": list(gated.runs_a)},
        "after": {"name": gated.after, "runs": list(gated.runs_b)},
        "engine": plan.work.engine, "machine": gated.machine, "rounds": len(gated.runs_a), "most": plan.most,
        "fail_above": plan.neutral, "seconds": round(gated.seconds, 1),
        "contended": list(gated.judged.contended), "metrics": rows,
        "pages_equal": gated.pages_equal,
        "verdict": gated.judged.verdict, "slower": gated.judged.metrics("slower"),
        "faster": gated.judged.metrics("faster"), "exit_code": exit_code(gated),
    }  # fmt: skip


def headline(gated: GateResult) -> str:
    """Outcome in one sentence: "SLOWER: sam +5.1 %, prefill +4.2 %"."""
    verdict = gated.judged.verdict
    words = outcome_words(verdict, gated.plan.neutral).upper()
    if verdict != "within":
        rows = [row for row in gated.judged.rows if row.verdict == verdict]
        known = verdict != "inconclusive"
        words += (
            f": {', '.join(f'{_name(row)} {_percent(row.change)}' if known else row.metric for row in rows)}"
        )
    return f"PARITY: pages differ; speed {words}" if gated.pages_equal is False else words


def print_gate(gated: GateResult, console: Console) -> None:
    """Print the gate as a table."""
    table = titled_table("", *_COLUMNS)
    for cells in _cells(gated):
        table.add_row(*map(Text, cells))
    console.print(Text(f"{gated.before} -> {gated.after}, {_measured(gated)}"))
    console.print(table)
    for line in _notes(gated):
        console.print(Text(line))
    console.print(Text(headline(gated)))


def markdown(gated: GateResult) -> str:
    """The gate as a comment for a pull request."""
    lines = [
        f"### Speed gate: {_cell(headline(gated))}", "",
        f"{_cell(gated.before)} → {_cell(gated.after)}, {_cell(_measured(gated))}", "",
        f"| {' | '.join(_COLUMNS)} |", "|---|--:|--:|--:|--:|---|",
        *(f"| {' | '.join(map(_cell, cells))} |" for cells in _cells(gated)),
        *(text for note in _notes(gated) for text in ("", _cell(note))),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


# --- words ----------------------------------------------------------------------------------------


def _measured(gated: GateResult) -> str:
    plan, count = gated.plan, len(gated.runs_a)
    return (
        f"engine {plan.work.engine} on {gated.machine}: {plural(count, 'round')} of at most {plan.most}, "
        f"{count} and {len(gated.runs_b)} processes, {duration(1000 * gated.seconds)}"
    )


def _notes(gated: GateResult) -> Iterator[str]:
    if gated.pages_equal is not None:
        yield f"{', '.join(gated.plan.pages)}: {'equal' if gated.pages_equal else 'pages differ'}"
    if count := len(gated.judged.contended):
        whole = len(gated.runs_a) + len(gated.runs_b)
        yield f"{count} of {whole} benches ran beside other programs (contended)"
    yield (
        f"A change counts where its whole interval is beyond ±{share(gated.plan.neutral)}; all intervals "
        "together miss the truth in one gate of twenty."
    )


def _cells(gated: GateResult) -> Iterator[list[str]]:
    for row in gated.judged.rows:
        verdict, values = outcome_words(row.verdict, gated.plan.neutral), (row.before, row.after)
        yield [
            _name(row), *(amount(of, row.metric) if row.metric in RATES else duration(of) for of in values),
            _percent(row.change),
            NOT_MEASURED if row.low is None else f"{_percent(row.low)} to {_percent(row.high)}",
            f"{verdict} ({row.why})" if row.why else verdict,
        ]  # fmt: skip


def _name(row: Row) -> str:
    return f"{row.metric} ({Stage.DECODE.value})" if row.metric == "tokens/s" else row.metric


def _percent(change: float | None) -> str:
    return f"{'+' if change is not None and change > 0 else ''}{share(change)}"


def _cell(text: object) -> str:
    """Escape a text for a cell of Markdown: no mark-up, no cell end, no mention."""
    return _MARKDOWN.sub(r"\\\1", short(str(text), _MOST_CHARACTERS)) if text is not None else ""
