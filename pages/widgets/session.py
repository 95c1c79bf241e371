"""Runs of the app: a worker thread a run, looked at by pages, and the pipelines they share.

The only file of the app that calls `dsocr_core.pipeline`. No Streamlit here: worker threads must not
touch it, and a page only reads snapshots.
"""

from __future__ import annotations

import gc
import itertools
import json
import logging
import threading
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal, Protocol

from dsocr_core.errors import Cancelled, DsocrError
from dsocr_core.records import CancelToken, Observer, OcrRequest, Road
from dsocr_core.settings import Settings
from dsocr_core.stages import Stage
from dsocr_core.threads import wait_politely

if TYPE_CHECKING:
    from dsocr_core.pipeline import Comparison

log = logging.getLogger(__name__)

_settled: weakref.WeakSet[PipelineLike] = weakref.WeakSet()
"""Pipelines whose model has been loaded and counted out."""

JobState = Literal["running", "done", "failed", "cancelled"]
RoadState = Literal["queued", "waiting", "loading", "running", "done", "failed"]
BOTH: tuple[Road, ...] = ("ours", "vendor")
_TAIL_CHARACTERS = 4000
_KEPT_PIPELINES = 2
_KEPT_COMPARISONS = 32


class PipelineLike(Protocol):
    """What a run needs of `dsocr_core.pipeline.Pipeline`."""

    def compare(
        self,
        request: OcrRequest,
        roads: Sequence[Road] = ...,
        observers: dict[Road, Observer] | None = ...,
        cancel: CancelToken | None = ...,
        on_wait: Callable[[str], None] | None = ...,
    ) -> Comparison: ...

    def recorded(self, request: OcrRequest, roads: Sequence[Road] = ...) -> Comparison | None: ...

    def close(self) -> None: ...


def make_pipeline(settings: Settings) -> PipelineLike:
    """The real pipeline. The first call imports torch, which takes a second or two."""
    wait_politely()

    from dsocr_core.pipeline import Pipeline

    settle_memory()
    return Pipeline(settings)


def settle_memory() -> None:
    """Take what is loaded by now, which stays for good, out of the collector's count.

    Streamlit collects all generations after every script run; with torch and a model loaded that stops
    every thread for a tenth of a second, decode steps included.
    """
    gc.collect()
    gc.freeze()


# --- what a page sees of a run --------------------------------------------------------------------


@dataclass(frozen=True)
class StageView:
    """A stage that has begun; `milliseconds` is the time so far while it runs."""

    stage: Stage
    milliseconds: float
    running: bool


@dataclass(frozen=True)
class RoadView:
    road: Road
    state: RoadState
    seconds: float
    """Since the road began; 0 before."""
    stages: tuple[StageView, ...]
    text_tail: str
    characters: int
    waiting_for: str = ""
    error: str = ""


@dataclass(frozen=True)
class JobView:
    state: JobState
    seconds: float
    cancelling: bool
    roads: tuple[RoadView, ...]
    error: str = ""


class _RoadWatch:
    """The Observer of one road; its methods run on the job's thread."""

    def __init__(self, road: Road, lock: threading.Lock) -> None:
        self.road, self._lock = road, lock
        self.began: float | None = None
        self.ended: float | None = None
        self.waiting_for = ""
        self.error = ""
        self._spent_ms: dict[Stage, float] = {}
        self._open: dict[Stage, float] = {}
        self._text: list[str] = []
        self._characters = 0

    def begin(self) -> None:
        with self._lock:
            self.began = self.began or time.monotonic()

    def wait_for(self, holder: str) -> None:
        with self._lock:
            self.waiting_for = holder

    def end(self, error: str = "") -> None:
        with self._lock:
            self.ended, self.error = time.monotonic(), error
            self._open.clear()

    def stage_started(self, stage: Stage) -> None:
        with self._lock:
            self.waiting_for = ""
            self._spent_ms.setdefault(stage, 0.0)
            self._open[stage] = time.monotonic()

    def stage_ended(self, stage: Stage, milliseconds: float) -> None:
        with self._lock:
            self._open.pop(stage, None)
            self._spent_ms[stage] = self._spent_ms.get(stage, 0.0) + milliseconds

    def text(self, delta: str) -> None:
        with self._lock:
            self.waiting_for = ""
            self._text.append(delta)
            self._characters += len(delta)

    def view(self, now: float) -> RoadView:
        with self._lock:
            stages = tuple(
                StageView(
                    stage,
                    self._spent_ms[stage] + (now - self._open[stage]) * 1000
                    if stage in self._open
                    else self._spent_ms[stage],
                    stage in self._open,
                )
                for stage in Stage
                if stage in self._spent_ms
            )
            state: RoadState = "queued"
            if self.ended is not None:
                state = "failed" if self.error else "done"
            elif self.waiting_for:
                state = "waiting"
            elif self.began is not None:
                state = "running" if stages or self._characters else "loading"
            tail = "".join(self._text[-_TAIL_CHARACTERS:])[-_TAIL_CHARACTERS:]
            seconds = 0.0 if self.began is None else (self.ended or now) - self.began
            return RoadView(
                self.road, state, seconds, stages, tail, self._characters, self.waiting_for, self.error
            )


