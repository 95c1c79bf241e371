"""Results found again whole or not at all, under the settings, code and checkpoint that gave them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dsocr_core.reading.parity import Comparison
from dsocr_core.reading.records import OcrResult
from dsocr_core.runs.record import Recording
from dsocr_core.runs.result_cache import RecordedResult, ResultCache, find_result, save_results
from dsocr_core.settings import Settings
from tests.support.paths import SAMPLES
from tests.support.results import make_result

CREATED = "2026-11-21T10:00:00+00:00"
LETTER = SAMPLES / "01-letter.png"


def test_a_result_of_other_engine_code_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(Settings().for_comparison(), device="cpu", preset="tiny")
    cache, request = ResultCache(settings, tmp_path), settings.request(LETTER, LETTER.name)
    cache.add(replace(make_result(backend="eager"), request=request))
    assert cache.find(request, ["a"]) is not None
    monkeypatch.setattr("dsocr_core.runs.result_cache.code_version", lambda: "another")
    assert cache.find(request, ["a"]) is None


@pytest.mark.parametrize("name", ["modeling.py", "config.json", "model.safetensors"])
def test_a_checkpoint_that_changes_while_we_run_is_another_one(tmp_path: Path, name: str) -> None:
    """What has it loaded keeps the name of what it loaded."""
    directory = tmp_path / "checkpoint"
    directory.mkdir()
    for file in ("modeling.py", "config.json", "model.safetensors"):
        (directory / file).write_text("{}")
    settings = replace(Settings(), device="cpu", preset="tiny", checkpoint=str(directory))
    loaded, request = ResultCache(settings, tmp_path / "results"), settings.request(LETTER, LETTER.name)
    loaded.add(replace(make_result(backend="vendor"), request=request))
    assert ResultCache(settings, tmp_path / "results").find(request, ["b"]) is not None
    (directory / name).write_text('{"n": 2}')
    assert ResultCache(settings, tmp_path / "results").find(request, ["b"]) is None
    assert loaded.find(request, ["b"]) is not None


# --- files ----------------------------------------------------------------------------------------


def saved(root: Path, text: str) -> OcrResult:
    result = make_result(text=text)
    save_results(root, "key", {"key": result}, CREATED)
    return result


def find(root: Path, key: str = "key") -> RecordedResult | None:
    return find_result(key, [root / "runs" / "key"])


def test_what_is_saved_is_found_and_the_last_one_counts(tmp_path: Path) -> None:
    saved(tmp_path, "before")
    result = saved(tmp_path, "ünï <|ref|>text<|/ref|> 🙂")
    assert find(tmp_path) == RecordedResult(result, CREATED)
    assert find(tmp_path, "other") is None
    assert [file.name for file in (tmp_path / "runs").iterdir()] == ["key"]


def test_a_row_of_a_run_directory_is_found_as_long_as_it_is_there(tmp_path: Path) -> None:
    result = make_result(image=tmp_path / "page.png")
    for text in ("first", "second"):  # whoever reads it again links anew
        with Recording(Settings(), out=tmp_path / text, save=False) as recorder:
            recorder.add("page.png", Comparison(result.request, result), keys={"eager": "key"})
        ResultCache(Settings(), tmp_path).link(["key"], tmp_path / text)
    found = find(tmp_path)
    assert found is not None and found.result == result
    (tmp_path / "second" / "readings.parquet").unlink()
    assert find(tmp_path) is None


@pytest.mark.timeout(20)
@pytest.mark.parametrize("content", ["", "{", "[]", "{}", "PAR1PAR1", None])
@pytest.mark.parametrize("name", ["run.json", "readings.parquet"])
def test_a_damaged_file_or_a_pipe_in_its_place_is_as_good_as_none(
    tmp_path: Path, name: str, content: str | None
) -> None:
    saved(tmp_path, "text")
    file = tmp_path / "runs" / "key" / name
    if content is None:
        file.unlink()
        os.mkfifo(file)
    else:
        file.write_text(content)
    assert find(tmp_path) is None


def test_no_thread_outlives_a_read(tmp_path: Path) -> None:
    """One that does may end the process by SIGABRT."""
    saved(tmp_path, "text")
    code = (
        "import os, pathlib, sys; from dsocr_core.runs.result_cache import find_result; "
        "from dsocr_core.runs.schema import read_rows; import pyarrow.dataset; import pyarrow as pa; "
        "pa.default_memory_pool(); threads = lambda: len(os.listdir('/proc/self/task')); before = threads(); "
        "run = pathlib.Path(sys.argv[1]); read_rows(run / 'timings.parquet'); find_result('key', [run]); "
        "print(threads() - before)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "runs" / "key")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "0"
