"""The speed gate: benches before and after a change, judged metric by metric until they answer.

What processes measured is judged twice at most, half way and at the end. Every interval is so much wider that
the gate as a whole, all its looks and metrics, errs no oftener than one interval does.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from dsocr_core.base.errors import Cancelled, one_line
from dsocr_core.base.formatting import plural
from dsocr_core.measure.bench_report import Bench
from dsocr_core.measure.processes import (
    RATES,
    Code,
    GateError,
    Measured,
    Work,
    checked_out,
    rounds,
    working_tree,
)
from dsocr_core.models.family import inside_prefill
from dsocr_core.models.stages import Stage

if TYPE_CHECKING:
    import pandas as pd

    from dsocr_core.runs.history import History

log = logging.getLogger(__name__)

ERROR = 0.05
"""Probability that a gate calls one code slower, or faster: of all its looks and metrics together."""
FEWEST_ROUNDS = 2
_SHARE = 0.05
"""Least share of a page's time of a stage that is judged without being named."""

Verdict = Literal["faster", "slower", "within", "inconclusive"]


def looks(most: int) -> tuple[int, ...]:
    """Rounds after which is judged: half way and at the end."""
    return tuple(sorted({max(FEWEST_ROUNDS, -(-most // 2)), most}))


def metrics_of(bench: Bench, engine: str, named: Sequence[str] = ()) -> tuple[str, ...]:
    """Metrics of a bench: those that are named, else its rates, prefill and each stage that takes a while.

    Decode is `tokens/s`. Of pages read together only the rates are: a stage's time holds the others' work.
    Raises GateError for a name there is not.
    """
    stages = {name: each.milliseconds.median for name, each in bench.engine(engine).stages.items()}
    there = (*RATES, *stages)
    if unknown := [name for name in named if name not in there]:
        raise GateError(f"--on: there is no '{unknown[0][:40]}' in this bench; there is {', '.join(there)}")
    if named:
        return tuple(dict.fromkeys(named))
    if bench.batch > 1:
        return tuple(RATES)
    nested = {stage.value for stage in inside_prefill()}
    page = sum(ms for name, ms in stages.items() if name not in nested)
    long = [name for name, ms in stages.items() if ms >= _SHARE * page and name != Stage.DECODE]
    return tuple(dict.fromkeys(["tokens/s", Stage.PREFILL.value, *long, "pages/s"]))


# --- judging --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """Question to the processes: which metrics, and beyond which band they differ."""

    metrics: tuple[str, ...]
    neutral: float
    looks: int = 1
    contended: bool = False
    """Count runs beside other programs, too."""

    @property
    def error(self) -> float:
        """Give that of one interval: each may err, so their errors are added up."""
        return ERROR / (self.looks * len(self.metrics))


@dataclass(frozen=True)
class Row:
    """One metric. Times are milliseconds; the ratio is of B's time to A's, for rates too."""

    metric: str
    a_ms: float | None
    b_ms: float | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: Verdict
    why: str
    runs_a: int
    runs_b: int
    pages: int


@dataclass(frozen=True)
class Judged:
    """Outcome of the processes so far."""

    rows: tuple[Row, ...]
    contended: tuple[str, ...] = ()
    """Runs beside which other programs took the machine."""

    def metrics(self, verdict: Verdict) -> list[str]:
        """Those with that outcome."""
        return [row.metric for row in self.rows if row.verdict == verdict]

    @property
    def verdict(self) -> Verdict:
        """Slower if one is; else inconclusive if one is; else faster if one is."""
        order: tuple[Verdict, ...] = ("slower", "inconclusive", "faster")
        return next((each for each in order if self.metrics(each)), "within")

    @property
    def answered(self) -> bool:
        """Tell whether more processes would change nothing: all is known, or which stage is slower."""
        wholes = {Stage.PREFILL.value, "pages/s"} if len(self.rows) > 1 else set()
        return not self.metrics("inconclusive") or bool({*self.metrics("slower")} - wholes)


def judge(
    history: History,
    rounds: Sequence[tuple[str, str]],
    engine: str,
    rates: Mapping[str, Mapping[str, float]],
    question: Question,
    busy: set[str],
) -> Judged:
    """Judge processes by the rule of all speeds, `runs.speed.compare_processes`.

    `rounds` are runs of both sides that followed each other; `busy` names those beside which other programs
    took the machine. Raises HistoryError.
    """
    from dsocr_core.runs.speed import CONTENDED, compare_processes

    used = [runs for runs in rounds if question.contended or busy.isdisjoint(runs)]
    found = compare_processes(history, used, engine, rates, question.neutral, question.error)
    missing = CONTENDED if busy and not used else "not measured on both sides"
    return Judged(tuple(_rows(found, question.metrics, missing)), tuple(sorted(busy)))


def _rows(found: pd.DataFrame, metrics: Sequence[str], missing: str) -> Iterator[Row]:
    by_stage = {row["stage"]: row for row in found.to_dict("records")}
    for metric in metrics:
        if (row := by_stage.get(metric)) is None:
            yield Row(metric, None, None, None, None, None, "inconclusive", missing, 0, 0, 0)
            continue
        ratio, low, high = (
            row[name] if row[name] == row[name] else None for name in ("ratio", "low", "high")
        )
        yield Row(
            metric, row["median_a"], row["median_b"], ratio, low, high, row["verdict"], row["why"],
            row["runs_a"], row["runs_b"], row["pages"],
        )  # fmt: skip


# --- the gate -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Plan:
    """Plan of a gate: `before` names a commit."""

    work: Work
    location: str
    before: str
    after: str | None = None
    """A commit; None is the working tree."""
    most: int = 10
    """Rounds at most."""
    on: tuple[str, ...] = ()
    neutral: float = 0.03
    contended: bool = False
    pages: tuple[str, ...] = ()
    """Pages to read too, or a recorded run to read again."""
    again: bool = False
    """Pages are a recorded run."""


@dataclass(frozen=True)
class Parity:
    """Outcome of the pages that were read: the command, and whether it was content."""

    command: str
    equal: bool


@dataclass(frozen=True)
class Gated:
    """Outcome of a gate."""

    before: str
    after: str
    engine: str
    neutral: float
    judged: Judged
    runs_a: tuple[str, ...]
    runs_b: tuple[str, ...]
    rounds: int
    most: int
    machine: str
    seconds: float
    parity: Parity | None = None


def hold(plan: Plan, cancel: threading.Event, say: Callable[[str], None] = log.info) -> Gated:
    """Measure and judge. Raises DsocrError, and Cancelled, which says what is recorded."""
    started, made = time.monotonic(), list[tuple[Measured, ...]]()
    try:
        with ExitStack() as stack:
            after = stack.enter_context(checked_out(plan.after)) if plan.after else working_tree()
            sides = [stack.enter_context(checked_out(plan.before)), after]
            parity = _parity(plan, sides, cancel, say) if plan.pages else None
            at = looks(plan.most)
            for round_ in rounds(sides, plan.work, plan.location, plan.most, cancel, say):
                made.append(round_)
                if len(made) == 1:  # what cannot be judged is named before the rest is measured
                    _read_back(plan.location, sides, round_)
                    metrics = metrics_of(made[0][0].bench, plan.work.engine, plan.on)
                    question = Question(metrics, plan.neutral, len(at), plan.contended)
                if len(made) in at:
                    gated = _judged(plan, sides, made, question)
                    if gated.judged.answered:
                        break
    except Cancelled:
        count = sum(map(len, made))
        raise Cancelled(f"cancelled; {plural(count, 'bench', 'benches')} measured in full") from None
    return replace(gated, parity=parity, seconds=time.monotonic() - started)


def _read_back(location: str, sides: Sequence[Code], measured: Sequence[Measured]) -> None:
    """Hold that this code reads what each side's has recorded, as forms change. Raises GateError."""
    from dsocr_core.runs.history import History, HistoryError

    with History(location) as history:
        for code, each in zip(sides, measured, strict=True):
            try:
                history.record(each.run_id)
            except HistoryError as error:
                raise GateError(
                    f"gate: what {code.name} records is not read here ({one_line(error)}): name a commit "
                    "whose runs this code reads"
                ) from error


def _judged(
    plan: Plan, sides: Sequence[Code], made: Sequence[tuple[Measured, ...]], question: Question
) -> Gated:
    """Judge processes, and say of what they are. Raises HistoryError."""
    from dsocr_core.runs.history import SEED_LOCATION, History

    of_a, of_b = ([each[place] for each in made] for place in (0, 1))
    runs_a, runs_b = (tuple(each.run_id for each in side) for side in (of_a, of_b))
    engine = plan.work.engine
    rates = {each.run_id: each.rates(engine) for each in (*of_a, *of_b)}
    busy = {each.run_id for each in (*of_a, *of_b) if each.contended}
    with History(plan.location, SEED_LOCATION) as history:
        judged = judge(history, [*zip(runs_a, runs_b, strict=True)], engine, rates, question, busy)
        record = history.record(runs_b[0])
    machine = ", ".join(filter(None, (record.gpu or of_b[0].bench.device.name, record.host)))
    names = (sides[0].name, sides[1].name)
    return Gated(
        *names, engine, question.neutral, judged, runs_a, runs_b, len(made), plan.most, machine, seconds=0.0
    )


def _parity(plan: Plan, sides: Sequence[Code], cancel: threading.Event, say: Callable[[str], None]) -> Parity:
    """Read pages with both commits, or a recorded run again."""
    from pathlib import Path

    from dsocr_core.base.temporary import Temporary

    engine, settings = ["--engine", plan.work.engine], plan.work.setting_words(of_pages=True)
    with Temporary("gate") as folder:
        if plan.again:
            places = [f"--history={plan.location}", f"--out={folder}/out"]
            words = ["compare", *plan.pages, "--again", "--json", *places]
        else:
            read = []
            for place, code in enumerate(sides):
                say(f"parity: pages read by {code.name}")
                words = ["run", *plan.pages, "--json", "--save", f"--history={folder}/{place}",
                         f"--out={folder}/out-{place}", *engine, *settings]  # fmt: skip
                ended, _, last = code.run(words, cancel)
                if ended == 2 or not (found := list(Path(folder, str(place), "runs").glob("*"))):
                    raise GateError(f"gate: the pages read by {code.name}: {last}")
                read.append(str(found[0]))
            words = ["compare", *read, "--json"]
        say(f"parity: {words[0]}")
        ended, _, last = sides[-1].run(words, cancel)
    if ended not in (0, 1):
        raise GateError(f"gate: {words[0]} of the pages: {last}")
    shown = " ".join(["dsocr", words[0], *plan.pages, *["--again"] * plan.again])
    return Parity(shown, ended == 0)
