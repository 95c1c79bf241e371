"""Chosen runs as a zip that imports elsewhere with nothing lost; texts for a benchmark."""

from __future__ import annotations

import json
import os
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.writing import StorageError
from dsocr_core.runs.checksums import write_checksums
from dsocr_core.runs.export import export_runs, export_texts
from dsocr_core.runs.history import History, HistoryError
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.results import PageResults
from tests.support.made_up_runs import HOSTILE, record, timing, write_run
from tests.support.results import make_result

MARKED = "<|ref|>text<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\nText\n\n\n\n<center>x</center>"


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    """A run of hostile texts with a file of its own, and one of two backends, of which one failed."""
    with History(tmp_path / "history") as opened:
        run = record("run-1", command="python -m dsocr_core run 'a b.png'", notes=HOSTILE[2])
        with opened.writer(run) as writer:
            rows = [{"page": f"{n} {text}", "text_raw": text} for n, text in enumerate(HOSTILE)]
            writer.add_rows("readings", [row | {"backend": "eager", "token_ids": [1]} for row in rows])
            writer.add_rows("timings", [timing(row["page"], "decode", 0.1) for row in rows])
            (writer.directory / "viz").mkdir()
            (writer.directory / "viz" / "result.mmd").write_text(HOSTILE[1])
        with opened.writer(record("failed")) as writer:
            both = [make_result(), make_result(backend="vendor")]
            writer.add(PageResults("page.png", results=both))
            writer.add(PageResults("half.png", results=both[1:], errors={"eager": "out of memory"}))
            writer.add(PageResults.failed("gone.png", ("eager", "vendor"), "gone.png: no such file"))
        opened.refresh()
        yield opened


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "elsewhere") as opened:
        yield opened


def test_a_zip_imports_elsewhere_as_the_same_run(
    history: History, elsewhere: History, tmp_path: Path
) -> None:
    assert export_runs(history, ["run-1", "failed"], tmp_path / "out.zip") == 2
    found = import_paths(elsewhere, [tmp_path / "out.zip"])
    assert {run.run_id for run in found.imported} == {"run-1", "failed"} and found.skipped == []
    for run_id in ("run-1", "failed"):
        assert elsewhere.record(run_id) == history.record(run_id)
        assert elsewhere.tables(run_id) == history.tables(run_id)
    assert (elsewhere.directory("run-1") / "viz/result.mmd").read_text() == HOSTILE[1]
    pd.testing.assert_frame_equal(elsewhere.runs(), history.runs())
    again = import_paths(elsewhere, [tmp_path / "out.zip"])
    assert (len(again.imported), len(again.known)) == (0, 2)


def test_texts_are_written_for_the_benchmark_s_evaluator(history: History, tmp_path: Path) -> None:
    with pytest.raises(DsocrError, match="results of eager and vendor; name one with --backend"):
        export_texts(history, "failed", None, tmp_path / "out")
    assert export_texts(history, "failed", "vendor", tmp_path / "out") == 2
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"page.md", "half.md"}
    with pytest.raises(StorageError, match=r"could not be written \(File exists"):
        export_texts(history, "failed", "vendor", tmp_path / "out")
    for name, pages in (("names", ("a/paper.pdf#3", "b/1.png")), ("same", ("a/1.png", "b/1.png"))):
        with history.writer(record(name)) as run:
            run.add_rows("readings", [{"page": page, "text_raw": MARKED} for page in pages])
    history.refresh()
    export_texts(history, "names", None, tmp_path / "names")
    found = {file.name: file.read_text() for file in (tmp_path / "names").iterdir()}
    assert found == dict.fromkeys(("paper_3.md", "1.md"), "\nText\n\nx")
    with pytest.raises(DsocrError, match=r"two pages of same would be called 1\.md"):
        export_texts(history, "same", None, tmp_path / "same")


def test_nothing_is_overwritten_and_nothing_half_done_is_left(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "there").mkdir()
    with pytest.raises(DsocrError, match="is there already"):
        export_runs(history, ["run-1"], tmp_path / "there")
    with pytest.raises(HistoryError):
        export_runs(history, ["run-1", "nope"], tmp_path / "x.zip")
    monkeypatch.setattr(zipfile.ZipFile, "write", lambda *_: os.fsync(10**6))
    with pytest.raises(StorageError, match="Bad file descriptor"):
        export_runs(history, ["run-1"], tmp_path / "x")
    assert {path.name for path in tmp_path.iterdir()} == {"history", "there"}


CHANGES: list[dict[str, Any]] = [
    *({"id": name} for name in ("../../evil", "other-run", "", ".hidden", "a" * 101, "a b", None)),
    {"created": "yesterday"}, {"created": "0001-01-01T00:00:00+14:00"}, {"source": "nobody"},
    {"profiled": 1}, {"backends": "eager"}, {"settings": []}, {"notes": 3},
    {"tables": None}, {"tables": {"timings": 12, "../../x": 1}}, {"tables": {"timings": 3}},
    {"calls": 2**40}, {"milliseconds": -1.0}, {"milliseconds": float("nan")}, {"stage": None},
]  # fmt: skip
"""Of a run's document, or of a row of its times."""


def test_a_changed_run_is_refused(elsewhere: History, tmp_path: Path) -> None:
    write_run(tmp_path, "run-1", [timing("p", "decode", 0.1)])
    for number, values in enumerate(CHANGES):
        run = tmp_path / "changed" / str(number)
        shutil.copytree(tmp_path / "runs" / "run-1", run)
        document = json.loads((run / "run.json").read_text())
        if values.keys() <= document.keys():
            (run / "run.json").write_text(json.dumps(document | values))
        else:
            table = pq.read_table(run / "timings.parquet")
            row = table.to_pylist()[0] | values
            pq.write_table(type(table).from_pylist([row]), run / "timings.parquet")
        write_checksums(run)  # else every change is one of a checksum
    report = import_paths(elsewhere, [tmp_path / "changed"])
    assert report.imported == [] and len(elsewhere) == 0
    assert {int(each.path.name) for each in report.skipped} == {*range(len(CHANGES))}
    assert (elsewhere.problems, elsewhere.storage.leftovers()) == ({}, [])
