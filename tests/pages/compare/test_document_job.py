"""Run of all pages of a document: verdicts as they come, a run of the history, what a cancel leaves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.base.errors import Cancelled
from dsocr_core.page.documents import expand
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.runs import result_cache
from dsocr_core.runs.store import History
from dsocr_core.settings import Settings
from pages.widgets.compare import document_job
from pages.widgets.compare.document_job import DocumentJob
from pages.widgets.compare.verdict import strip_of
from pages.widgets.shared.runner import Runner
from tests.support.results import make_result
from tests.support.sessions import session_of

BLOCK = "<|ref|>text<|/ref|><|det|>[[0, 0, 900, 90]]<|/det|>\n"
LONG_S = 60


class Reader:
    """A backend that reads the name of a page; `before` may raise."""

    def __init__(self, backend: str, before: Callable[[str], object] = lambda name: None) -> None:
        self.backend, self.before = backend, before

    def recognize(self, request: OcrRequest, observer=None, cancel=None, prepared=None) -> OcrResult:
        self.before(request.name)
        words = "second" if request.name == "b.png" and self.backend == "vendor" else "page"
        return replace(make_result(f"{BLOCK}{words}", self.backend), request=request)

    def check(self) -> None:
        """It can run."""

    def load(self) -> None:
        """It is there."""


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DocumentJob]:
    for name in ("a", "b", "c"):
        Image.new("RGB", (80, 60), "white").save(tmp_path / f"{name}.png")
    monkeypatch.setattr(document_job, "new_run_directory", lambda command: tmp_path / "runs" / command)
    monkeypatch.setattr(result_cache, "SHIPPED_RESULTS", tmp_path / "shipped")
    settings = Settings(device="cpu", history=str(tmp_path / "history"))

    def make(before: Callable[[str], object] = lambda name: None, **opening: bool) -> DocumentJob:
        readers = Reader("eager"), Reader("vendor", before)
        session = session_of(settings, tmp_path / "results", *readers, **opening)
        job = DocumentJob(session, "about", expand([tmp_path]), ("a", "b"), False)
        job.start()
        job.join(LONG_S)
        return job

    return make


def test_every_page_has_its_verdict_and_the_run_is_in_the_history(
    start: Callable[..., DocumentJob], tmp_path: Path
) -> None:
    job = start()
    assert (job.view().state, job.view().error) == ("done", "")
    assert job.verdicts == {"a.png": "identical", "b.png": "differs", "c.png": "identical"}
    assert job.counts == "2 identical, 1 differs"
    with History(str(tmp_path / "history")) as history:
        assert history.run_ids() == [job.run_id]


def test_a_cancel_keeps_what_was_read(start: Callable[..., DocumentJob], tmp_path: Path) -> None:
    def stop(name: str) -> None:
        if name == "c.png":
            raise Cancelled

    job = start(stop)
    assert job.view().state == "cancelled" and list(job.verdicts)[:2] == ["a.png", "b.png"]
    with History(str(tmp_path / "history")) as history:
        [run] = history.runs().to_dict("records")
    assert run["run_id"] == job.run_id and run["pages"] == 3  # A had read the third


@pytest.mark.parametrize("most", [32, 0])
def test_after_a_cancel_the_strip_shows_what_was_read_of_backends_that_no_cache_holds(
    most: int, start: Callable[..., DocumentJob], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From memory, and from the run in the history where that many pages are no longer there."""
    monkeypatch.setattr(document_job, "_MOST_LATEST", most or 1)

    def stop(name: str) -> None:
        if name == "c.png":
            raise Cancelled

    job = start(stop, caches=False)
    settings, runner = job._session.settings, Runner(lambda settings: job._session)  # type: ignore[arg-type, return-value]
    words = {}
    with History(str(tmp_path / "history")) as history:
        for name in "abc":
            request = settings.request(tmp_path / f"{name}.png", f"{name}.png")
            assert runner.page_results(settings, request, None).comparison is None
            read = job.comparison(lambda: history, request)
            results = runner.page_results(settings, request, None, read)
            assert results.comparison is not None and results.comparison.request == request
            words[name] = strip_of(results, {"a": "A", "b": "B"}).word
    assert words == {"a": "IDENTICAL", "b": "DIFFERS", "c": "NO EVIDENCE"}


def test_a_page_that_fails_does_not_stop_the_others(start: Callable[..., DocumentJob]) -> None:
    def fail(name: str) -> None:
        if name == "a.png":
            raise ValueError("broken")

    assert start(fail).verdicts == {"a.png": None, "b.png": "differs", "c.png": "identical"}
