"""What the app reads is recorded, or said."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dsocr_core.read.session import Session
from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import CancelToken, OcrRequest
from dsocr_core.reading.trace_records import TraceSummary
from dsocr_core.settings import Settings
from dsocr_core.trace import run
from pages.widgets.shared import app_session
from pages.widgets.shared.app_session import AppSession, TraceChoice
from tests.support.paths import SAMPLES

REQUEST = OcrRequest(SAMPLES / "06-small-ticket.png", "tiny")


@pytest.fixture
def session(tmp_path: Path) -> AppSession:
    """One whose history cannot be: a file lies in its place."""
    (tmp_path / "history").write_text("in the way")
    return session_on(tmp_path / "history")


def session_on(history: Path) -> AppSession:
    return AppSession(Settings(history=str(history), device="cpu"))


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_run_that_is_not_recorded_is_said(session: AppSession, cancelled: bool) -> None:
    said = session.keep(Comparison(REQUEST, errors={"a": "out of memory"}), cancelled)
    assert said.startswith("This run was not recorded: ") and "cannot be written to" in said


@pytest.mark.parametrize("broken", ["a file above it", "a loop of links"])
def test_whatever_is_in_the_way_is_said(tmp_path: Path, broken: str) -> None:
    place = tmp_path / "history"
    if broken == "a loop of links":
        place.symlink_to(place)
    else:
        place.write_bytes(b"")
        place = place / "below"
    said = session_on(place).keep(Comparison(REQUEST, errors={"a": "out of memory"}))
    assert said.startswith("This run was not recorded: ") and "history" in said and "\n" not in said


@pytest.mark.parametrize("runs", [1, 3])
def test_runs_at_one_time_have_each_its_machine_s_watch(
    session: AppSession, monkeypatch: pytest.MonkeyPatch, runs: int
) -> None:
    monkeypatch.setattr(Session, "compare", lambda *_: Comparison(REQUEST))
    kept: list[object] = []
    monkeypatch.setattr(app_session, "save_comparison", lambda *given: kept.append(given[3]))
    begun = threading.Barrier(runs, timeout=30)

    def run_both(_: int) -> None:
        session.compare(REQUEST)
        begun.wait()  # all of them are read by now
        session.keep(Comparison(REQUEST))

    with ThreadPoolExecutor(runs) as pool:
        list(pool.map(run_both, range(runs)))
    assert None not in kept and len(set(map(id, kept))) == runs


def test_a_trace_that_is_not_recorded_is_said(session: AppSession, monkeypatch: pytest.MonkeyPatch) -> None:
    made = TraceSummary("page", "eager", "fast", 1, (), None, (), "no difference")
    monkeypatch.setattr(run, "trace_page", lambda *_: made)
    choice = TraceChoice(b="fast")
    summary, said = session.trace(REQUEST, choice, lambda *_: None, CancelToken(), lambda _: None)
    assert summary is made and said.startswith("This trace was not recorded: ")
