"""What `run --out` and `compare --out` leave is taken into the history as `--save` would have kept it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image

from dsocr_core.history.importers.detect import import_paths
from dsocr_core.history.record import RunRecord, record_run
from dsocr_core.history.store import History
from dsocr_core.outputs.artifacts import RunDirectory, page_key
from dsocr_core.outputs.clean import clean_page
from dsocr_core.outputs.parity import parity
from dsocr_core.records import BackendName, OcrResult
from dsocr_core.review.review import open_review
from dsocr_core.settings import Settings
from tests.support.flat_tables import flat_tables
from tests.support.results import make_result

TEXT = "<|ref|>title<|/ref|><|det|>[[100, 100, 500, 200]]<|/det|>\n# Hello\n"
ENVIRONMENT = {"engine": "eager", "device": "cpu"}


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    with History(tmp_path / "h") as history:
        yield history


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.png"
    Image.new("RGB", (200, 100), "white").save(path)
    return path


def result(page: Path, backend: BackendName = "eager", text: str = TEXT) -> OcrResult:
    return replace(make_result(text, backend, image=page, image_size=(200, 100)), environment=ENVIRONMENT)


def write(directory: Path, *results: OcrResult) -> RunRecord:
    """A directory as a call leaves it; returns what it wrote of itself."""
    record = record_run(Settings(preset="tiny"), (), "python -m dsocr_core run page.png")
    run = RunDirectory(directory, record.to_json())
    for one in results:
        picture = Image.open(one.request.image).convert("RGB")
        run.add(one, picture, clean=clean_page(one.request, picture))
    return record


def make_old(directory: Path) -> None:
    """Take away what directories did not have at first."""
    for folder in ("records", "clean"):
        shutil.rmtree(directory / folder)
    for place in (directory, directory / "vendor"):
        for file in place.glob("viz/*/result.json"):
            file.unlink()
        edit(place / "predictions.jsonl", lambda data: drop(data, "run", "bytes", "sha256"))


def drop(data: dict, *names: str) -> None:
    for name in names:
        del data[name]


def edit(file: Path, change: Callable[[dict], None]) -> None:
    """Change every object of a file of JSON lines."""
    objects = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    for data in objects:
        change(data)
    file.write_text("".join(json.dumps(data) + "\n" for data in objects), "utf-8")


def imported(history: History, directory: Path) -> str:
    report = import_paths(history, [directory])
    assert report.skipped == []
    (run,) = report.imported
    return run.run_id


def test_both_backends_with_parity_and_pictures(history: History, page: Path, tmp_path: Path) -> None:
    a, b = result(page), result(page, "vendor", TEXT.replace("Hello", "Hallo"))
    record = write(tmp_path / "out", a, b)
    assert imported(history, tmp_path / "out") == record.id
    found = history.record(record.id)
    assert (found.command, found.created, found.settings) == (record.command, record.created, record.settings)
    assert (found.backends, found.engine, found.dtype) == (("eager", "vendor"), "eager", "float32")
    assert found.environment["platform"] == record.environment["platform"]
    (row,) = history.tables(record.id)["parity"].to_pylist()
    assert row["character_error_rate"] == parity(a, b).character_error_rate > 0
    detail = open_review(history, record.id).detail("page.png")
    assert detail.a is not None and detail.a.token_ids == a.token_ids
    page.unlink()
    picture = open_review(history, record.id).picture("page.png")
    assert picture is not None and not picture.with_boxes
    assert import_paths(history, [tmp_path / "out"]).imported == []


def test_each_call_is_a_run_and_one_that_went_on_is_named(
    history: History, page: Path, tmp_path: Path
) -> None:
    other = page.with_name("other.png")
    shutil.copyfile(page, other)
    first = write(tmp_path / "out", result(page))
    second = write(tmp_path / "out", result(other))
    runs = import_paths(history, [tmp_path / "out"]).imported
    assert [run.run_id for run in runs] == [first.id, second.id]
    with History(tmp_path / "early") as early:
        lines = (tmp_path / "out" / "predictions.jsonl").read_bytes()
        edit(tmp_path / "out" / "predictions.jsonl", lambda data: data.update(run=first.id))
        whole = (tmp_path / "out" / "predictions.jsonl").read_bytes()
        (tmp_path / "out" / "predictions.jsonl").write_bytes(lines.splitlines(keepends=True)[0])
        import_paths(early, [tmp_path / "out"])
        (tmp_path / "out" / "predictions.jsonl").write_bytes(whole)
        report = import_paths(early, [tmp_path / "out"])
        assert [run.run_id for run in report.known] == [first.id] and report.imported == []
        assert any("has 1 of its 2 readings" in item.reason for item in report.skipped)


def test_a_directory_of_before_gives_what_it_says_and_no_more(
    history: History, page: Path, tmp_path: Path
) -> None:
    write(tmp_path / "out", result(page), result(page, "vendor"))
    make_old(tmp_path / "out")
    name = imported(history, tmp_path / "out")
    shutil.copytree(tmp_path / "out", tmp_path / "copy")
    assert [run.run_id for run in import_paths(history, [tmp_path / "copy"]).known] == [name]
    record = history.record(name)
    assert record.notes is not None and record.notes.startswith("The time is the file's")
    assert (record.engine, record.device, record.preset) == ("eager", "cpu", "small")
    assert (record.dtype, record.command, record.settings) == (None, None, {})
    tables = {table: rows.to_pylist() for table, rows in flat_tables(history, name).items()}
    assert set(tables) == {"images", "stage_timings", "boxes", "inputs"}
    ours = tables["images"][0]
    assert (ours["page"], ours["width"], ours["height"], ours["text_raw"]) == ("page.png", 200, 100, TEXT)
    assert (ours["new_tokens"], ours["finish_reason"], ours["sha256"]) == (len(TEXT), "eos", None)
    # 999 parts of a page 200 pixels wide.
    assert [(box["x1"], box["x2"], box["label"]) for box in tables["boxes"]] == [(20.0, 100.0, "title")] * 2
    times = {
        row["stage"]: row["milliseconds"] for row in tables["stage_timings"] if row["backend"] == "eager"
    }
    assert (times["sam"], times["prefill"], times["postprocess"], len(times)) == (10.0, 50.0, 5.0, 9)
    assert open_review(history, name).page("page.png").kinds == ()


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("{folder}/result.json", b"{", "not valid JSON"),
        ("{folder}/result.json", b'{"backend": "eager"}', "request"),
        ("{folder}/result.json", "{other}", "not the result of the page's line"),
        ("{folder}/result.json", "{negative}", "below 0"),
        ("{folder}/result_with_boxes.jpg", b"MZ", "not a JPEG picture"),
        ("records/{run}.json", b"[]", "not a JSON object"),
        ("records/{run}.json", b'{"schema_version": 1, "id": "other", "created": "2026-01-01", "source": '
         b'"dsocr"}', "says it is run other"),
        ("records/{run}.json", b'{"schema_version": 99}', "later version"),
        ("note.txt", b"mine", "not a file of a run directory"),
    ],
)  # fmt: skip
def test_what_is_damaged_is_named_and_the_page_is_taken(
    history: History, page: Path, tmp_path: Path, file: str, content: bytes | str, reason: str
) -> None:
    record = write(tmp_path / "out", result(page))
    folder = f"viz/{page_key(page)}"
    target = tmp_path / "out" / file.format(folder=folder, run=record.id)
    if isinstance(content, str):
        data = json.loads(target.read_text("utf-8"))
        if content == "{other}":
            data["text_raw"] = "another page's"
        else:
            data["timings"][0]["milliseconds"] = -1
        content = json.dumps(data).encode()
    target.write_bytes(content)
    report = import_paths(history, [tmp_path / "out"])
    assert [item.path for item in report.skipped] == [target]
    assert reason in report.skipped[0].reason
    (run,) = report.imported
    (row,) = flat_tables(history, run.run_id)["images"].to_pylist()
    assert (row["page"], row["text_raw"]) == ("page.png", TEXT)
    assert (run.run_id == record.id) != file.startswith("records")


@pytest.mark.parametrize("run", ["../../../evil", "/etc/passwd", "", "a" * 300, "a\nb", "con\0"])
def test_a_hostile_name_of_a_run_is_no_path(history: History, page: Path, tmp_path: Path, run: str) -> None:
    write(tmp_path / "out", result(page))
    edit(
        tmp_path / "out" / "predictions.jsonl",
        lambda data: data.update(run=run, sha256="../../../../etc/passwd"),
    )
    (tmp_path / "evil.json").write_text("{}")
    report = import_paths(history, [tmp_path / "out"])
    (taken,) = report.imported
    assert taken.run_id.startswith("dsocr-")
    assert not [name for name in history.file_names(taken.run_id) if "clean" in name or ".." in name]


def test_lines_that_are_none_are_named(history: History, page: Path, tmp_path: Path) -> None:
    write(tmp_path / "out", result(page))
    with (tmp_path / "out" / "predictions.jsonl").open("ab") as handle:
        handle.write(
            b'[1]\n{"image": "a.png"}\n{"image": "a", "source": "a", "backend": "vendor"}\n{"image": "half'
        )
    report = import_paths(history, [tmp_path / "out"])
    assert len(report.imported) == 1
    assert [item.reason.partition(":")[0] for item in report.skipped] == [f"line {n}" for n in (2, 3, 4, 5)]
    (tmp_path / "bare").mkdir()
    start = b'{"image": "a", "source": "a", "backend": "eager", "x": NaN}\n'
    (tmp_path / "bare" / "predictions.jsonl").write_bytes(start)
    report = import_paths(history, [tmp_path / "bare"])
    assert report.imported == [] and "NaN" in report.skipped[0].reason
