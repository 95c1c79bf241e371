"""The index file: made once, from what is new, by one process at a time; never the only place of anything."""

from __future__ import annotations

import logging
import random
import subprocess
import tempfile
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsocr_core.runs import index_file
from dsocr_core.runs.checksums import write_checksums
from dsocr_core.runs.storage.store import StorageError
from dsocr_core.runs.store import History
from tests.support.made_up_runs import timing, write_run

RUNS = ("a", "b", "c")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DSOCR_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for number, name in enumerate(RUNS):
        write(tmp_path / "h", name, number)
    return tmp_path / "h"


def write(root: Path, name: str, number: int) -> None:
    times = [timing(f"p{page}", "sam", 1.0 + number + page) for page in range(3)]
    write_run(root, name, times, created=f"2026-01-0{number + 1}", settings={"preset": name})


def file_of(history: History) -> Path:
    assert history._index.file is not None
    return history._index.file


def answers(history: History) -> list[pd.DataFrame]:
    names = ("runs", "stage_summary", "filter_values")
    times = "SELECT run_id, stage, page, milliseconds, (SELECT count(*) FROM images) AS images"
    return [
        *(history.query(name)[0] for name in names),
        history.query("facts", run_ids=history.run_ids())[0],
        history.query("page_timings", run_ids=history.run_ids())[0],
        history.sql(f"{times} FROM stage_timings ORDER BY ALL"),
    ]