class Job:
    """One run on a thread of its own. Pages call `view`, `cancel` and, once it is over, `comparison`."""

    _numbers = itertools.count(1)

    def __init__(
        self, pipeline: PipelineLike, key: str, request: OcrRequest, roads: tuple[Road, ...]
    ) -> None:
        self.number = next(self._numbers)
        self.key, self.request, self.roads = key, request, roads
        self.comparison: Comparison | None = None
        self._pipeline = pipeline
        self._state: JobState = "running"
        self._error = ""
        self._lock = threading.Lock()
        self._cancel = threading.Event()
        self._began = time.monotonic()
        self._ended: float | None = None
        self._watches: dict[Road, _RoadWatch] = {road: _RoadWatch(road, self._lock) for road in roads}
        self._thread = threading.Thread(target=self._run, name=f"run-{self.number}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_s: float | None = None) -> None:
        self._thread.join(timeout_s)

    def cancel(self) -> None:
        """Asks the run to stop; it does so between tokens, or by stopping the vendor's worker."""
        self._cancel.set()

    @property
    def running(self) -> bool:
        return self._state == "running"

    def view(self) -> JobView:
        """A snapshot, safe from any thread."""
        now = time.monotonic()
        roads = tuple(watch.view(now) for watch in self._watches.values())
        cancelling = self._cancel.is_set() and self.running
        return JobView(self._state, (self._ended or now) - self._began, cancelling, roads, self._error)

    def _run(self) -> None:
        try:
            state, error = self._run_roads(), ""
        except Cancelled:
            state, error = "cancelled", ""
        except DsocrError as problem:
            state, error = "failed", str(problem)
        except Exception as problem:
            log.exception("the run failed unexpectedly")
            state, error = "failed", f"unexpected {type(problem).__name__}; the terminal has the details"
        with self._lock:
            self._ended = time.monotonic()
            self._state, self._error = state, error

    def _run_roads(self) -> JobState:
        """The roads one after the other, so that the first one's result is known while the next runs."""
        for road, watch in self._watches.items():
            watch.begin()
            part = self._pipeline.compare(self.request, (road,), {road: watch}, self._cancel, watch.wait_for)
            watch.end(part.errors.get(road, ""))
            if self._pipeline not in _settled:
                _settled.add(self._pipeline)
                settle_memory()  # the model is loaded now
            with self._lock:
                self.comparison = _joined(self.comparison, part)
        return "failed" if self.comparison and self.comparison.errors else "done"


def _joined(first: Comparison | None, second: Comparison) -> Comparison:
    """One comparison of the roads of two."""
    if first is None:
        return second
    return replace(
        second,
        ours=second.ours or first.ours,
        vendor=second.vendor or first.vendor,
        errors={**first.errors, **second.errors},
    )


@dataclass(frozen=True)
class Known:
    """What is known about one page: this tab's run, completed by what was recorded before."""

    comparison: Comparison | None = None
    recorded: tuple[Road, ...] = ()
    """Roads whose result was found again instead of run."""
    recorded_at: str = ""
    problems: tuple[str, ...] = ()
    cancelled: bool = False


def merged(
    recorded: Comparison | None, fresh: Comparison | None
) -> tuple[Comparison | None, tuple[Road, ...]]:
    """`fresh`, with the results it lacks taken from `recorded`; and the roads that were taken."""
    if recorded is None or fresh is None:
        found = tuple(road for road in BOTH if recorded is not None and getattr(recorded, road))
        return fresh or recorded, () if fresh else found
    taken = tuple(road for road in BOTH if getattr(recorded, road) and not getattr(fresh, road))
    return replace(fresh, **{road: getattr(recorded, road) for road in taken}), taken


class Runner:
    """The pipelines of this process, one per settings, shared by every browser tab."""

    def __init__(self, make: Callable[[Settings], PipelineLike] = make_pipeline) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._pipelines: OrderedDict[str, PipelineLike] = OrderedDict()
        self._jobs: dict[str, list[Job]] = {}
        self._found: OrderedDict[str, Comparison] = OrderedDict()
        self._merged: OrderedDict[
            str, tuple[Comparison | None, Comparison | None, Comparison | None, tuple[Road, ...]]
        ] = OrderedDict()

    def start(self, settings: Settings, request: OcrRequest, roads: tuple[Road, ...] = BOTH) -> Job:
        """Begin a run. Raises DsocrError when the settings cannot make a pipeline."""
        pipeline = self.pipeline(settings)
        job = Job(pipeline, run_key(settings, request), request, roads)
        with self._lock:
            jobs = self._jobs.setdefault(settings_key(settings), [])
            jobs[:] = [*(other for other in jobs if other.running), job]
        job.start()
        return job

    def known(self, settings: Settings, request: OcrRequest, job: Job | None) -> Known:
        """What is known about a page. `job` is this tab's last run, whatever it was about."""
        key = run_key(settings, request)
        mine = job if job is not None and job.key == key else None
        fresh = mine.comparison if mine else None
        try:
            recorded = self._recorded(key, settings, request)
        except DsocrError as error:
            return Known(fresh, problems=(str(error),))
        with self._lock:
            # The same object as last time if nothing changed: its parity report is computed once.
            before = self._merged.get(key)
            if before is None or before[0] is not recorded or before[1] is not fresh:
                self._merged[key] = (recorded, fresh, *merged(recorded, fresh))
                while len(self._merged) > _KEPT_COMPARISONS:
                    self._merged.popitem(last=False)
            _, _, comparison, taken = self._merged[key]
        problems: list[str] = []
        if mine is not None and not mine.running:
            view = mine.view()
            problems += [view.error] if view.error else []
            problems += [f"{road}: {text}" for road, text in (fresh.errors if fresh else {}).items()]
        return Known(
            comparison,
            taken,
            (recorded.recorded_at or "") if recorded is not None and taken else "",
            tuple(problems),
            mine is not None and mine.view().state == "cancelled",
        )

    def _recorded(self, key: str, settings: Settings, request: OcrRequest) -> Comparison | None:
        """What earlier runs of the same page and settings gave, of as many roads as there are."""
        with self._lock:
            complete = self._found.get(key)
        if complete is not None:
            return complete
        pipeline = self.pipeline(settings)
        found = pipeline.recorded(request, BOTH)
        if found is not None:
            with self._lock:
                self._found[key] = found
                while len(self._found) > _KEPT_COMPARISONS:
                    self._found.popitem(last=False)
        for road in () if found else BOTH:
            found = found or pipeline.recorded(request, (road,))
        return found

    def pipeline(self, settings: Settings) -> PipelineLike:
        """The pipeline of these settings; the least used idle ones are closed."""
        key = settings_key(settings)
        with self._lock:
            if key not in self._pipelines:
                self._pipelines[key] = self._make(settings)
            self._pipelines.move_to_end(key)
            idle = [
                other
                for other in self._pipelines
                if other != key and not any(job.running for job in self._jobs.get(other, ()))
            ]
            surplus = [self._pipelines.pop(other) for other in idle[: -(_KEPT_PIPELINES - 1)]]
            pipeline = self._pipelines[key]
        for closing in surplus:
            closing.close()
        return pipeline


def settings_key(settings: Settings) -> str:
    """A name for what a pipeline depends on; how a page is asked for is not part of it."""
    facts = asdict(settings)
    for name in ("preset", "prompt", "infer"):
        facts.pop(name, None)
    return json.dumps(facts, sort_keys=True, default=str)


def run_key(settings: Settings, request: OcrRequest) -> str:
    """A name for one page under one set of settings."""
    return json.dumps([settings_key(settings), asdict(request)], sort_keys=True, default=str)
