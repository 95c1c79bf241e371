"""Chosen runs as Parquet, CSV and zip: nothing lost, nothing run, and the zip imports elsewhere."""

import csv
import json
import zipfile

import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dsocr_core.reading.comparison import Comparison
from dsocr_core.runs.exporters import ExportError, export_runs
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.recorder import RunRecorder
from dsocr_core.runs.store import History, HistoryError
from dsocr_core.settings import Settings
from tests.support.results import make_result

HOSTILE = [
    'it\'s "quoted"',
    "'; DROP TABLE runs; --",
    "<script>alert(1)</script>",
    "../../../etc/passwd",
    "y" * 4000,
    "📄 straße 测试",
    '=HYPERLINK("http://x","y")',
    "+1+1",
    "-1",
    "@SUM(A1)",
    "a,b\r\nc\td",
    "",
]


def fill(history: History, run_id: str, texts=HOSTILE) -> RunRecord:
    record = RunRecord(
        id=run_id,
        created="2026-01-02T03:04:05+00:00",
        source="dsocr",
        command="python -m dsocr_core run 'a b.png'",
        backends=("eager", "vendor"),
        engine="eager",
        settings={"infer": {"max_new_tokens": 8192}, "prompt": texts[0]},
        git_dirty=False,
        notes=texts[1],
    )
    with history.writer(record) as run:
        run.add(
            "readings",
            [
                {
                    "page": f"{index} {text}",
                    "backend": "eager",
                    "text_raw": text,
                    "width": 640,
                    "bytes": index,
                }
                for index, text in enumerate(texts)
            ],
        )
        run.add(
            "stage_timings",
            [
                {
                    "page": f"{index} {text}", "backend": "eager", "stage": "decode",
                    "milliseconds": 0.1 + index,
                    "calls": index + 1, "inside_prefill": False, "aggregate": "page",
                }
                for index, text in enumerate(texts)
            ],
        )  # fmt: skip
        run.add("readings", [{"page": "p", "backend": "eager", "token_ids": [1, 2, 128815]}])
        viz = run.directory / "viz" / "0123456789abcdef0123456789abcdef"
        viz.mkdir(parents=True)
        (viz / "result.mmd").write_text(texts[2])
    history.refresh()
    return record


def run_with_failures(history, image):
    """Three pages of both backends: read, failed on A, and gone."""
    Image.new("RGB", (1000, 800), "white").save(image)
    result = make_result(image=image)
    both = Comparison(result.request, result, make_result(backend="vendor", image=image))
    half = Comparison(result.request, None, both.b, errors={"a": "out of memory; at 'x.png'"})
    with RunRecorder(Settings(history=str(history.storage.location)), "dsocr compare") as recorder:
        recorder.add("page.png", both)
        recorder.add("half.png", half)
        recorder.add_failure("gone.png", ("eager", "vendor"), "gone.png: no such file")
    history.refresh()
    return recorder.id


@pytest.fixture
def history(tmp_path):
    with History(tmp_path / "history") as opened:
        yield opened


def test_a_zip_imports_elsewhere_as_the_same_run(history, tmp_path):
    fill(history, "run-1")
    fill(history, "run-2", texts=HOSTILE[::-1])
    failed = run_with_failures(history, tmp_path / "page.png")
    report = export_runs(history, ["run-1", "run-2", failed], tmp_path / "out.zip", "zip")
    assert (report.runs, report.rows["readings"]) == (3, 2 * len(HOSTILE) + 2 + 6)
    with History(tmp_path / "elsewhere") as other:
        found = import_paths(other, [tmp_path / "out.zip"])
        assert {run.run_id for run in found.imported} == {"run-1", "run-2", failed}
        assert found.skipped == [] and "parity" in other.tables(failed)
        for run_id in ("run-1", "run-2", failed):
            assert other.record(run_id) == history.record(run_id)
            assert other.tables(run_id) == history.tables(run_id)
            names = history.file_names(run_id)
            assert other.file_names(run_id) == names and (names or run_id == failed)
            for name in names:
                assert other.file(run_id, name).read_bytes() == history.file(run_id, name).read_bytes()
        pd.testing.assert_frame_equal(other.runs(), history.runs())
        again = import_paths(other, [tmp_path / "out.zip"])
        assert (len(again.imported), len(again.known)) == (0, 3)
    # The same runs make the same archive.
    export_runs(history, ["run-1", "run-2", failed], tmp_path / "again.zip", "zip")
    assert (tmp_path / "again.zip").read_bytes() == (tmp_path / "out.zip").read_bytes()


