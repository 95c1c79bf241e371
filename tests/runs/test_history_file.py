"""The file of the history: made once by one process, anew when damaged, and closed beside any thread."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.uses import Closed
from dsocr_core.runs import ingest
from dsocr_core.runs.checksums import write_checksums
from dsocr_core.runs.history import History
from dsocr_core.runs.statements import Limits
from tests.support.made_up_runs import timing, write_run

RUNS = ("a", "b", "c")
ENDLESS = "SELECT sum(sqrt(a.range * b.range)) AS n FROM range(100000000) a, range(1000000) b"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number, name in enumerate(RUNS):
        write(tmp_path / "h", name, number)
    return tmp_path / "h"


@pytest.fixture
def ingested(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs whose files were read."""
    names, read_run = list[str](), ingest.read_run

    def counted(storage: Any, number: int, name: str, version: str) -> object:
        names.append(name)
        return read_run(storage, number, name, version)

    monkeypatch.setattr(ingest, "read_run", counted)
    return names


def write(root: Path, name: str, number: int) -> None:
    times = [timing(f"p{page}", "sam", 1.0 + number + page) for page in range(3)]
    write_run(root, name, times, created=f"2026-01-0{number + 1}", settings={"preset": name})


def put(file: Path, table: pa.Table) -> None:
    """Have a run hold a table that no writer of it wrote."""
    pq.write_table(table, file)
    write_checksums(file.parent)


def answers(history: History) -> list[pd.DataFrame]:
    times = "SELECT run_id, stage, page, milliseconds, (SELECT count(*) FROM readings) AS images"
    return [
        *(history.query(name)[0] for name in ("runs", "stage_summary", "filter_values")),
        history.query("facts", run_ids=history.run_ids())[0],
        history.sql(f"{times} FROM timings ORDER BY ALL"),
    ]


def assert_same(one: list[pd.DataFrame], other: list[pd.DataFrame]) -> None:
    for a, b in zip(one, other, strict=True):
        pd.testing.assert_frame_equal(a, b)


def test_what_was_read_once_is_not_read_again(root: Path, ingested: list[str]) -> None:
    with History(root) as history:
        history.tag("a", "good")
        assert ingested == [*RUNS]
    with History(root) as history, History(root) as other:
        assert list(history.runs().iloc[-1]["tags"]) == ["good"]
        write(root, "d", 3)
        write_run(root, "e", [timing("new page", "decode", 9.0)], created="2025-12-31", notes="the oldest")
        assert history.refresh() == 2 and other.refresh() == 2 and ingested == [*RUNS, "d", "e"]
        assert history.run_ids() == ["e", *RUNS, "d"] and history.record("e").notes == "the oldest"
        history.storage.remove("b")
        assert history.refresh() == 1 and ingested == [*RUNS, "d", "e"]
        made = answers(history)
        assert other.refresh() == 1
        assert_same(answers(other), made)


def test_a_run_of_other_columns_is_named_and_one_of_fewer_is_read(root: Path, ingested: list[str]) -> None:
    put(file := root / "runs" / "c" / "readings.parquet", pq.read_table(file).drop_columns(["request"]))
    with History(root) as history:
        for run_ids in (["c"], None):  # no columns that tell its shapes: no times of shapes
            assert history.query("flop_gaps", run_ids=run_ids)[0].empty and not history.problems
        assert history.sql("SELECT * FROM stage_times").empty
        write(root, "d", 3)
        write(root, "e", 4)
        put(root / "runs" / "e" / "timings.parquet", pa.table({"run_id": ["e"]}))
        assert history.refresh() == 1 and history.run_ids() == [*RUNS, "d"]
        assert "timings.parquet: is no table of this version" in history.problems["runs/e"]
        assert history.sql("SELECT count(*) AS n FROM timings")["n"].tolist() == [12]
        write(root, "f", 5)  # a damaged one does not stand in the way, nor is it read again
        assert history.refresh() == 1 and ingested == [*RUNS, "d", "e", "f"]
        assert history.run_ids() == [*RUNS, "d", "f"] and list(history.problems) == ["runs/e"]


# --- damage ---------------------------------------------------------------------------------------


def other_program(file: Path) -> None:
    with duckdb.connect(str(file.with_name("other"))) as other:
        other.execute("CREATE TABLE runs (run_id VARCHAR)")
    file.with_name("other").replace(file)