def assert_same(one: list[pd.DataFrame], other: list[pd.DataFrame]) -> None:
    for a, b in zip(one, other, strict=True):
        pd.testing.assert_frame_equal(a, b)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the runs whose files were read."""
    names: list[str] = []

    def counted(storage: object, number: int, name: str, version: str) -> object:
        names.append(name)
        return take(storage, number, name, version)  # type: ignore[arg-type]

    take = index_file.take
    monkeypatch.setattr(index_file, "take", counted)
    return names


def test_what_was_read_once_is_not_read_again(root: Path, taken: list[str]) -> None:
    with History(root) as history:
        first = file_of(history)
        history.tag("a", "good")
        assert taken == [*RUNS] and file_of(history) == first  # a note is beside the index
    with History(root) as history:
        assert file_of(history) == first and list(history.runs().iloc[-1]["tags"]) == ["good"]
        write(root, "d", 3)
        assert history.refresh() == 1 and taken == [*RUNS, "d"]
        assert file_of(history) == first  # a new run, too
        history.storage.remove("b")
        assert history.refresh() == 1 and taken == [*RUNS, "d", "d"] and file_of(history) != first
        assert history.run_ids() == ["a", "c", "d"]
        made = answers(history)
        file_of(history).unlink()
    with History(root) as history:  # from the last but one, or from nothing
        assert_same(answers(history), made)
        assert list(history.runs(tags=["good"])["run_id"]) == ["a"]


def test_new_runs_beside_the_file_answer_as_those_in_it(
    root: Path, taken: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "_MOST_LATER_RUNS", 3)
    with History(root) as history:
        first = file_of(history)
        for number, name in enumerate(("Z", "d"), 3):
            write(root, name, number)
            history.refresh()
        times = [timing(page, stage, 9.0) for page in ("p2", "new page") for stage in ("sam", "decode")]
        write_run(root, "e", times, created="2025-12-31", notes="the oldest")
        history.refresh()
        assert sorted(history.runs()["run_id"]) == sorted((*RUNS, "Z", "d", "e"))
        history.tag("e", "good")
        assert file_of(history) == first and taken == [*RUNS, "Z", "d", "e"]
        assert history.run_ids() == ["e", *RUNS, "Z", "d"] and history.record("e").notes == "the oldest"
        beside = answers(history)
        with History(root) as fresh:
            assert file_of(fresh) != first
            assert_same(beside, answers(fresh))
        assert_same(answers(history), beside)
        write(root, "f", 5)
        assert history.refresh() == 1 and file_of(history) != first
        assert history.run_ids() == ["e", *RUNS, "Z", "d", "f"]


def test_times_beside_the_file_are_not_many(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_file, "_MOST_LATER_TIMES", 5)
    with History(root) as history:
        first = file_of(history)
        write(root, "d", 3)
        history.refresh()
        assert file_of(history) == first  # 3
        write(root, "e", 4)
        history.refresh()
        assert file_of(history) != first and len(history) == 5


def test_a_new_run_of_other_columns_leaves_nothing_of_those_beside_it(root: Path) -> None:
    with History(root) as history:
        write(root, "d", 3)
        write(root, "e", 4)
        file = root / "runs" / "e" / "timings.parquet"
        pq.write_table(pa.table({"run_id": ["e"]}), file)
        write_checksums(file.parent)
        assert history.refresh() == 1 and history.run_ids() == [*RUNS, "d"]
        assert "does not have the columns" in history.problems["runs/e"]
        assert history.sql("SELECT count(*) AS n FROM stage_timings")["n"].tolist() == [12]
        known = file_of(history)
        write(root, "f", 5)  # a damaged one does not stand in the way
        assert history.refresh() == 1 and file_of(history) == known
        assert history.run_ids() == [*RUNS, "d", "f"] and list(history.problems) == ["runs/e"]


def test_runs_whose_files_are_others_are_taken_in_anew(root: Path, taken: list[str]) -> None:
    with History(root) as history:
        made = answers(history)
        for file in (*root.glob("runs/a/*.parquet"), *root.glob("runs/c/*.parquet")):
            file.rename(root / "aside")
            file.write_bytes((root / "aside").read_bytes())
    with History(root) as history:
        assert taken == [*RUNS, "a", "c"]
        assert_same(answers(history), made)


def test_notes_that_go_away_or_are_many_make_another_index(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "_MOST_LATER", 2)
    with History(root) as history:
        first = file_of(history)
        for number in range(3):
            history.note("a", f"note {number}")
        assert file_of(history) != first and history.runs().iloc[-1]["note"] == "note 2"
        newest = max((root / "annotations").iterdir())
        newest.unlink()
        history.refresh()
        assert history.runs().iloc[-1]["note"] == "note 1"


@pytest.mark.parametrize("kind", ["folder", "emptied"])
def test_it_may_be_deleted_while_it_is_open(root: Path, cache: Path, kind: str) -> None:
    with History(root) as history:
        made = answers(history)
        if kind == "folder":
            cache.rename(cache.with_name("aside"))
        else:
            file_of(history).write_bytes(b"")
        assert_same(answers(history), made)
        write(root, "d", 3)
        assert history.refresh() == 1 and len(history) == 4
    with History(root) as history:
        assert len(history) == 4 and file_of(history).is_file()


def damage_often(root: Path, times: int) -> None:
    with History(root) as history:
        made = answers(history)
    for seed in range(times):
        chance = random.Random(seed)
        with History(root) as history:
            file = file_of(history)
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


@pytest.mark.slow
def test_an_index_damaged_200_times_is_made_anew(root: Path) -> None:
    damage_often(root, 200)


def test_a_file_of_another_program_under_its_name_is_replaced(root: Path) -> None:
    with History(root) as history:
        made, file = answers(history), file_of(history)
    file.unlink()
    with duckdb.connect(str(file)) as other:
        other.execute("CREATE TABLE runs (run_id VARCHAR)")
    with History(root) as history:
        assert_same(answers(history), made)


def test_a_cache_that_takes_no_file_costs_only_time(
    root: Path, cache: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_file, "_said", set())
    cache.write_text("a file")
    caplog.set_level(logging.WARNING)
    for _ in range(2):  # said once
        with History(root) as history:
            assert history.run_ids() == [*RUNS]
            assert file_of(history).parent.parent == Path(tempfile.gettempdir())
            temporary = file_of(history)
        assert not temporary.exists()
    [said] = caplog.messages
    assert str(cache) in said and "a temporary file is used" in said

    monkeypatch.setattr(index_file, "Temporary", full)
    with pytest.raises(StorageError, match="no temporary file can be written for the index"):
        History(root)


def full(_: str) -> None:
    raise OSError(28, "No space left on device")


def test_processes_at_once_make_one_index(root: Path, interpreter: Path, cache: Path) -> None:
    code = (
        "import sys; from dsocr_core.runs.store import History; h = History(sys.argv[1]); "
        "print(h._index.file, len(h), flush=True)"
    )
    started = [
        subprocess.Popen([str(interpreter), "-c", code, str(root)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    told = {process.communicate(timeout=120)[0] for process in started}
    [line] = told
    assert line.endswith(" 3\n")
    assert len(list(cache.rglob("*.duckdb"))) == 1 and not list(cache.rglob("part-*"))


def test_two_locations_are_one_index_and_the_first_counts(root: Path, tmp_path: Path) -> None:
    write(tmp_path / "shipped", "a", 7)
    write(tmp_path / "shipped", "z", 8)
    with History(root, also=[tmp_path / "shipped"]) as history:
        assert sorted(history.run_ids()) == ["a", "b", "c", "z"]
        assert history.query("page_timings", run_ids=["a"])[0]["milliseconds"].tolist() == [1.0, 2.0, 3.0]
        history.storage.remove("a")
        history.refresh()
        assert history.query("page_timings", run_ids=["a"])[0]["milliseconds"].tolist() == [8.0, 9.0, 10.0]
        assert len(history.sql("SELECT * FROM images WHERE run_id = 'a'")) == 3
