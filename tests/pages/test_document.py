"""Run of all pages of a document: a run of the history, whole and cancelled."""

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
from dsocr_core.runs.history import History
from dsocr_core.settings import Settings
from pages.widgets.compare import document
from pages.widgets.compare.document import DocumentJob
from tests.support.results import make_result
from tests.support.sessions import StandIn, session_of

BLOCK = "<|ref|>text<|/ref|><|det|>[[0, 0, 900, 90]]<|/det|>\n"
LONG_S = 60


class Reader(StandIn):
    """A backend that reads the name of a page; `before` may raise."""

    def __init__(self, backend: str, before: Callable[[str], object] = lambda name: None) -> None:
        super().__init__(backend)
        self.before = before

    def recognize(self, request: OcrRequest, *_: object, **__: object) -> OcrResult:
        self.before(request.name)
        words = "second" if request.name == "b.png" and self.backend == "vendor" else "page"
        return replace(make_result(f"{BLOCK}{words}", self.backend), request=request)


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DocumentJob]:
    for name in ("a", "b", "c"):
        Image.new("RGB", (80, 60), "white").save(tmp_path / f"{name}.png")
    monkeypatch.setattr(document, "new_run_directory", lambda command: tmp_path / "runs" / command)
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


def test_all_pages_are_one_run_of_the_history(start: Callable[..., DocumentJob], tmp_path: Path) -> None:
    job = start()
    assert (job.state, job.error) == ("done", "")
    with History(str(tmp_path / "history")) as history:
        [run] = history.runs().to_dict("records")
    assert (run["run_id"], run["pages"], run["failed"]) == (job.run_id, 3, 0)


def test_a_cancel_keeps_what_was_read(start: Callable[..., DocumentJob], tmp_path: Path) -> None:
    def stop(name: str) -> None:
        if name == "c.png":
            raise Cancelled

    job = start(stop)
    assert job.state == "cancelled"
    with History(str(tmp_path / "history")) as history:
        [run] = history.runs().to_dict("records")
    assert run["run_id"] == job.run_id and run["pages"] == 3  # A had read the third
