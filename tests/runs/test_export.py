"""Chosen runs as a zip that imports elsewhere with nothing lost; texts for a benchmark."""

import json
import zipfile

import pandas as pd
import pyarrow.parquet as pq
import pytest
from PIL import Image

from dsocr_core.cli.main import main
from dsocr_core.reading.comparison import Comparison
from dsocr_core.runs.export import ExportError, export_runs, export_texts
from dsocr_core.runs.history import History, HistoryError
from dsocr_core.runs.importers.detect import import_paths
from dsocr_core.runs.record import RunRecord
from dsocr_core.runs.recording import Recording
from dsocr_core.runs.rows import PageResults
from dsocr_core.settings import Settings
from tests.support.results import make_result

MARKED = "<|ref|>text<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\nText\n\n\n\n"
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
        run.add_rows(
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
        run.add_rows(
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
        run.add_rows("readings", [{"page": "p", "backend": "eager", "token_ids": [1, 2, 128815]}])
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
    with Recording(Settings(history=str(history.storage.location)), "dsocr compare") as recorder:
        recorder.add("page.png", both)
        recorder.add("half.png", half)
        recorder.add_page(PageResults.failed("gone.png", ("eager", "vendor"), "gone.png: no such file"))
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
    assert export_runs(history, ["run-1", "run-2", failed], tmp_path / "out.zip") == 3
    with History(tmp_path / "elsewhere") as other:
        found = import_paths(other, [tmp_path / "out.zip"])
        assert {run.run_id for run in found.imported} == {"run-1", "run-2", failed}
        assert found.skipped == [] and "parity" in other.tables(failed)
        for run_id in ("run-1", "run-2", failed):
            assert other.record(run_id) == history.record(run_id)
            assert other.tables(run_id) == history.tables(run_id)
            texts = sorted(history.directory(run_id).glob("viz/*/*"))
            assert texts or run_id == failed
            for file in texts:
                name = file.relative_to(history.directory(run_id)).as_posix()
                assert other.file(run_id, name).read_bytes() == file.read_bytes()
        pd.testing.assert_frame_equal(other.runs(), history.runs())
        again = import_paths(other, [tmp_path / "out.zip"])
        assert (len(again.imported), len(again.known)) == (0, 3)
    # The same runs make the same archive.
    export_runs(history, ["run-1", "run-2", failed], tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == (tmp_path / "out.zip").read_bytes()


def test_texts_are_written_for_the_benchmark_s_evaluator(history, tmp_path):
    failed = run_with_failures(history, tmp_path / "page.png")
    with pytest.raises(ExportError, match="results of eager and vendor; name one with --backend"):
        export_texts(history, failed, None, tmp_path / "out")
    assert export_texts(history, failed, "vendor", tmp_path / "out") == 2
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"page.md", "half.md"}
    with pytest.raises(ExportError, match="cannot be written"):
        export_texts(history, failed, "vendor", tmp_path / "out")
    with pytest.raises(ExportError, match="has no text of nobody"):
        export_texts(history, failed, "nobody", tmp_path / "none")
    with history.writer(RunRecord(id="names", created="2026-01-02T03:04:05+00:00", source="dsocr")) as run:
        for page in ("a/paper.pdf#3", "b/1.png"):
            run.add_rows(
                "readings", [{"page": page, "backend": "eager", "text_raw": f"{MARKED}<center>x</center>"}]
            )
    history.refresh()
    export_texts(history, "names", None, tmp_path / "names")
    assert {file.name: file.read_text() for file in (tmp_path / "names").iterdir()} == dict.fromkeys(
        ("paper_3.md", "1.md"), "\nText\n\nx"
    )
    with history.writer(RunRecord(id="same", created="2026-01-02T03:04:05+00:00", source="dsocr")) as run:
        run.add_rows("readings", [{"page": f"{folder}/1.png", "text_raw": "x"} for folder in "ab"])
    history.refresh()
    with pytest.raises(ExportError, match=r"two pages of same would be called 1\.md"):
        export_texts(history, "same", None, tmp_path / "same")


def test_the_command_writes_one_or_the_other(history, tmp_path, capsys):
    fill(history, "run-1")
    given = ["history", "export", "run-1", "--history", str(tmp_path / "history")]
    for wrong in ([], ["--to", "x.zip", "--omnidocbench", "x"]):
        assert main([*given, *wrong]) == 2
        assert "one run and --omnidocbench DIR" in " ".join(capsys.readouterr().out.split())
    assert main([*given, "--to", str(tmp_path / "x.zip")]) == 0 and (tmp_path / "x.zip").is_file()


def test_nothing_is_overwritten_and_nothing_half_done_is_left(history, tmp_path, monkeypatch):
    fill(history, "run-1")
    (tmp_path / "there").mkdir()
    with pytest.raises(ExportError, match="is there already"):
        export_runs(history, ["run-1"], tmp_path / "there")
    with pytest.raises(HistoryError):
        export_runs(history, ["run-1", "nope"], tmp_path / "x.zip")
    with pytest.raises(ExportError, match="no runs"):
        export_runs(history, [], tmp_path / "x.zip")

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfileobj", full)
    with pytest.raises(ExportError, match="No space left"):
        export_runs(history, ["run-1"], tmp_path / "x")
    assert {path.name for path in tmp_path.iterdir()} == {"history", "there"}


# --- zips that strangers made -----------------------------------------------------------------------


@pytest.fixture
def unpacked(history, tmp_path):
    """A run's exported directory, to be damaged."""
    fill(history, "run-1")
    export_runs(history, ["run-1"], tmp_path / "out.zip")
    with zipfile.ZipFile(tmp_path / "out.zip") as archive:
        archive.extractall(tmp_path / "unpacked")
    (tmp_path / "unpacked" / "run-1" / "SHA256SUMS").unlink()  # else every change is one of a checksum
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
