"""Seeing runs of other processes, marks, the trash, people's SQL, damaged files, object stores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dsocr_core.runs.history import History, HistoryError
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.storage import Storage, StorageError
from tests.support.made_up_runs import record, timing, write_run


def run_names(history: History) -> list[str]:
    return history.runs()["run_id"].tolist()


def test_an_empty_place_is_an_empty_history(tmp_path: Path) -> None:
    with History(tmp_path / "not yet there") as history:
        assert len(history) == 0 and history.refresh() == 0
        assert history.query("stage_summary")[0].empty
        assert history.sql("SELECT count(*) AS n FROM boxes")["n"].tolist() == [0]
    assert not (tmp_path / "not yet there").exists()


def test_runs_of_others_come_and_go_with_a_refresh(tmp_path: Path) -> None:
    with History(tmp_path) as history:
        write_run(tmp_path, "a", [timing("p", "sam", 1.0)], created="2026-01-01")
        write_run(tmp_path, "b", [timing("p", "sam", 2.0)], created="2026-01-03T00:00:00+02:00")
        assert len(history) == 0
        assert history.refresh() == 2 and history.refresh() == 0
        assert run_names(history) == ["b", "a"]
        assert str(history.runs()["created"].iloc[0]) == "2026-01-02 22:00:00"
        Storage(tmp_path).remove("a")
        assert history.refresh() == 1
        assert run_names(history) == ["b"]
        assert history.query("stage_summary")[0]["median"].tolist() == [2.0]
        assert history.sql("SELECT count(*) AS n FROM stage_timings")["n"].tolist() == [1]


# --- marks --------------------------------------------------------------------------------------


def test_marks_of_two_readers_add_up(tmp_path: Path) -> None:
    write_run(tmp_path, "a", [timing("p", "sam", 1.0)])
    with History(tmp_path) as one, History(tmp_path) as other:
        one.tag("a", "baseline")
        other.tag("a", "h200")
        other.note("a", "first")
        one.note("a", "second")
        one.annotate("a", "verdict", "wrong box", page="p", name="3")
        one.annotate("a", "verdict", "fine", page="p", name="3")
        other.tag("a", "baseline", on=False)
        for history in (one, other):
            history.refresh()
            [run] = history.runs().to_dict("records")
            assert list(run["tags"]) == ["h200"] and run["note"] == "second" and not run["trashed"]
            assert len(history.query("annotations", run_id="a")[0]) == 7
            assert run_names(history) == history.runs(tags=["h200"])["run_id"].tolist() == ["a"]
            assert history.runs(tags=["baseline"]).empty
    with History(tmp_path) as fresh:
        assert list(fresh.runs()["tags"].iloc[0]) == ["h200"]


def test_the_trash_hides_and_gives_back(tmp_path: Path) -> None:
    for name in "abc":
        write_run(tmp_path, name, [timing("p", "sam", 1.0)])
    with History(tmp_path) as history:
        history.trash(["a", "c"])
        assert run_names(history) == ["b"] and history.trashed() == ["a", "c"]
        history.restore(["c"])
        assert run_names(history) == ["c", "b"] and history.runs(trashed=True)["run_id"].tolist() == ["a"]
        assert history.record("a").id == "a"
        with pytest.raises(HistoryError, match="no run 'x'"):
            history.trash(["b", "x"])
        assert history.trashed() == ["a"]


# --- damage -------------------------------------------------------------------------------------


def test_foreign_annotations_are_named(tmp_path: Path) -> None:
    write_run(tmp_path, "a", [timing("p", "sam", 1.0)])
    with History(tmp_path) as history:
        history.tag("a", "kept")
        for number, content in enumerate([b"", b"{}", b'{"time_ns": 1, "rows": [{"run_id": 3}]}', b"[1]"]):
            (tmp_path / "annotations" / f"foreign{number}.json").write_bytes(content)
        history.refresh()
        assert sorted(history.problems) == [f"annotations/foreign{number}.json" for number in range(4)]
        assert list(history.runs()["tags"].iloc[0]) == ["kept"]


# --- questions ----------------------------------------------------------------------------------


def test_people_see_every_table(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, record("a")) as writer:
        writer.add_rows("readings", [{"page": "p", "text_raw": "hello", "boxes": [{"number": 0, "x1": 3.0}]}])
    with History(tmp_path) as history:
        joined = "SELECT text_raw, x1 FROM images JOIN boxes USING (run_id, page)"
        assert history.sql(joined).to_dict("records") == [{"text_raw": "hello", "x1": 3.0}]
        assert history.runs_with("boxes") == ["a"] and history.runs_with("kernels") == []


def test_further_places_are_only_read(tmp_path: Path) -> None:
    write_run(tmp_path / "shipped", "old", [timing("p", "sam", 1.0)])
    write_run(tmp_path / "mine", "new", [timing("p", "sam", 2.0)])
    before = sorted((tmp_path / "shipped").rglob("*"))
    with History(tmp_path / "mine", tmp_path / "shipped") as history:
        assert sorted(history.run_ids()) == ["new", "old"]
        history.tag("old", "shown")
        history.trash(["old"])
        assert run_names(history) == ["new"]
    assert sorted((tmp_path / "shipped").rglob("*")) == before
    with History(tmp_path / "mine", tmp_path / "shipped") as history:
        assert history.trashed() == ["old"]


def test_a_url_is_no_place_of_a_history(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="the history is a directory; give a path"):
        History("s3://bucket/history")


def test_a_run_that_lost_its_document_is_named_until_it_is_back(tmp_path: Path) -> None:
    write_run(tmp_path, "a", [timing("p", "sam", 1.0)])
    (tmp_path / "runs" / "being copied").mkdir()
    document = tmp_path / "runs" / "a" / "run.json"
    document.rename(tmp_path / "aside")
    (tmp_path / "runs" / "a file").write_text("")
    (tmp_path / "runs" / "afile").write_text("")
    with History(tmp_path) as history:
        a_file = {"runs/afile": "its folder cannot be listed (Not a directory)"}
        assert len(history) == 0 and history.problems == {"runs/a": "run.json: missing"} | a_file
        (tmp_path / "aside").rename(document)
        assert history.refresh() == 1 and history.problems == a_file


@pytest.mark.parametrize("name", ["../x", "", ".x", "a/b"])
@pytest.mark.parametrize("ask", [Storage.directory, Storage.document, Storage.remove])
def test_what_is_no_name_of_a_run_is_refused(tmp_path: Path, ask: Callable[..., object], name: str) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(StorageError, match="is no name of a run"):
        ask(Storage(tmp_path), name)
    assert (tmp_path / "x").is_dir()


@pytest.mark.parametrize(
    ("relative", "words"),
    [*((out, "is not a file of a run") for out in ("../../secret", "/etc/hostname", "", "a/../..", "a\0")),
     ("clean/none.jpg", "not there"), ("x" * 300, "File name too long")],
)  # fmt: skip
def test_a_path_that_leads_out_of_a_run_is_refused(tmp_path: Path, relative: str, words: str) -> None:
    write_run(tmp_path, "a", [timing("p", "sam", 1.0)])
    (tmp_path / "secret").touch()
    with pytest.raises(StorageError, match=words):
        Storage(tmp_path).file("a", relative)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        StorageError, match=r"file/unfinished/run-1\..* could not be made \(Not a directory\)"
    ):
        RunDirectory.create(tmp_path / "file", record())


def test_questions_need_their_parameters(tmp_path: Path) -> None:
    with History(tmp_path) as history:
        for name, given, words in (
            ("what", {}, "no query 'what'"), ("facts", {"section": "x"}, r"missing \['run_ids'\]"),
            ("runs", {"speed": 1}, r"unknown \['speed'\]"),
        ):  # fmt: skip
            with pytest.raises(HistoryError, match=words):
                history.query(name, **given)
