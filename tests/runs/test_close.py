"""A history that is closed while threads use it: they are interrupted, nothing stays, nothing answers."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.uses import Closed
from dsocr_core.runs import history_file
from dsocr_core.runs.history import History
from dsocr_core.runs.statements import Limits
from tests.support.made_up_runs import timing, write_run

ENDLESS = "SELECT sum(sqrt(a.range * b.range)) AS n FROM range(100000000) a, range(1000000) b"


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "scratch"))
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "scratch"


@pytest.fixture
def history(tmp_path: Path) -> History:
    for name in ("a", "b"):
        write_run(tmp_path / "h", name, [timing("p", "sam", 1.0)])
    return History(tmp_path / "h")


def in_thread(ask: Callable[[], Any]) -> Future[Any]:
    with_one = ThreadPoolExecutor(1)
    try:
        return with_one.submit(ask)
    finally:
        with_one.shutdown(wait=False)


def until(condition: Callable[[], object]) -> None:
    wait = threading.Event()
    while not condition():
        wait.wait(0.005)


@pytest.mark.parametrize("ask", ["cursor", "sql"])
def test_close_interrupts_what_another_thread_asks(history: History, scratch: Path, ask: str) -> None:
    def asked() -> Any:
        if ask == "sql":
            return history.sql(ENDLESS, Limits(600.0))
        with history._file.cursor() as cursor:
            return cursor.execute(ENDLESS)

    answer = in_thread(asked)
    until(lambda: history._uses._active)
    history.close()
    assert isinstance(answer.exception(30), Closed)
    assert list(scratch.iterdir()) == []
    history.close()  # again


def test_a_closed_history_answers_nothing_and_makes_nothing(history: History, tmp_path: Path) -> None:
    before = sorted(path for path in (tmp_path / "cache").rglob("*") if path.is_file())
    history.close()
    asks: list[Callable[[], object]] = [
        lambda: history.query("runs"), lambda: history.sql("SELECT 1"), lambda: history.record("a"),
        history.refresh, history.run_ids, lambda: "a" in history, lambda: history.note("a", "words"),
        lambda: history.tables("a"), history.trashed, history.damaged, lambda: history.problems,
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(DsocrError, match="the history is closed"):
            ask()
    assert sorted(path for path in (tmp_path / "cache").rglob("*") if path.is_file()) == before


def test_close_while_the_index_is_made_leaves_no_part_of_it(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, take = threading.Event(), history_file.read_run

    def taken(*given: Any) -> Any:
        reached.set()
        until(lambda: history._uses._ended)
        return take(*given)

    monkeypatch.setattr(history_file, "read_run", taken)
    write_run(tmp_path / "h", "new", [timing("p", "sam", 1.0)])
    refreshed = in_thread(history.refresh)
    reached.wait(30)
    history.close()
    assert isinstance(refreshed.exception(30), Closed)
    assert not list((tmp_path / "cache").rglob("*.tmp*"))


@pytest.mark.parametrize("of", ["OpenFile.close", "HistoryFile._written"])
def test_a_history_that_cannot_be_opened_or_closed_leaves_no_folder(
    tmp_path: Path, scratch: Path, monkeypatch: pytest.MonkeyPatch, of: str
) -> None:
    def fails(*_: object) -> None:
        assert list(scratch.iterdir())
        raise RuntimeError("no")

    (tmp_path / "cache").touch()  # its file lies in a temporary folder then
    monkeypatch.setattr(f"dsocr_core.runs.history_file.{of}", fails)
    with pytest.raises(RuntimeError) as raised:
        History(tmp_path / "h").close()
    assert list(scratch.iterdir()) == [] and raised  # whose frames keep what a collection would delete
