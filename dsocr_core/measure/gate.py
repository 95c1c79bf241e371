"""The speed gate: benches before and after a change, judged metric by metric until the answer is clear.

The measurements are judged twice at most, half way and at the end. Intervals are so much wider that the whole
gate, with all looks and metrics, errs no more often than one interval.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal

from dsocr_core.base.errors import Cancelled
from dsocr_core.base.formatting import plural
from dsocr_core.base.paths import Temporary
from dsocr_core.measure.processes import (
    RATES,
    Code,
    GateError,
    Measured,
    Work,
    checked_out,
    has_changes,
    rounds,
    working_tree,
)
from dsocr_core.models.stages import INSIDE_PREFILL, Stage
from dsocr_core.runs import history as histories
from dsocr_core.runs.history import History
from dsocr_core.runs.speed import CONTENDED, compare_processes

log = logging.getLogger(__name__)

ERROR = 0.05
"""Probability that a gate calls equal code slower or faster, over all its looks and metrics."""
FEWEST_ROUNDS = 2
_SHARE = 0.05
"""Least share of a page's time with which a stage is judged unasked."""

_TIMES = ("median_a", "median_b", "ratio", "low", "high")
Verdict = Literal["faster", "slower", "within", "inconclusive"]


@dataclass(frozen=True)
class Plan:
    work: Work
    location: str
    before: str | None = None
    """Commit to compare with. None is HEAD, or HEAD's parent where nothing is uncommitted."""
    after: str | None = None
    """Commit to judge; None is the working tree."""
    most: int = 10
    """Most rounds."""
    on: tuple[str, ...] = ()
    neutral: float = 0.03
    contended: bool = False
    """True counts runs beside other programs."""
    pages: tuple[str, ...] = ()
    """Pages that both commits read, for parity."""


