"""Runs in threads: stages while they happen, cancel, errors, recorded results. No sleeps: gates."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.base.errors import Cancelled, DsocrError
from dsocr_core.engine import preparing
from dsocr_core.models.stages import Stage
from dsocr_core.page.documents import expand
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import OcrRequest, OcrResult, Side
from dsocr_core.runs import result_cache
from dsocr_core.runs.history import History
from dsocr_core.settings import Settings, VendorSettings
from pages.widgets.compare import document
from pages.widgets.compare.document import DocumentJob
from pages.widgets.shared.runner import ReadJob, Runner
from tests.support.fabricated_results import BACKENDS, result_of
from tests.support.results import make_result
from tests.support.sessions import StandIn, session_of

REQUEST = OcrRequest(Path("page.png"), "small")
DIED = "page.png: the vendor's worker ended (signal 9); run again"
LONG_S = 60


class GatedPipeline:
    """Stops in decode until its gate opens or the run is cancelled."""

    def __init__(self) -> None:
        self.gate, self.reached = threading.Event(), threading.Event()
        self.fail: dict[Side, Exception] = {}
        self.closed = False
        self.stop_at: Side | None = None
        self.stored: list[tuple[Comparison, bool, object]] = []
        self.check = lambda sides: None  # everything can run

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
        while not self.gate.wait(0.005) or cancel.is_set():
            if cancel.is_set():
                raise Cancelled
        problem = self.fail.get(side)
        if isinstance(problem, DsocrError):
            return Comparison(request, errors={side: str(problem)})
        if problem:
            raise problem
        watch.text("text")
        watch.stage_ended(Stage.DECODE, 30.0)
        return Comparison(request, **{side: result_of(BACKENDS[side], request, [], (10, 10))})

    def keep(self, comparison: Comparison, cancelled: bool, machine: object) -> str:
        self.stored.append((comparison, cancelled, machine))
        return ""

    def recorded(self, request: OcrRequest, sides: Sequence[Side]) -> Comparison | None:
        """An older success, which does not cover a failure."""
        results = {side: result_of(BACKENDS[side], request, [], (10, 10)) for side in sides}
        return Comparison(request, **results) if sides == ("a", "b") and self.fail else None

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
    job = runner.read(Settings(), REQUEST)
    assert pipeline.reached.wait(LONG_S)
    a, b = job.watches.values()
    assert (a.state, b.state) == ("running", "queued")
    prefill, decode = a.stages()
    assert prefill == (Stage.PREFILL, 20.0, False) and (decode[0], decode[2]) == (Stage.DECODE, True)
    assert (a.tail(), a.characters) == ("read ", 5)
    pipeline.gate.set()
    finished(job)
    assert (job.state, a.state, b.state, a.tail()) == ("done", "done", "done", "read text")
    ((stored, cancelled, _),) = pipeline.stored  # one run for both backends, so that it has their parity
    assert not cancelled and stored.a and stored.b and stored is job.comparison


def test_a_cancel_ends_a_run_that_would_wait_forever_and_records_what_had_finished(
    runner: Runner, pipeline: GatedPipeline
) -> None:
    job = runner.read(Settings(), REQUEST)
    assert pipeline.reached.wait(LONG_S)
    job.cancel()
    assert finished(job).state == "cancelled" and not pipeline.stored
    found = runner.page_results(Settings(), REQUEST, job)
    assert found.cancelled and found.problems == ()
    pipeline.gate.set()
    pipeline.stop_at = "b"
    job = finished(runner.read(Settings(), REQUEST))
    ((stored, cancelled, _),) = pipeline.stored
    assert cancelled and stored.a is not None and stored.b is None and stored.errors == {}
    assert job.partial_texts() == {"b": "read "}  # A had finished: its result is whole
    assert [watch.tokens for watch in job.watches.values()] == [2, 1]


def test_a_killed_worker_leaves_the_other_side_and_the_next_run_works(
    runner: Runner, pipeline: GatedPipeline
) -> None:
    pipeline.gate.set()
    pipeline.fail["b"] = DsocrError(DIED)
    found = runner.page_results(Settings(), REQUEST, finished(runner.read(Settings(), REQUEST)))
    assert found.problems == (f"B: vendor, published code: {DIED}",) and found.recorded == ()
    assert found.comparison.a is not None and found.comparison.b is None
    pipeline.fail.clear()
    found = runner.page_results(Settings(), REQUEST, finished(runner.read(Settings(), REQUEST)))
    assert found.problems == () and found.comparison.b is not None


def test_only_the_last_idle_pipelines_stay_open() -> None:
    made: list[GatedPipeline] = []

    def make(settings: Settings) -> GatedPipeline:
        made.append(GatedPipeline())
        return made[-1]

    runner = Runner(make)
    job = runner.read(Settings(attention="eager"), REQUEST)
    for timeout in (1.0, 2.0, 3.0):
        runner.page_results(Settings(vendor=VendorSettings(timeout_s=timeout)), REQUEST, None)
    assert [pipeline.closed for pipeline in made] == [False, True, False, False]  # the first is at work
    made[0].gate.set()
    finished(job)


# --- all pages of a document ----------------------------------------------------------------------


BLOCK = "<|ref|>text<|/ref|><|det|>[[0, 0, 900, 90]]<|/det|>\n"


class Reader(StandIn):
    """A backend that reads the name of a page; `before` may raise."""

    def __init__(self, backend: str, before: Callable[[str], object] = len) -> None:
        super().__init__(backend)
        self.before = before

    def recognize(self, request: OcrRequest, *_: object, **__: object) -> OcrResult:
        self.before(request.name)
        words = "second" if request.name == "b.png" and self.backend == "vendor" else "page"
        return replace(make_result(f"{BLOCK}{words}", self.backend), request=request)


def stop(name: str) -> None:
    if name == "c.png":
        raise Cancelled


@pytest.mark.parametrize(("before", "state"), [(len, "done"), (stop, "cancelled")])
def test_all_pages_are_one_run_and_a_cancel_keeps_what_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: Callable[[str], object], state: str
) -> None:
    for name in ("a", "b", "c"):
        Image.new("RGB", (80, 60), "white").save(tmp_path / f"{name}.png")
    monkeypatch.setattr(document, "new_run_directory", lambda command: tmp_path / "runs" / command)
    monkeypatch.setattr(result_cache, "SHIPPED_RESULTS", tmp_path / "shipped")
    settings = Settings(device="cpu", history=str(tmp_path / "history"))
    session = session_of(settings, tmp_path / "results", Reader("eager"), Reader("vendor", before))
    job = DocumentJob(session, "about", expand([tmp_path]), ("a", "b"), False)
    job.start()
    job.join(LONG_S)
    assert (job.state, job.error) == (state, "")
    assert state == "cancelled" or (job.words, job.done) == ("page 3 of 3", 1.0)
    with preparing.saying() as say:
        assert (say("loading weights"), job.beside()) == (None, "loading weights")
    with History(str(tmp_path / "history")) as history:
        [run] = history.runs().to_dict("records")
    assert (run["run_id"], run["pages"]) == (job.run_id, 3)  # A had read the third
