"""The pipelines that all browser tabs share, and what is known about a page.

The only file of the app that calls `dsocr_core.pipeline`. No Streamlit here.
"""

from __future__ import annotations

import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

from dsocr_core.errors import DsocrError
from dsocr_core.records import CancelToken, Observer, OcrRequest, Road
from dsocr_core.results import Comparison, KnownResults
from dsocr_core.saved import save_comparison
from dsocr_core.settings import Settings
from dsocr_core.threads import wait_politely
from dsocr_core.trace_records import TraceSummary
from pages.widgets.job import BOTH, Job, PipelineLike, settle_memory
from pages.widgets.trace_job import TraceChoice, TraceJob

if TYPE_CHECKING:
    from dsocr_core.pipeline import Pipeline

log = logging.getLogger(__name__)

_KEPT_PIPELINES = 2
_KEPT_COMPARISONS = 32


class LazyPipeline:
    """The real pipeline, made at the first run: recorded results are shown before torch is loaded."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._results = KnownResults(settings)
        self._making = threading.Lock()
        self._pipeline: Pipeline | None = None

    def compare(
        self,
        request: OcrRequest,
        roads: Sequence[Road] = BOTH,
        observers: dict[Road, Observer] | None = None,
        cancel: CancelToken | None = None,
        on_wait: Callable[[str], None] | None = None,
    ) -> Comparison:
        return self._made().compare(request, roads, observers, cancel, on_wait)

    def _made(self) -> Pipeline:
        with self._making:
            if self._pipeline is None:
                wait_politely()
                # Importing torch takes a second or two.
                from dsocr_core.pipeline import Pipeline

                self._pipeline = Pipeline(self._settings)
                settle_memory()
            return self._pipeline

    def trace(
        self,
        request: OcrRequest,
        choice: TraceChoice,
        progress: Callable[[str, int, int], None],
        cancel: CancelToken,
        on_wait: Callable[[str], None],
    ) -> TraceSummary:
        """Trace a page and keep the summary in the history. Raises DsocrError or Cancelled."""
        pipeline = self._made()
        from dsocr_core.trace.keep import keep
        from dsocr_core.trace.run import TracePlan, trace_page

        plan = TracePlan(choice.a, choice.b, choice.steps)
        summary = trace_page(self._settings, request, plan, progress, cancel, on_wait, pipeline)
        if self._settings.history:
            try:
                keep(self._settings, request, plan, summary)
            except DsocrError as error:  # what was found is worth more than its record
                log.warning("the trace was not saved: %s", error)
        return summary

    def keep(self, comparison: Comparison, cancelled: bool = False) -> None:
        save_comparison(self._settings, comparison, cancelled)

    def recorded(self, request: OcrRequest, roads: Sequence[Road] = BOTH) -> Comparison | None:
        return self._results.find(request, roads)

    def close(self) -> None:
        with self._making:
            if self._pipeline is not None:
                self._pipeline.close()


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
    # A road that just failed shows its failure, not an older success.
    taken = tuple(
        road
        for road in BOTH
        if getattr(recorded, road) and not getattr(fresh, road) and road not in fresh.errors
    )
    return replace(fresh, **{road: getattr(recorded, road) for road in taken}), taken


class Runner:
    """The pipelines of this process, one per settings, shared by every browser tab."""

    def __init__(self, make: Callable[[Settings], PipelineLike] = LazyPipeline) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._pipelines: OrderedDict[str, PipelineLike] = OrderedDict()
        self._jobs: dict[str, list[Job | TraceJob]] = {}
        self._found: OrderedDict[str, tuple[int, Comparison]] = OrderedDict()
        self._merged: OrderedDict[
            str, tuple[Comparison | None, Comparison | None, Comparison | None, tuple[Road, ...]]
        ] = OrderedDict()

    def start(self, settings: Settings, request: OcrRequest, roads: tuple[Road, ...] = BOTH) -> Job:
        """Begin a run. Raises DsocrError when the settings cannot make a pipeline."""
        pipeline = self.pipeline(settings)
        job = Job(pipeline, run_key(settings, request), request, roads)
        self._begin(job, settings)
        return job

    def start_trace(self, settings: Settings, request: OcrRequest, choice: TraceChoice) -> TraceJob:
        """Begin a trace of one page. Raises DsocrError when the settings cannot make a pipeline."""
        job = TraceJob(self.pipeline(settings), run_key(settings, request), request, choice)
        self._begin(job, settings)
        return job

    def _begin(self, job: Job | TraceJob, settings: Settings) -> None:
        with self._lock:
            jobs = self._jobs.setdefault(settings_key(settings), [])
            jobs[:] = [*(other for other in jobs if other.running), job]
        job.start()

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
            ended = self._last_ended(key, settings)
            since, complete = self._found.get(key, (0, None))
        if complete is not None and since == ended:
            return complete
        pipeline = self.pipeline(settings)
        found = pipeline.recorded(request, BOTH)
        if found is not None:
            with self._lock:
                self._found[key] = ended, found
                while len(self._found) > _KEPT_COMPARISONS:
                    self._found.popitem(last=False)
        for road in () if found else BOTH:
            found = found or pipeline.recorded(request, (road,))
        return found

    def _last_ended(self, key: str, settings: Settings) -> int:
        """The number of the last run of this page that is over; what was found before it may be old."""
        jobs = self._jobs.get(settings_key(settings), ())
        runs = (job for job in jobs if isinstance(job, Job))
        return max((job.number for job in runs if job.key == key and not job.running), default=0)

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
