"""Runs of other processes, marks, the trash, damaged runs: a damage costs its run, and is always named."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from dsocr_core.cli.main import main
from dsocr_core.reading.writing import StorageError
from dsocr_core.runs.checksums import CHECKSUMS, write_checksums
from dsocr_core.runs.history import History, HistoryError
from dsocr_core.runs.record import SCHEMA_VERSION
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.storage import RunStorage
from tests.support.made_up_runs import record, timing, write_run


def write(root: Path, *names: str) -> None:
    """Runs of one time each: 1 ms in the first one, 2 in the second, and so on."""
    for number, name in enumerate(names, 1):
        write_run(root, name, [timing("p", "sam", float(number))], created=f"2026-01-0{number}")


def run_names(history: History) -> list[str]:
    return history.runs()["run_id"].tolist()


def test_runs_of_others_come_and_go_with_a_refresh_in_the_order_of_their_time(tmp_path: Path) -> None:
    with History(tmp_path / "h") as history:
        assert len(history) == history.refresh() == 0 and history.query("stage_summary")[0].empty
        assert history.sql("SELECT count(*) AS n FROM boxes")["n"].tolist() == [0]
        assert not (tmp_path / "h").exists()
        for name, created in (
            ("now", "2026-01-01"), ("zone", "2026-01-03T00:00:00+02:00"), ("old", "1969-12-31"),
            ("new", "2999-01-01"),
        ):  # fmt: skip
            write_run(tmp_path / "h", name, [timing("p", "sam", 2.0)], created=created)
        assert history.refresh() == 4 and history.refresh() == 0
        assert history.run_ids() == ["old", "now", "zone", "new"] == run_names(history)[::-1]
        assert str(history.runs()["created"].iloc[1]) == "2026-01-02 22:00:00"
        for name in ("now", "old", "new"):
            RunStorage(tmp_path / "h").remove(name)
        assert history.refresh() == 3 and run_names(history) == ["zone"]
        assert history.query("stage_summary")[0]["median"].tolist() == [2.0]
        assert history.sql("SELECT count(*) AS n FROM timings")["n"].tolist() == [1]


def test_further_places_are_only_read_and_the_first_one_counts(tmp_path: Path) -> None:
    write(tmp_path / "shipped", "old", "both")
    write(tmp_path / "mine", "both")
    before = sorted((tmp_path / "shipped").rglob("*"))
    of_both = "SELECT milliseconds FROM timings WHERE run_id = 'both'"
    for _ in range(2):
        with History(tmp_path / "mine", tmp_path / "shipped") as history:
            assert sorted(history.run_ids()) == ["both", "old"]
            assert history.sql(of_both)["milliseconds"].tolist() == [1.0]
            history.tag("old", "shown")
            history.trash(["old"])
            assert run_names(history) == ["both"] and history.trashed() == ["old"]
    assert sorted((tmp_path / "shipped").rglob("*")) == before
    with History(tmp_path / "mine", tmp_path / "shipped") as history:
        history.storage.remove("both")
        history.refresh()
        assert history.sql(of_both)["milliseconds"].tolist() == [2.0]


# --- marks ----------------------------------------------------------------------------------------


def test_marks_of_two_readers_add_up_and_the_last_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, *"abc")
    with History(tmp_path) as one, History(tmp_path) as other:
        one.tag("a", "baseline")
        other.tag("a", "h200")
        other.note("a", "before")
        one.annotate("a", "verdict", [("p", "3", "wrong box")])
        one.trash(["a", "c"])
        with pytest.raises(HistoryError, match="no run 'x'"):
            one.trash(["b", "x"])
        assert run_names(one) == ["b"] and one.trashed() == ["a", "c"]
        now = time.time_ns()
        monkeypatch.setattr(time, "time_ns", lambda: now - 86_400 * 10**9)  # the clock went back
        one.note("a", "after")
        one.restore(["a"])
        other.tag("a", "baseline", on=False)
        with History(tmp_path) as fresh:
            for history in (one, other, fresh):
                history.refresh()
                run = history.runs().iloc[-1]
                assert list(run["tags"]) == ["h200"] and run["note"] == "after" and not run["trashed"]
                marks = history.sql("FROM marks ORDER BY run_id").to_dict("records")
                assert [list(mark["tags"]) for mark in marks] == [["h200"], []]
                assert len(history.query("annotations", run_id="a")[0]) == 8
                assert history.runs(tags=["h200"])["run_id"].tolist() == ["a"]
                assert history.runs(tags=["baseline"]).empty and history.trashed() == ["c"]
                assert (
                    history.runs(trashed=True)["run_id"].tolist() == ["c"] and history.record("c").id == "c"
                )


def test_changed_and_foreign_annotations_are_named(tmp_path: Path) -> None:
    write(tmp_path, "a")
    with History(tmp_path) as history:
        history.note("a", "fine")
        history.tag("a", "kept")
        noted = tmp_path / "annotations"
        changed = next(path for path in noted.iterdir() if b"fine" in path.read_bytes())
        changed.write_bytes(changed.read_bytes().replace(b"fine", b"fire"))
        for number, content in enumerate([b"", b"{}", b'{"time_ns": 1, "rows": [{"run_id": 3}]}', b"[1]"]):
            (noted / f"foreign{number}.json").write_bytes(content)
        history.refresh()
        damaged = [changed.name, *(f"foreign{number}.json" for number in range(4))]
        assert sorted(history.problems) == [f"annotations/{name}" for name in damaged]
        run = history.runs().iloc[0]
        assert list(run["tags"]) == ["kept"] and not isinstance(run["note"], str)
        history.note("a", "first")
        history.note("a", "second")
        max(noted.glob("[0-9]*")).unlink()
        history.refresh()
        assert history.runs()["note"].tolist() == ["first"]


# --- damage ---------------------------------------------------------------------------------------

RUNS = ("run-0", "run-1", "run-2", "run-3", "run-4")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Five runs, each with texts, boxes and lists of numbers, so that every kind of column is there."""
    for number, name in enumerate(RUNS):
        with RunDirectory.create(tmp_path, record(name, created=f"2026-01-0{number + 1}")) as run:
            pages = [f"page-{page}" for page in range(4)]
            run.add_rows("timings", [timing(page, "decode", number + 1.0) for page in pages])
            row = {"backend": "eager", "token_ids": [*range(50)], "boxes": [{"number": 0, "text": "a box"}]}
            run.add_rows("readings", [{"page": page, "text_raw": page * 20, **row} for page in pages])
    return tmp_path


