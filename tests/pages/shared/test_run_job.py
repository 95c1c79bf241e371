"""Runs in threads: stages while they happen, cancel, errors, recorded results. No sleeps: gates."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from dsocr_core.base import error_log
from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.models.stages import Stage
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import OcrRequest, Side
from dsocr_core.settings import Settings, VendorSettings
from pages.widgets.shared.run_job import ReadJob
from pages.widgets.shared.runner import Runner
from tests.support.fabricated_results import BACKENDS, result_of

REQUEST = OcrRequest(Path("page.png"), "small")
LONG_S = 60


class GatedPipeline:
    """Stops in decode until its gate opens or the run is cancelled."""

    def __init__(self) -> None:
        self.gate, self.reached = threading.Event(), threading.Event()
        self.fail: dict[Side, Exception] = {}
        self.recorded_sides: tuple[Side, ...] = ()
        self.closed = False
        self.stop_at: Side | None = None
        self.stored: list[Comparison] = []
        self.stored_cancelled: list[bool] = []
        self.not_recorded = ""

    def check(self, sides: Sequence[Side]) -> None:
        """Everything can run."""

    def compare(
        self, request: OcrRequest, sides: Sequence[Side] = (), observers=None, cancel=None,
        on_wait: Callable[[str], None] | None = None,
    ) -> Comparison:  # fmt: skip
        (side,) = sides
        watch = observers[side]
        watch.stage_started(Stage.PREFILL)
        watch.stage_ended(Stage.PREFILL, 20.0)
        watch.stage_started(Stage.DECODE)
        watch.text("read ")
        if side == self.stop_at:
            cancel.set()
        self.reached.set()
        self._stop(cancel)
        problem = self.fail.get(side)
        if isinstance(problem, DsocrError):
            return Comparison(request, errors={side: str(problem)})
        if problem:
            raise problem
        watch.text("text")
        watch.stage_ended(Stage.DECODE, 30.0)
        result = result_of(BACKENDS[side], request, [], (10, 10))
        return Comparison(request, **{side: result})

    def _stop(self, cancel: threading.Event) -> None:
        while not self.gate.wait(0.005) or cancel.is_set():
            if cancel.is_set():
                raise Cancelled

    def keep(self, comparison: Comparison, cancelled: bool = False) -> str:
        self.stored.append(comparison)
        self.stored_cancelled.append(cancelled)
        return self.not_recorded

    def recorded(self, request: OcrRequest, sides: Sequence[Side] = ()) -> Comparison | None:
        if not sides or not set(sides) <= set(self.recorded_sides):
            return None
        results = {side: result_of(BACKENDS[side], request, [], (10, 10)) for side in sides}
        return Comparison(request, **results, recorded_at="2026-11-21T09:30:00+00:00")

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def pipeline() -> GatedPipeline:
    return GatedPipeline()


@pytest.fixture
def runner(pipeline: GatedPipeline) -> Runner:
    return Runner(lambda settings: pipeline)


def finished(job: ReadJob) -> ReadJob:
    job.join(LONG_S)
    assert not job.running
    return job


def test_stages_and_text_are_read_while_they_happen(runner: Runner, pipeline: GatedPipeline) -> None:
    job = runner.start(Settings(), REQUEST)
    assert pipeline.reached.wait(LONG_S)
    a, b = job.side_views()
    assert (a.state, b.state) == ("running", "queued")
    prefill, decode = a.stages
    assert (prefill.stage, prefill.milliseconds, prefill.running) == (Stage.PREFILL, 20.0, False)
    assert decode.stage == Stage.DECODE
    assert decode.running
    assert (a.text_tail, a.characters) == ("read ", 5)
    pipeline.gate.set()
    views = finished(job).side_views()
    assert job.view().state == "done"
    assert [side.state for side in views] == ["done", "done"]
    assert views[0].text_tail == "read text"
    (stored,) = pipeline.stored  # one run for both backends, so that it has their parity
    assert pipeline.stored_cancelled == [False]
    assert stored.a and stored.b and stored is job.comparison
    assert job.comparison.a is not None
    assert job.comparison.b is not None


def test_cancel_ends_a_run_that_would_wait_forever(runner: Runner, pipeline: GatedPipeline) -> None:
    job = runner.start(Settings(), REQUEST)
    assert pipeline.reached.wait(LONG_S)
    job.cancel()
    assert job.view().cancelling or not job.running
    job.join(LONG_S)
    assert job.view().state == "cancelled"
    found = runner.page_results(Settings(), REQUEST, job)
    assert found.cancelled
    assert found.problems == ()


def test_a_side_that_had_finished_before_the_cancel_is_recorded(
    runner: Runner, pipeline: GatedPipeline
) -> None:
    pipeline.gate.set()
    pipeline.stop_at = "b"
    job = finished(runner.start(Settings(), REQUEST))
    assert job.view().state == "cancelled"
    (stored,) = pipeline.stored
    assert pipeline.stored_cancelled == [True]
    assert stored.a is not None and stored.b is None and stored.errors == {}
    pipeline.stop_at = "a"
    assert finished(runner.start(Settings(), REQUEST)).view().state == "cancelled"
    assert len(pipeline.stored) == 1  # nothing was finished


def test_what_a_cancelled_side_had_written_stays_readable(runner: Runner, pipeline: GatedPipeline) -> None:
    pipeline.gate.set()
    pipeline.stop_at = "b"
    job = finished(runner.start(Settings(), REQUEST))
    assert job.view().state == "cancelled"
    assert job.partial_texts() == {"b": "read "}  # A had finished: its result is whole
    assert [side.tokens for side in job.side_views()] == [2, 1]


def test_one_side_failing_leaves_the_other_and_the_next_run_works(
    runner: Runner, pipeline: GatedPipeline
) -> None:
    pipeline.gate.set()
    pipeline.fail["b"] = DsocrError("page.png: the vendor's worker ended (signal 9); run again")
    job = finished(runner.start(Settings(), REQUEST))
    found = runner.page_results(Settings(), REQUEST, job)
    assert job.view().state == "failed"
    said = "page.png: the vendor's worker ended (signal 9); run again"
    assert found.problems == (f"B: vendor, published code: {said}",)
    assert found.comparison.a is not None
    assert found.comparison.b is None
    pipeline.fail.clear()
    job = finished(runner.start(Settings(), REQUEST))
    found = runner.page_results(Settings(), REQUEST, job)
    assert job.view().state == "done"
    assert found.problems == ()
    assert found.comparison.b is not None


def test_a_closed_tab_cancels_its_run(runner: Runner, pipeline: GatedPipeline) -> None:
    job = runner.start(Settings(), REQUEST, wanted=lambda: not pipeline.reached.is_set())
    assert finished(job).view().state == "cancelled"


def test_a_connection_that_is_back_at_once_costs_no_run(runner: Runner, pipeline: GatedPipeline) -> None:
    answers = iter([True, False, True, False])
    asked = threading.Event()

    def wanted() -> bool:
        answer = next(answers, None)
        if answer is None:
            asked.set()
        return answer is not False

    job = runner.start(Settings(), REQUEST, wanted=wanted)
    assert asked.wait(LONG_S) and job.running and not job.view().cancelling
    pipeline.gate.set()
    assert finished(job).view().state == "done"


def test_an_unforeseen_error_is_one_line_without_details(
    runner: Runner, pipeline: GatedPipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(error_log, "LOG_FILE", tmp_path / "errors.log")
    pipeline.gate.set()
    pipeline.fail["a"] = ZeroDivisionError("secret path")
    job = finished(runner.start(Settings(), REQUEST))
    said = r"unforeseen ZeroDivisionError, number [0-9a-f]{8}: errors\.log has the rest"
    assert re.fullmatch(said, job.view().error)
    assert "secret path" in (tmp_path / "errors.log").read_text()


def test_recorded_results_complete_a_run_and_are_named(runner: Runner, pipeline: GatedPipeline) -> None:
    pipeline.gate.set()
    pipeline.recorded_sides = ("a", "b")
    first = runner.page_results(Settings(), REQUEST, None)
    assert first.recorded == ("a", "b")
    assert first.recorded_at == "2026-11-21T09:30:00+00:00"
    job = finished(runner.start(Settings(), REQUEST, ("a",)))
    found = runner.page_results(Settings(), REQUEST, job)
    assert found.recorded == ("b",)
    assert found.comparison.a is job.comparison.a
    other = OcrRequest(Path("other.png"), "small")
    assert runner.page_results(Settings(), other, job).recorded == ("a", "b")


def test_only_the_last_idle_pipelines_stay_open() -> None:
    made: list[GatedPipeline] = []

    def make(settings: Settings) -> GatedPipeline:
        made.append(GatedPipeline())
        return made[-1]

    runner = Runner(make)
    first = Settings(attention="eager")
    job = runner.start(first, REQUEST)
    for timeout in (1.0, 2.0, 3.0):
        with runner.using(Settings(vendor=VendorSettings(timeout_s=timeout))):
            pass
    assert [pipeline.closed for pipeline in made] == [False, True, False, False]  # the first is at work
    made[0].gate.set()
    finished(job)
    with runner.using(first) as session:
        assert session is made[0]


def test_a_side_that_failed_is_not_covered_by_an_older_success(
    runner: Runner, pipeline: GatedPipeline
) -> None:
    pipeline.gate.set()
    pipeline.recorded_sides = ("a", "b")
    pipeline.fail["b"] = DsocrError("the worker ended")
    found = runner.page_results(Settings(), REQUEST, finished(runner.start(Settings(), REQUEST)))
    assert found.comparison.b is None
    assert found.recorded == ()
    assert found.problems == ("B: vendor, published code: the worker ended",)
