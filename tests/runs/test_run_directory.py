"""A run is written whole or not at all, and holds what the results held."""

from __future__ import annotations

import contextlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT, PROJECT_ROOT
from dsocr_core.reading.artifacts import BACKENDS
from dsocr_core.reading.clean import FOLDER as CLEAN
from dsocr_core.reading.records import VENDOR
from dsocr_core.runs.checksums import write_checksums
from dsocr_core.runs.history import History
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.record import record_run
from dsocr_core.runs.results import PageResults
from dsocr_core.runs.run_directory import UNFINISHED, RunDirectory
from dsocr_core.runs.schema import checked_table, rows_to_table
from dsocr_core.runs.storage import EntryExists, RunStorage
from dsocr_core.settings import Settings
from tests.support.made_up_runs import record, timing
from tests.support.results import make_result


def test_threads_add_pages_once_each(tmp_path: Path) -> None:
    names = [f"page-{number}" for number in range(40)]
    with contextlib.closing(RunDirectory.open(tmp_path)) as run, ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: run.add(PageResults(name, results=[make_result(name)])), names))
        run.finish(record())
    found = {row["page"]: row["text_raw"] for row, _ in RunDirectory(tmp_path).results()}
    assert found == {name: name for name in names}


def test_a_page_is_on_the_disk_when_add_returns_and_a_run_when_it_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced, sync = set[tuple[int, int]](), os.fsync

    def watched(handle: int) -> None:
        status = os.fstat(handle)
        synced.add((status.st_ino, status.st_size))
        sync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    with contextlib.closing(RunDirectory.open(tmp_path / "out")) as run:
        for name in ("a", "b"):
            run.add(PageResults(name, results=[make_result()]))
            parts = [file.stat() for file in (tmp_path / "out").rglob("*.arrow")]
            assert {(part.st_ino, part.st_size) for part in parts} <= synced and parts
        run.finish(record())
        files = [file.stat() for file in (tmp_path / "out").glob("[!.]*") if file.is_file()]
        assert {(file.st_ino, file.st_size) for file in files} <= synced and len(files) > 3


def test_what_killed_writers_left_goes_and_what_a_run_below_is_writing_stays(tmp_path: Path) -> None:
    places = ("viz", f"{VENDOR}/viz", f"{BACKENDS}/a/viz", "pages", CLEAN, UNFINISHED, "fast/viz")
    for place in places:
        (tmp_path / place / ".part-c" / "images").mkdir(parents=True)
    (tmp_path / ".part-predictions.jsonl").touch()
    with contextlib.closing(RunDirectory.open(tmp_path)):
        left = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob(".part-*")]
    assert left == ["fast/viz/.part-c"]


def test_an_exception_leaves_nothing_to_see(tmp_path: Path) -> None:
    place = RunStorage(tmp_path)
    for pages in (0, 1):
        with pytest.raises(ZeroDivisionError), RunDirectory.create(place, record()) as writer:
            assert place.leftovers() == [], "while it is written it is none"
            for _ in range(pages):
                writer.add(PageResults("a", results=[make_result()]))
            _ = 1 / 0
        assert place.names() == set() and len(place.leftovers()) == pages
    assert "run-1" in place.leftovers()[0].path


def test_a_run_never_replaces_another(tmp_path: Path) -> None:
    for page, refused in (("first", contextlib.nullcontext()), ("second", pytest.raises(EntryExists))):
        with refused, RunDirectory.create(tmp_path, record()) as writer:
            writer.add_rows("readings", [{"page": page}])
    table = pq.read_table(tmp_path / "runs" / "run-1" / "readings.parquet")
    assert table["page"].to_pylist() == ["first"]


@pytest.mark.parametrize(
    "table, row, words",
    [
        ("timings", timing("p", "sam", 1.0, speed=3), "no column speed"),
        ("timings", timing("p", "sam", float("nan")), "not finite"),
        ("timings", timing("p", "sam", -1.0), "below 0"),
        ("timings", timing("p", "sam", True), "milliseconds"),
        ("timings", timing("p", "sam", 1.0, inside_prefill=1), "inside_prefill"),
        ("timings", timing("p", "sam", 1.0, aggregate="median"), "aggregate"),
        ("timings", timing("p", "sam", 1.0, calls=1.5), "calls"),
        ("timings", {"page": "p", "stage": "sam"}, "backend.* null values"),
        ("readings", {"page": "p", "token_ids": [2**40]}, "token_ids"),
        ("readings", {"width": 1}, "page' with null values"),
    ],
)
def test_rows_that_cannot_be_meant_are_refused(table: str, row: dict[str, object], words: str) -> None:
    with pytest.raises(DsocrError, match=words):
        rows_to_table(table, "r", [row])


def test_of_two_columns_of_one_name_none_is_taken() -> None:
    twice = pa.table([["p"], ["q"]], names=["page", "page"])
    with pytest.raises(DsocrError, match="table readings: several columns have one name"):
        checked_table("readings", "r", twice)


def test_a_checkpoint_of_the_project_is_named_within_it() -> None:
    """Two clones read with one checkpoint: where they lie is no difference of their runs."""
    inside = replace(make_result(), environment={"checkpoint": str(EMBEDDED_CHECKPOINT)})
    run = record_run(Settings(), [inside], None)
    assert run.settings["checkpoint"] == run.environment["eager"]["checkpoint"] == "data/mini"
    config = PROJECT_ROOT / "published" / "config.json"
    for given, named in ((f"random:{config}", "random:published/config.json"), ("/models/a", "/models/a")):
        assert record_run(Settings(checkpoint=given), [], None).settings["checkpoint"] == named


@pytest.mark.parametrize("version", [3, 5, 0, -1, None, "4", True, 1.0])
def test_a_run_of_another_version_is_named_and_skipped(tmp_path: Path, version: object) -> None:
    for name in ("run-1", "run-2"):
        with RunDirectory.create(tmp_path / "h", record(name)) as run:
            run.add_rows("readings", [{"page": "p", "backend": "eager", "text_raw": "text"}])
    directory = tmp_path / "h" / "runs" / "run-1"
    document = json.loads((directory / "run.json").read_text()) | {"schema_version": version}
    (directory / "run.json").write_text(json.dumps(document))
    write_checksums(directory)
    with History(tmp_path / "h") as history:
        assert history.run_ids() == ["run-2"]
        reason = history.problems["runs/run-1"]
    words = {3: "recorded by another version (schema 3): record it anew", 5: "(schema 5): update the program"}
    assert words.get(version if type(version) is int else 0, "not a run of this project") in reason
    with History(tmp_path / "into") as history:
        [skipped] = import_paths(history, [directory]).skipped
        assert reason.endswith(skipped.reason) and history.run_ids() == []