def test_parquet_holds_every_row(history, tmp_path):
    fill(history, "run-1")
    fill(history, "run-2")
    export_runs(history, ["run-2", "run-1"], tmp_path / "out", "parquet")
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "runs.parquet", "readings.parquet", "timings.parquet",
    }  # fmt: skip
    images = pq.read_table(tmp_path / "out" / "readings.parquet").to_pylist()
    assert [(row["run_id"], row["text_raw"]) for row in images if row["token_ids"] is None] == [
        (run_id, text) for run_id in ("run-2", "run-1") for text in HOSTILE
    ]
    runs = pq.read_table(tmp_path / "out" / "runs.parquet").to_pylist()
    assert [row["id"] for row in runs] == ["run-2", "run-1"]
    assert json.loads(runs[0]["settings"]) == {"infer": {"max_new_tokens": 8192}, "prompt": HOSTILE[0]}
    assert (runs[0]["git_dirty"], runs[0]["gpu"], runs[0]["notes"]) == (False, None, HOSTILE[1])


def test_csv_has_every_figure_and_no_formula(history, tmp_path):
    fill(history, "run-1")
    report = export_runs(history, ["run-1"], tmp_path / "out", "csv")
    assert report.rows == {"runs": 1, "images": len(HOSTILE) + 1, "stage_timings": len(HOSTILE), "tokens": 1}

    def read(name):
        with (tmp_path / "out" / f"{name}.csv").open(encoding="utf-8", newline="") as handle:
            return list(csv.DictReader(handle))

    assert [float(row["milliseconds"]) for row in read("stage_timings")] == [
        0.1 + index for index in range(len(HOSTILE))
    ]
    cells = [row["text_raw"] for row in read("images")[: len(HOSTILE)]]
    assert [
        cell.removeprefix("'") if text[:1] in ("=", "+", "-", "@") else cell
        for cell, text in zip(cells, HOSTILE, strict=True)
    ] == HOSTILE
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in read("images") for cell in row.values())
    assert read("images")[0]["height"] == ""
    assert json.loads(read("tokens")[0]["token_ids"]) == [1, 2, 128815]


def test_nothing_is_overwritten_and_nothing_half_done_is_left(history, tmp_path, monkeypatch):
    fill(history, "run-1")
    (tmp_path / "there").mkdir()
    for form in ("zip", "csv", "parquet"):
        with pytest.raises(ExportError, match="is there already"):
            export_runs(history, ["run-1"], tmp_path / "there", form)
    with pytest.raises(HistoryError):
        export_runs(history, ["run-1", "nope"], tmp_path / "x.zip", "zip")
    with pytest.raises(ExportError, match="no runs"):
        export_runs(history, [], tmp_path / "x.zip", "zip")
    with pytest.raises(ExportError, match="one of parquet, csv, zip"):
        export_runs(history, ["run-1"], tmp_path / "x", "xlsx")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pq, "write_table", full)
    monkeypatch.setattr("dsocr_core.runs.exporters._append_csv", full)
    for form in ("zip", "csv", "parquet"):
        with pytest.raises(ExportError, match="No space left"):
            export_runs(history, ["run-1"], tmp_path / "x", form)
    assert {path.name for path in tmp_path.iterdir()} == {"history", "there"}


# --- zips that strangers made -----------------------------------------------------------------------


@pytest.fixture
def unpacked(history, tmp_path):
    """A run's exported directory, to be damaged."""
    fill(history, "run-1")
    export_runs(history, ["run-1"], tmp_path / "out.zip", "zip")
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        archive.extractall(tmp_path / "unpacked")
    return tmp_path / "unpacked" / "run-1"


def change(directory, **values):
    document = json.loads((directory / "run.json").read_text())
    (directory / "run.json").write_text(json.dumps(document | values))


@pytest.fixture
def elsewhere(tmp_path):
    with History(tmp_path / "elsewhere") as opened:
        yield opened


def test_a_changed_record_is_refused(elsewhere, unpacked):
    whole = (unpacked / "run.json").read_text()
    for values in (
        {"id": "../../evil"},
        {"id": "other-run"},
        {"schema_version": 99},
        {"schema_version": None},
        {"created": "yesterday"},
        {"created": "0001-01-01T00:00:00+14:00"},
        {"source": "nobody"},
        {"settings": []},
        {"tables": None},
        {"tables": {"images": 12, "../../x": 1}},
        {"tables": {"images": 3}},
        {"tables": {"boxes": 3}},
    ):
        (unpacked / "run.json").write_text(whole)
        change(unpacked, **values)
        report = import_paths(elsewhere, [unpacked.parent])
        assert (report.imported, len(elsewhere)) == ([], 0), values
        assert [item.path.name for item in report.skipped] == ["run.json"], values


def test_a_changed_table_is_refused(elsewhere, unpacked):
    table = pq.read_table(unpacked / "timings.parquet")
    for column, value in (
        ("calls", 2**40),
        ("milliseconds", -1.0),
        ("milliseconds", float("nan")),
        ("stage", None),
    ):
        changed = [row | {column: value} for row in table.to_pylist()]
        pq.write_table(type(table).from_pylist(changed), unpacked / "x")
        (unpacked / "x").replace(unpacked / "timings.parquet")
        assert import_paths(elsewhere, [unpacked]).imported == []
        assert (elsewhere.problems, elsewhere.storage.leftovers()) == ({}, [])
