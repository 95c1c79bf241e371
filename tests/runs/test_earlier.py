"""What a page took before, on this machine, by hand-written runs."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from dsocr_core.reading.records import OcrRequest
from dsocr_core.runs.earlier import Earlier, left_words, readings, words
from dsocr_core.runs.store import History
from dsocr_core.settings import Settings
from tests.support.made_up_runs import timing, write_run


def _write(root: Path, run_id: str, milliseconds: float, **record: object) -> None:
    rows = [
        timing("page.png", "prefill", 100.0),
        timing("page.png", "sam", 40.0, inside_prefill=True),
        timing("page.png", "decode", milliseconds - 100.0),
        timing("other.png", "decode", 5_000.0),
    ]
    usual = {"host": platform.node(), "preset": "small", "settings": {"checkpoint": "data/mini"}}
    write_run(root, run_id, rows, **{**usual, **record})


@pytest.fixture
def found(tmp_path: Path) -> dict[str, Earlier]:
    for number, milliseconds in enumerate((2_000.0, 3_000.0, 2_500.0)):
        _write(tmp_path, f"run-{number}", milliseconds)
    _write(tmp_path, "elsewhere", 9_000.0, host="another machine")
    _write(tmp_path, "profiled", 9_000.0, profiled=True)
    _write(tmp_path, "preset", 9_000.0, preset="tiny")
    _write(tmp_path, "checkpoint", 9_000.0, settings={"checkpoint": "/models/a"})
    with History(tmp_path) as history:
        request = OcrRequest(image=Path("page.png"), preset="small", source="page.png")
        return readings(lambda: history, Settings(), request)


def test_only_runs_under_the_same_conditions_count(found: dict[str, Earlier]) -> None:
    assert found == {"eager": Earlier(3, 2_500.0, 2_000.0, 3_000.0)}  # vision lies inside prefill


def test_it_is_said_with_spread_and_number(found: dict[str, Earlier]) -> None:
    assert words(found) == "Here this page took: eager 2.50 s (2.00 s – 3.00 s, n = 3)."
    assert words({"vendor": Earlier(1, 800.0, 800.0, 800.0)}) == "Here this page took: vendor 800 ms (n = 1)."
    assert words({}) == ""


def test_what_is_left_is_told_until_the_run_takes_longer(found: dict[str, Earlier]) -> None:
    assert left_words(found["eager"], 1.0) == "about 1.50 s left, by earlier runs"
    assert left_words(found["eager"], 2.6) == left_words(None, 1.0) == ""