def mutated(content: bytes, random: random.Random) -> bytes | None:
    """The content with a bit, a byte, a hole, a cut, a byte too many, twice, or none; None: it is gone."""
    at = random.randrange(len(content))
    before, after = content[:at], content[at:]
    end = random.randrange(1, 64)
    return random.choice([
        before + bytes([after[0] ^ 1 << random.randrange(8)]) + after[1:],
        before + bytes([(after[0] + random.randrange(1, 256)) % 256]) + after[1:],
        before + (bytes(end) if any(after[:end]) else b"\xff" * end)[: len(after)] + after[end:],
        before, content + content, before + bytes([random.randrange(256)]) + after, b"", None,
    ])  # fmt: skip


def answers(history: History) -> int:
    """Every kind of question about all that opens; returns how many runs answered."""
    run_ids = history.run_ids()
    history.query("stage_summary")
    found = history.sql("SELECT run_id, text FROM readings JOIN boxes USING (run_id, page)")
    assert set(found["run_id"]) == set(run_ids) and set(found["text"]) == {"a box"}
    for run_id in run_ids:
        assert len(history.tables(run_id)["readings"]) == 4
    return len(run_ids)


@pytest.mark.parametrize(
    "draws",
    [
        (range(4), range(4, 7), range(7, 8)),
        pytest.param([range(seed, seed + 2) for seed in range(1000, 1400, 2)], marks=pytest.mark.slow),
    ],
)
def test_mutated_runs_are_named_and_every_other_opens(root: Path, draws: Sequence[Sequence[int]]) -> None:
    """A file of the first runs, one a seed."""
    for seeds in draws:
        before = dict[Path, bytes]()
        for name, chance in zip(RUNS, map(random.Random, seeds), strict=False):
            file = chance.choice(sorted((root / "runs" / name).iterdir()))
            before[file] = file.read_bytes()
            if (content := mutated(before[file], chance)) is None:
                file.unlink()
            else:
                file.write_bytes(content)
        with History(root) as history:
            assert sorted(history.problems) == [f"runs/{name}" for name in RUNS[: len(seeds)]], seeds
            assert answers(history) == len(RUNS) - len(seeds)
        for file, content in before.items():
            file.write_bytes(content)


def test_the_list_of_checksums_is_sha256sum_s(root: Path) -> None:
    run = root / "runs" / "run-0"
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", CHECKSUMS], cwd=run, check=True)
    listed = {line.split("  ")[1] for line in (run / CHECKSUMS).read_text().splitlines()[:-1]}
    assert listed == {path.name for path in run.glob("*")} - {CHECKSUMS}