def looks(most: int) -> tuple[int, ...]:
    """Rounds after which the gate judges: half way and at the end."""
    return tuple(sorted({max(FEWEST_ROUNDS, -(-most // 2)), most}))


def error_per_interval(metrics: Sequence[str], most: int) -> float:
    """Error probability of one interval: their sum is ERROR (Bonferroni)."""
    return ERROR / (len(looks(most)) * len(metrics))


def metrics_of(plan: Plan, measured: Measured) -> tuple[str, ...]:
    """Metrics of a bench: the named ones, or its rates, prefill and each stage with a good share of the time.

    Decode is `tokens/s`. Of pages read together only the rates are judged: a stage's time includes the
    others' work. Raises GateError for an unknown name.
    """
    stages, there = measured.stages, (*RATES, *measured.stages)
    if unknown := [name for name in plan.on if name not in there]:
        raise GateError(f"--on: there is no '{unknown[0][:40]}' in this bench; there is {', '.join(there)}")
    if plan.on or plan.work.batch > 1:
        return tuple(dict.fromkeys(plan.on or RATES))
    nested = {stage.value for stage in INSIDE_PREFILL}
    page = sum(ms for name, ms in stages.items() if name not in nested)
    long = [name for name, ms in stages.items() if ms >= _SHARE * page and name != Stage.DECODE]
    return tuple(dict.fromkeys(["tokens/s", Stage.PREFILL.value, *long, "pages/s"]))


# --- judging --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Row:
    """One metric before and after, in milliseconds or as a rate. A change is a share of the metric itself."""

    metric: str
    before: float | None = None
    after: float | None = None
    change: float | None = None
    low: float | None = None
    high: float | None = None
    verdict: Verdict = "inconclusive"
    why: str = ""
    runs_a: int = 0
    runs_b: int = 0
    pages: int = 0


@dataclass(frozen=True)
class Judged:
    """Verdicts from the processes so far."""

    rows: tuple[Row, ...]
    contended: tuple[str, ...] = ()
    """Runs during which other programs used the machine."""

    def metrics(self, verdict: Verdict) -> list[str]:
        """Metrics with that verdict."""
        return [row.metric for row in self.rows if row.verdict == verdict]

    @property
    def verdict(self) -> Verdict:
        """Slower if one metric is; else inconclusive if one is; else faster if one is."""
        order: tuple[Verdict, ...] = ("slower", "inconclusive", "faster")
        return next((each for each in order if self.metrics(each)), "within")

    @property
    def answered(self) -> bool:
        """True where more processes cannot change the answer: all is known, or which stage is slower."""
        wholes = {Stage.PREFILL.value, "pages/s"} if len(self.rows) > 1 else set()
        return not self.metrics("inconclusive") or bool({*self.metrics("slower")} - wholes)


def _row(metric: str, found: dict[str, Any]) -> Row:
    """Row of a metric from the ratio of its times, B to A. The change of a rate is the inverse."""
    before, after, ratio, low, high = (found.pop(name) for name in _TIMES)
    if metric in RATES:
        before, after = (1000 / ms if ms else ms for ms in (before, after))
        ratio, low, high = (None if each is None else 1 / each for each in (ratio, high, low))
    change, low, high = (None if each is None else each - 1 for each in (ratio, low, high))
    return Row(metric, before, after, change, low, high, **found)


# --- the gate -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GateResult:
    before: str
    after: str
    plan: Plan
    judged: Judged
    runs_a: tuple[str, ...]
    runs_b: tuple[str, ...]
    machine: str
    seconds: float = 0.0
    pages_equal: bool | None = None
    """Whether the pages read alike; None where none were given."""


def hold(plan: Plan, cancel: threading.Event) -> GateResult:
    """Measure and judge. Raises DsocrError; or Cancelled, which tells what was recorded."""
    started, made, metrics = time.monotonic(), list[tuple[Measured, ...]](), tuple[str, ...]()
    before = plan.before or ("HEAD" if has_changes() else "HEAD~1")
    try:
        with ExitStack() as stack:
            after = stack.enter_context(checked_out(plan.after)) if plan.after else working_tree()
            sides = [stack.enter_context(checked_out(before)), after]
            equal = _parity(plan, sides, cancel) if plan.pages else None
            for round_ in rounds(sides, plan.work, plan.location, plan.most, cancel):
                made.append(round_)
                if len(made) == 1:  # a metric that is not there is named after the first round
                    metrics = metrics_of(plan, round_[0])
                if len(made) in looks(plan.most):
                    gated = _judged(plan, sides, made, metrics)
                    if gated.judged.answered:
                        break
    except Cancelled:
        count = sum(map(len, made))
        raise Cancelled(f"cancelled; {plural(count, 'bench', 'benches')} measured in full") from None
    return replace(gated, pages_equal=equal, seconds=time.monotonic() - started)


def _judged(
    plan: Plan, sides: Sequence[Code], made: Sequence[tuple[Measured, ...]], metrics: Sequence[str]
) -> GateResult:
    """Judge processes with the rule for all speeds, `runs.speed.compare_processes`. Raises HistoryError."""
    runs_a, runs_b = (tuple(each[place].run_id for each in made) for place in (0, 1))
    every, engine = [each for round_ in made for each in round_], plan.work.engine
    busy = {each.run_id for each in every if each.contended}
    rates = {each.run_id: each.rates for each in every}
    with History(plan.location, histories.SEED_LOCATION) as history:
        used = [runs for runs in zip(runs_a, runs_b, strict=True) if plan.contended or busy.isdisjoint(runs)]
        error = error_per_interval(metrics, plan.most)
        found = compare_processes(history, used, engine, rates, plan.neutral, error)
        record = history.record(runs_b[0])
    missing = CONTENDED if busy and not used else "not measured on both sides"
    found = found.set_index("stage")[[*_TIMES, "verdict", "why", "runs_a", "runs_b", "pages"]]
    of = found.astype(object).where(found.notna(), None).to_dict("index")
    rows = [_row(name, of[name]) if name in of else Row(name, why=missing) for name in metrics]
    judged = Judged(tuple(rows), tuple(sorted(busy)))
    machine = ", ".join(filter(None, (record.gpu or made[0][1].device, record.host)))
    return GateResult(sides[0].name, sides[1].name, plan, judged, runs_a, runs_b, machine)


def _parity(plan: Plan, sides: Sequence[Code], cancel: threading.Event) -> bool:
    """Read pages with both commits; tell whether they are equal."""
    options, read = ["--engine", plan.work.engine, *plan.work.setting_words(of_pages=True)], list[str]()
    with Temporary("gate") as folder:
        for place, code in enumerate(sides):
            log.info("parity: pages read by %s", code.name)
            read.append(f"{folder}/{place}")
            words = ["run", *plan.pages, "--json", f"--out={read[-1]}", "--history=", *options]
            ended, _, last = code.run(words, cancel)
            if ended == 2:
                raise GateError(f"gate: the pages read by {code.name}: {last}")
        ended, _, last = sides[-1].run(["compare", *read, "--json"], cancel)
    if ended not in (0, 1):
        raise GateError(f"gate: compare of the pages: {last}")
    return ended == 0
