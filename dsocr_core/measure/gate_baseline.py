"""A recorded bench as the baseline of others: what it measured, and with which settings. Imports DuckDB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from dsocr_core.base.errors import one_line
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.base.untrusted import Refused, parse_json, read_bytes
from dsocr_core.measure.gate import Gated, Question, judged_processes, metrics_of
from dsocr_core.measure.processes import RATES, GateError, Measured, Work, engine_of
from dsocr_core.runs.speed import alike
from dsocr_core.runs.store import SEED_LOCATION, History
from dsocr_core.settings import EngineName, settings_of

FILE = "bench.json"
_FILE_LIMIT = 2**20
_NUMBERS = ("tokens", "batch", "pages", "repeat")
_SAME = ("size", "tokens", "batch", "pages")
"""Parts of a bench that decide its figures."""


@dataclass(frozen=True)
class Baseline:
    """Recorded benches of one commit, machine and setting, the one that was named first."""

    name: str
    engine: EngineName
    processes: tuple[Measured, ...]
    work: Work

    def check(self, work: Work) -> None:
        """Raises GateError for a bench of other work: its figures are none of this one's."""
        for name in _SAME:
            before, now = getattr(self.work, name), getattr(work, name)
            if before != now:
                raise GateError(f"the baseline's {name} is {before}, and {now} is given: leave --{name} out")


def find_baseline(history: History, name: str) -> str | None:
    """The run of that id, or the newest bench with that tag; None for neither. Raises HistoryError."""
    if name in history:
        return name
    tagged = history.runs(tags=[name])["run_id"]
    return next((run for run in tagged if FILE in history.file_names(run)), None)


def read_baseline(history: History, run_id: str, contended: bool = False) -> Baseline:
    """A recorded bench, and those like it. Raises DsocrError where it has none of our engines."""
    record, bench = history.record(run_id), read_bench(history, run_id)
    engine: EngineName | None = next((name for name in ("eager", "fast") if name in record.backends), None)
    if bench is None or engine is None or not engine_of(bench, engine).get("stages"):
        raise GateError(f"run {run_id} has no bench of our engines: make one with dsocr bench --save")
    settings = settings_of(record.settings)
    if (PROJECT_ROOT / settings.checkpoint).exists():  # recorded as in any clone
        settings = replace(settings, checkpoint=str(PROJECT_ROOT / settings.checkpoint))
    found = [Measured(run_id, bench, record.contended)]
    for other in alike(history, run_id, contended):
        its = read_bench(history, other) if other != run_id else None
        if its is not None and all(its[name] == bench[name] for name in _SAME):
            found.append(Measured(other, its, history.record(other).contended))
    width, height = bench["size"]
    work = Work(settings, engine, f"{width}x{height}", *(bench[name] for name in _NUMBERS))
    return Baseline(f"{run_id} ({(record.git_commit or 'no commit')[:8]})", engine, tuple(found), work)


def beside_baseline(location: str, baseline: Baseline, run_id: str, neutral: float) -> Gated:
    """Judge a run and those like it by a baseline, as a gate of one look. Raises DsocrError."""
    with History(location, also=[SEED_LOCATION]) as history:
        own, before = read_baseline(history, run_id), {each.run_id for each in baseline.processes}
        of_b = [each for each in own.processes if each.run_id not in before]  # they may be of one commit
        return judged_processes(
            history, baseline.processes, of_b,
            Question(metrics_of(of_b[0].bench, own.engine), neutral), (baseline.engine, own.engine),
            paired=False, names=(baseline.name, own.name), rounds=(len(of_b), len(of_b)),
        )  # fmt: skip


def read_bench(history: History, run_id: str) -> Mapping[str, Any] | None:
    """A run's bench.json, which may be anybody's; None where it has none. Raises GateError."""
    if FILE not in history.file_names(run_id):
        return None
    try:
        bench = parse_json(read_bytes(history.file(run_id, FILE), _FILE_LIMIT))
        for number in (*(bench[name] for name in _NUMBERS), *bench["size"]):
            if not isinstance(number, int) or number < 1:
                raise Refused(f"{number!r} is no count")
        for each in bench["engines"]:
            figures = [stage["milliseconds"]["median"] for stage in each["stages"].values()]
            figures += [each[key]["median"] for key in RATES.values() if each[key]]
            if not (isinstance(each["name"], str) and all(float(figure) > 0 for figure in figures)):
                raise Refused("its figures are none")
        if not isinstance(bench["device"]["name"], str) or len(bench["size"]) != 2:
            raise Refused("its device or size is none")
    except (Refused, LookupError, TypeError, ValueError, AttributeError) as error:
        raise GateError(f"{run_id}/{FILE}: not whole ({one_line(error)}); bench again") from error
    return bench
