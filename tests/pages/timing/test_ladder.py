"""The tab Ladder of Timing over a recorded ladder, whole and broken, and without one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsocr_core.measure.ladder import FILE, Rung
from dsocr_core.runs.storage.entries import open_storage
from dsocr_core.runs.store import History
from dsocr_core.runs.writer import RunWriter
from pages.widgets.shared import resources
from pages.widgets.timing import ladder
from tests.support.opened_page import opened, words
from tests.support.timed_history import record

RUNGS = (
    Rung("base", False, 1_000_000, 2_000_000, 900.0, 3.0, 400, 1.0, 0.0, 9, error=0.1),
    Rung("<b>int4", True, 400_000, 800_000, None, None, 400, 0.98, 0.01, 6, 2, 1, error=0.12),
)


def written(root: Path, content: bytes) -> None:
    with RunWriter(open_storage(str(root)), record("laddered", 1.0)) as run:
        (run.directory / FILE).write_bytes(content)


def draw(root: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(resources, "history", lambda: History(root))
    return opened("timing", view="Ladder")


def test_rungs_are_rows_and_a_value_has_no_speed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rungs = [vars(rung) | {"title": rung.title} for rung in RUNGS]
    written(tmp_path, json.dumps({"rungs": rungs}).encode())
    test = draw(tmp_path, monkeypatch)
    table = test.dataframe[0].value
    assert table["title"].tolist() == ["base", "<b>int4 (values only)"]
    assert table["tokens_per_s"].isna().tolist() == [False, True]
    (chart,) = (json.loads(element.proto.spec) for element in test.get("plotly_chart"))
    assert chart["data"][0]["x"] == pytest.approx([2.0, 0.0])  # 98 % agree; the first row is on top
    assert "<b>" not in chart["data"][0]["y"][0]


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"rungs": [{"title": "base"}]}', b'{"rungs": 3}'])
def test_a_broken_file_is_one_line(content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, content)
    assert "laddered: its ladder.json is not whole" in words(draw(tmp_path, monkeypatch))


def test_no_ladder_says_how_to_make_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with RunWriter(open_storage(str(tmp_path)), record("other", 1.0)):
        pass
    test = draw(tmp_path, monkeypatch)
    assert ladder.FILE == FILE and "measure ladder PAGES --save" in test.info[0].value
