"""What the app reads is recorded, or said."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsocr_core.reading.comparison import Comparison
from dsocr_core.reading.records import CancelToken, OcrRequest
from dsocr_core.reading.trace_records import TraceSummary
from dsocr_core.settings import Settings
from dsocr_core.trace import run
from pages.widgets.shared.app_session import AppSession, TraceChoice
from tests.support.paths import SAMPLES

REQUEST = OcrRequest(SAMPLES / "06-small-ticket.png", "tiny")


@pytest.fixture
def session(tmp_path: Path) -> AppSession:
    """One whose history cannot be: a file lies in its place."""
    (tmp_path / "history").write_text("in the way")
    return AppSession(Settings(history=str(tmp_path / "history"), device="cpu"))


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_run_that_is_not_recorded_is_said(session: AppSession, cancelled: bool) -> None:
    said = session.keep(Comparison(REQUEST, errors={"a": "out of memory"}), cancelled)
    assert said.startswith("This run was not recorded: ") and "cannot be written to" in said


def test_a_trace_that_is_not_recorded_is_said(session: AppSession, monkeypatch: pytest.MonkeyPatch) -> None:
    made = TraceSummary("page", "eager", "fast", 1, (), None, (), "no difference")
    monkeypatch.setattr(run, "trace_page", lambda *_: made)
    choice = TraceChoice(b="fast")
    summary, said = session.trace(REQUEST, choice, lambda *_: None, CancelToken(), lambda _: None)
    assert summary is made and said.startswith("This trace was not recorded: ")