@pytest.mark.parametrize(
    "act",
    [
        lambda file: file.parents[2].rename(file.parents[3] / "aside"), lambda file: file.write_bytes(b""),
        other_program,
    ],
)  # fmt: skip
def test_it_may_be_deleted_while_it_is_open(root: Path, act: Callable[[Path], object]) -> None:
    with History(root) as history:
        made = answers(history)
        act(history._made.path)
        assert_same(answers(history), made)
        write(root, "d", 3)
        assert history.refresh() == 1 and len(history) == 4


@pytest.mark.parametrize("times", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_a_damaged_file_is_made_anew(root: Path, times: int) -> None:
    with History(root) as history:
        made, file = answers(history), history._made.path
    for seed in range(times):
        chance = random.Random(seed)
        content = bytearray(file.read_bytes())
        # Headers are the first three blocks of 4 KiB; the rest is mostly empty.
        at = chance.randrange(len(content) if seed % 2 else 3 * 4096)
        if chance.random() < 0.2:
            del content[at:]
        else:
            end = at + chance.choice([1, 8, 4096, len(content)])
            content[at:end] = bytes(value ^ 0xFF for value in content[at:end])
        file.write_bytes(content)
        with History(root) as history:
            assert_same(answers(history), made)
            # Also behind the headers, while it is open.
            whole = history._made.path.read_bytes()
            with history._made.path.open("r+b") as handle:
                handle.write(whole[: 3 * 4096] + bytes(byte ^ 0xFF for byte in whole[3 * 4096 :]))
            assert history.sql("SELECT count(*) AS n FROM stage_statistics")["n"].tolist() == [3]


# --- close ----------------------------------------------------------------------------------------


def in_thread(ask: Callable[[], Any]) -> Future[Any]:
    return ThreadPoolExecutor(1).submit(ask)


def until(condition: Callable[[], object]) -> None:
    wait = threading.Event()
    while not condition():
        wait.wait(0.005)


@pytest.mark.parametrize("ask", ["cursor", "sql"])
def test_close_interrupts_what_another_thread_asks(root: Path, ask: str) -> None:
    history = History(root)

    def asked() -> Any:
        if ask == "sql":
            return history.sql(ENDLESS, Limits(600.0))
        return history._frame(ENDLESS, {})

    answer = in_thread(asked)
    until(lambda: history._uses._active)
    history.close()
    assert isinstance(answer.exception(30), Closed)
    history.close()  # again


def test_a_file_that_was_replaced_stays_open_for_who_asks_it_and_no_longer(root: Path) -> None:
    named, opened = (
        "SELECT run_id FROM listed ORDER BY run_id",
        "FROM duckdb_databases() WHERE path IS NOT NULL",
    )
    with History(root) as history:
        with history._made.cursor() as asking:
            for number, name in enumerate("de"):
                write(root, name, number)
                history.refresh()
                history.tag(name, "new")
                assert asking.execute(named).fetchall() == [(run,) for run in RUNS]
            assert len(asking.execute(opened).fetchall()) == 2
        assert len(history._frame(opened, {})) == 1
        assert sorted(history.runs(tags=["new"])["run_id"]) == ["d", "e"]


def test_a_closed_history_answers_nothing_and_makes_nothing(root: Path, cache: Path) -> None:
    history = History(root)
    before = sorted(path for path in cache.rglob("*") if path.is_file())
    history.close()
    asks: list[Callable[[], object]] = [
        lambda: history.query("runs"), lambda: history.sql("SELECT 1"), lambda: history.record("a"),
        history.refresh, history.run_ids, lambda: "a" in history, lambda: history.note("a", "words"),
        lambda: history.tables("a"), history.trashed, history.damaged, lambda: history.problems,
    ]  # fmt: skip
    for ask in asks:
        with pytest.raises(DsocrError, match="the history is closed"):
            ask()
    assert sorted(path for path in cache.rglob("*") if path.is_file()) == before


def test_close_while_the_index_is_made_leaves_no_part_of_it(
    root: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    history, reached, read_run = History(root), threading.Event(), ingest.read_run

    def slow(*given: Any) -> Any:
        reached.set()
        until(lambda: history._uses._ended)
        return read_run(*given)

    monkeypatch.setattr(ingest, "read_run", slow)
    write(root, "new", 3)
    refreshed = in_thread(history.refresh)
    reached.wait(30)
    history.close()
    assert isinstance(refreshed.exception(30), Closed)
    assert not list(cache.rglob("*.tmp*"))