def test_a_run_damaged_while_the_history_is_open_is_left_out_until_it_is_repaired(root: Path) -> None:
    with History(root) as history:
        file = root / "runs" / "run-3" / "readings.parquet"
        content = file.read_bytes()
        file.write_bytes(content[:100])
        sides = {"a": "run-1", "b": "run-3", "backend_a": "eager", "backend_b": "eager"}
        assert set(history.query("coverage", **sides)[0]["outcome"]) == {"not in B"}
        assert list(history.problems) == ["runs/run-3"]
        with pytest.raises(HistoryError, match=r"run run-3 is damaged: readings.parquet: .*history check"):
            history.record("run-3")
        file.write_bytes(content)
        assert history.refresh() == 1 and not history.problems and answers(history) == 5


def test_a_check_names_the_file_with_a_flipped_byte_whether_or_not_it_is_a_table(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    picture, place = root / "runs" / "run-0" / "clean" / "page.png", ("--history", str(root))
    picture.parent.mkdir()
    picture.write_bytes(b"as written")
    write_checksums(picture.parent.parent)
    assert main(["history", "check", *place]) == 0
    picture.write_bytes(b"as writteN")
    assert main(["history", "check", *place]) == 1
    assert "runs/run-0: clean/page.png: damaged" in capsys.readouterr().out


def test_a_run_of_a_later_version_is_no_damage_and_is_never_deleted(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = root / "runs" / "run-0" / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"schema_version": SCHEMA_VERSION + 1}))
    place = ("--history", str(root))
    assert main(["history", "check", *place]) == 0
    assert "not read  runs/run-0" in capsys.readouterr().out
    assert main(["history", "trash", "run-0", *place]) == 0  # as a person asked
    assert main(["history", "trash", "--empty", *place]) == 0
    with History(root) as history, pytest.raises(StorageError), history.writer(record("run-0")) as run:
        run.add_rows("timings", [timing("p", "decode", 1.0)])
    assert json.loads(file.read_text())["schema_version"] == SCHEMA_VERSION + 1


@pytest.mark.parametrize("kind", ["dangling link", "file", "no document"])
def test_what_is_no_run_is_named_and_can_be_deleted(tmp_path: Path, kind: str) -> None:
    write(tmp_path, "a", "strange")
    strange = tmp_path / "runs" / "strange"
    (strange / "run.json").rename(tmp_path / "aside")
    (tmp_path / "runs" / "being copied").mkdir()
    if kind != "no document":
        strange.rename(tmp_path / "away")
    with History(tmp_path) as history:
        history.tag("a", "mine")
        if kind == "file":
            strange.write_text("words")
        elif kind == "dangling link":
            strange.symlink_to(tmp_path / "nowhere")
        history.refresh()
        words = "run.json: missing" if kind == "no document" else "its folder cannot be listed"
        assert list(history.problems) == ["runs/strange"] and words in history.problems["runs/strange"]
        write(tmp_path, "another")
        history.refresh()  # what comes later is there too
        assert run_names(history) == ["another", "a"] and history.runs(tags=["mine"])["run_id"].item() == "a"
        if kind == "no document":
            (tmp_path / "aside").rename(strange / "run.json")
            assert history.refresh() == 1 and not history.problems
        history.trash(["strange"])
        assert history.empty_trash() == 1
        assert not history.problems and not list((tmp_path / "unfinished").iterdir())


# --- places ---------------------------------------------------------------------------------------


def test_names_that_lead_elsewhere_are_refused(tmp_path: Path) -> None:
    write(tmp_path, "a")
    (tmp_path / "x").mkdir()
    for name in ("../x", "", ".x", "a/b"):
        for ask in (RunStorage.directory, RunStorage.document, RunStorage.remove):
            with pytest.raises(StorageError, match="is no name of a run"):
                ask(RunStorage(tmp_path), name)
    assert (tmp_path / "x").is_dir()


def test_a_place_that_cannot_be_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    words = r"file/unfinished/run-1\..* could not be written \(Not a directory\)"
    with pytest.raises(StorageError, match=words):
        RunDirectory.create(tmp_path / "file", record())
    (tmp_path / "runs").symlink_to(tmp_path / "nowhere")
    for place, words in (
        (tmp_path, "runs: No such file"), ("s3://bucket/history", "the history is a directory; give a path")
    ):  # fmt: skip
        with pytest.raises(StorageError, match=words):
            History(place)
