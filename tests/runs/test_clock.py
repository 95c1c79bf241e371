"""A clock that goes back: names stay apart, what was said last counts, ages are never negative."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from dsocr_core.runs.history import History
from dsocr_core.runs.run_directory import RunDirectory
from tests.support.made_up_runs import record, timing, write_run


@pytest.fixture
def history(tmp_path: Path) -> History:
    write_run(tmp_path, "run-1", [timing("p", "sam", 1.5)])
    return History(tmp_path)


def back(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """The clock, so many seconds ago."""
    now = time.time_ns()
    monkeypatch.setattr(time, "time_ns", lambda: now - int(seconds * 1e9))
    monkeypatch.setattr(time, "time", lambda: now / 1e9 - seconds)


def test_what_was_said_last_counts_although_the_clock_went_back(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    with history:
        history.note("run-1", "before")
        history.trash(["run-1"])
        back(monkeypatch, 86_400)
        history.note("run-1", "after")
        history.restore(["run-1"])
        history.tag("run-1", "good")
        history.tag("run-1", "good", on=False)
        assert history.trashed() == []
        with History(Path(history.storage.location)) as anew:
            for one in (history, anew):
                row = one.runs().iloc[0]
                assert row["note"] == "after" and one.trashed() == [] and not list(row["tags"])


def test_ages_are_not_negative_and_leftovers_of_the_future_are_cleared(history: History) -> None:
    with history:
        RunDirectory.create(history.storage, record("run-2")).close()
        [left] = (history.storage.root / "unfinished").iterdir()
        os.utime(left, (time.time() + 10**6, time.time() + 10**6))
        assert [leftover.age_s for leftover in history.storage.leftovers(clear=True)] == [0.0]
        assert not history.storage.leftovers()


def test_runs_are_in_the_order_of_their_recorded_time(history: History) -> None:
    with history:
        for name, created in (("run-old", "1969-12-31T23:59:59+00:00"), ("run-future", "2999-01-01")):
            write_run(history.storage.root, name, [timing("p", "sam", 1.5)], created=created)
        assert history.refresh() == 2 and not history.problems
        assert history.run_ids() == ["run-old", "run-1", "run-future"]
        assert list(history.runs()["run_id"]) == ["run-future", "run-1", "run-old"]
