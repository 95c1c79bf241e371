"""A run is written whole or not at all, and holds what the results held."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from PIL import Image

from dsocr_core.base.paths import EMBEDDED_CHECKPOINT, PROJECT_ROOT
from dsocr_core.reading.parity import compare_results
from dsocr_core.runs.history import History
from dsocr_core.runs.record import record_run
from dsocr_core.runs.results import PageResults, parity_row
from dsocr_core.runs.run_directory import RunDirectory
from dsocr_core.runs.storage import EntryExists, Storage
from dsocr_core.settings import Settings
from tests.support.flat_tables import flat_tables
from tests.support.made_up_runs import record
from tests.support.results import make_result

TWO_BOXES = (
    "<|ref|>title<|/ref|><|det|>[[100, 100, 500, 200]]<|/det|>\n# Hello\n"
    "<|ref|>text<|/ref|><|det|>[[0, 500, 999, 600]]<|/det|>\nWorld\n"
)


def test_what_two_backends_gave_is_all_there(tmp_path: Path) -> None:
    image = tmp_path / "page.png"
    Image.new("RGB", (1000, 800), "white").save(image)
    ours, vendor = make_result(TWO_BOXES, image=image), make_result(backend="vendor", image=image)
    report = compare_results(ours, vendor)
    run = record_run(Settings(), [ours, vendor], "python -m dsocr_core compare page.png", notes="a first try")
    with RunDirectory.create(tmp_path / "h", run) as writer:
        writer.add(PageResults("page.png", results=[ours]))
        writer.add(PageResults("page.png", results=[vendor]))
        writer.add_rows("parity", [parity_row("page.png", report)])
        writer.add(PageResults.failed("broken.png", ["eager"], "broken.png: cannot be read"))
    directory = tmp_path / "h" / "runs" / run.id
    with History(tmp_path / "h") as history:
        assert history.record(run.id) == run
        tables = {name: table.to_pylist() for name, table in flat_tables(history, run.id).items()}
    of_ours = next(row for row in tables["images"] if row["backend"] == "eager" and row["page"] == "page.png")
    assert (of_ours["width"], of_ours["height"], of_ours["bytes"]) == (1000, 800, image.stat().st_size)
    assert (of_ours["new_tokens"], of_ours["prompt_tokens"]) == (len(TWO_BOXES), 5)
    assert of_ours["text_raw"] == TWO_BOXES
    failed = next(row for row in tables["images"] if row["page"] == "broken.png")
    assert failed["error"] == "broken.png: cannot be read"
    assert failed["text_raw"] is None and failed["new_tokens"] is None
    times = {
        row["stage"]: (row["milliseconds"], row["inside_prefill"])
        for row in tables["stage_timings"]
        if row["backend"] == "eager"
    }
    assert len(times) == 9
    assert times["sam"] == (10.0, True) and times["prefill"] == (50.0, False)
    assert {stage for stage, (_, inside) in times.items() if inside} == {
        "sam", "clip", "projector", "vision_fusion"
    }  # fmt: skip
    # 999 is the far side of a page 1000 pixels wide.
    boxes = [row for row in tables["boxes"] if row["backend"] == "eager"]
    assert [row["label"] for row in boxes] == ["title", "text"]
    assert [row["number"] for row in boxes] == [0, 1]
    assert [(row["x1"], row["x2"]) for row in boxes] == [(100.0, 500.0), (0.0, 1000.0)]
    tokens = {row["backend"]: row["token_ids"] for row in tables["readings"] if row["token_ids"]}
    assert tokens["eager"] == list(ours.token_ids) and tokens["vendor"] == list(vendor.token_ids)
    [row] = tables["parity"]
    assert (row["verdict"], row["boxes_a"], row["boxes_b"]) == (report.verdict, 2, 1)
    assert row["character_error_rate"] == report.character_error_rate > 0
    # Our text goes on where the vendor's ends: 66 characters, a token each.
    assert row["first_divergence"] == 66 == len(vendor.token_ids)
    assert not (directory / "viz").exists() and not (directory / "predictions.jsonl").exists()
    assert json.loads((directory / "run.json").read_text())["tables"]["readings"] == 3
    assert not Storage(tmp_path / "h").leftovers()


def test_a_page_is_on_the_disk_when_add_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, sync = set[tuple[int, int]](), os.fsync

    def watched(handle: int) -> None:
        status = os.fstat(handle)
        synced.add((status.st_ino, status.st_size))
        sync(handle)

    monkeypatch.setattr(os, "fsync", watched)
    run = RunDirectory.open(tmp_path / "out")
    with contextlib.closing(run):
        for name in ("a", "b"):
            run.add(PageResults(name, results=[make_result()]))
            parts = [file.stat() for file in (tmp_path / "out").rglob("*.parquet")]
            assert {(part.st_ino, part.st_size) for part in parts} <= synced and parts


def test_an_exception_leaves_nothing_to_see(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), RunDirectory.create(tmp_path, record()) as writer:
        writer.add_rows("readings", [{"page": "a"}])
        _ = 1 / 0
    place = Storage(tmp_path)
    assert place.names() == set()
    [leftover] = place.leftovers()
    assert "run-1" in leftover.path
    assert [item.path for item in place.leftovers(clear=True)] == [leftover.path] and place.leftovers() == []


def test_a_run_being_written_is_no_leftover_and_a_table_without_rows_has_no_file(tmp_path: Path) -> None:
    place = Storage(tmp_path)
    with RunDirectory.create(tmp_path, record()) as writer:
        writer.add_rows("parity", [])
        writer.add_rows("readings", [{"page": "a"}])
        assert place.leftovers() == [] and place.leftovers(clear=True) == [] and writer.directory.is_dir()
    assert place.names() == {"run-1"}
    names = sorted(path.name for path in place.directory("run-1").iterdir())
    assert names == ["SHA256SUMS", "readings.parquet", "run.json"]


def test_a_run_never_replaces_another(tmp_path: Path) -> None:
    for page in ("first", "second"):
        writer = RunDirectory.create(tmp_path, record())
        writer.add_rows("readings", [{"page": page}])
        if page == "first":
            writer.finish()
        else:
            with pytest.raises(EntryExists):
                writer.finish()
        writer.close()
    table = pq.read_table(tmp_path / "runs" / "run-1" / "readings.parquet")
    assert table["page"].to_pylist() == ["first"]


def test_a_checkpoint_of_the_project_is_named_within_it() -> None:
    """Two clones read with one checkpoint: where they lie is no difference of their runs."""
    inside = replace(make_result(), environment={"checkpoint": str(EMBEDDED_CHECKPOINT)})
    run = record_run(Settings(), [inside], None)
    assert run.settings["checkpoint"] == run.environment["eager"]["checkpoint"] == "data/mini"
    config = PROJECT_ROOT / "published" / "config.json"
    assert record_run(Settings(checkpoint=f"random:{config}"), [], None).settings["checkpoint"] == (
        "random:published/config.json"
    )
    assert record_run(Settings(checkpoint="/models/a"), [], None).settings["checkpoint"] == "/models/a"
