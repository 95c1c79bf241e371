"""Speeds of runs that are no speeds of one thing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dsocr_core.history.recorder import RunRecorder
from dsocr_core.history.speed import ONE_DRAFTED, compare_speed
from dsocr_core.history.store import History
from dsocr_core.outputs.comparison import Comparison
from dsocr_core.settings import Settings
from tests.support.results import make_result


def recorded(location: Path, **environment: str) -> str:
    """A run of one page that the fast engine read."""
    result = replace(make_result(backend="fast"), environment={"engine": "fast", **environment})
    with RunRecorder(Settings(engine="fast", history=str(location))) as recorder:
        recorder.add("page.png", Comparison(result.request, result))
    assert recorder.id is not None
    return recorder.id


@pytest.mark.parametrize("asked", [False, True])
def test_a_drafted_run_beside_an_undrafted_one_is_no_speed_unless_asked_for(
    tmp_path: Path, asked: bool
) -> None:
    plain, drafted = recorded(tmp_path), recorded(tmp_path, draft="text-layer")
    with History(tmp_path) as history:
        assert [history.record(run).engine for run in (plain, drafted)] == ["fast", "fast, with drafts"]
        found = compare_speed(history, (plain, "fast"), (drafted, "fast"), contended=asked)
        assert (set(found["why"]) == {ONE_DRAFTED}) == (not asked)
        same = compare_speed(history, (drafted, "fast"), (drafted, "fast"))
        assert ONE_DRAFTED not in set(same.get("why", ()))
