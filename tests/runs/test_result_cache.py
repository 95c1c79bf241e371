"""Results found again whole or not at all, and those of the project under their own settings."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from data.samples.record import EXAMPLE, EXAMPLE_SETTINGS
from dsocr_core.base.errors import DsocrError
from dsocr_core.reading.comparison import Comparison
from dsocr_core.runs.recorder import RunRecorder
from dsocr_core.runs.result_cache import RecordedResult, ResultCache, ResultStore
from dsocr_core.settings import Settings
from tests.support.results import make_result


def found(settings: Settings, folder: Path) -> Comparison | None:
    settings = replace(settings, device="cpu")
    return ResultCache(settings, folder).find(settings.request(EXAMPLE, EXAMPLE.name))


def test_the_example_differs_by_near_ties_and_only_under_its_own_settings(tmp_path: Path) -> None:
    example = found(EXAMPLE_SETTINGS, tmp_path)
    assert example is not None and example.report is not None
    assert example.verdict == "differs"
    divergence = example.report.first_divergence
    assert divergence is not None and divergence.margins is not None and divergence.margins.tie
    types = [result.inputs and result.inputs.dtype for result in example.results.values()]
    assert types == ["bfloat16", "float32"]
    usual = found(Settings().for_comparison(), tmp_path)
    assert usual is not None and usual.verdict == "identical"
    assert found(replace(EXAMPLE_SETTINGS, b=None), tmp_path) is None


def test_a_result_of_other_engine_code_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(Settings().for_comparison(), device="cpu", preset="tiny")
    page = EXAMPLE.with_name("01-letter.png")
    cache, request = ResultCache(settings, tmp_path), settings.request(page, page.name)
    cache.add(replace(make_result(backend="eager"), request=request))
    assert cache.find(request, ["a"]) is not None
    monkeypatch.setattr("dsocr_core.runs.result_cache.code_version", lambda: "another")
    assert cache.find(request, ["a"]) is None


@pytest.mark.parametrize("name", ["modeling.py", "config.json", "model.safetensors"])
def test_a_checkpoint_that_changes_while_we_run_is_another_one(tmp_path: Path, name: str) -> None:
    """What has it loaded keeps the name of what it loaded."""
    directory, page = tmp_path / "checkpoint", EXAMPLE.with_name("01-letter.png")
    directory.mkdir()
    for file in ("modeling.py", "config.json", "model.safetensors"):
        (directory / file).write_text("{}")
    settings = replace(Settings(), device="cpu", preset="tiny", checkpoint=str(directory))
    loaded, request = ResultCache(settings, tmp_path / "results"), settings.request(page, page.name)
    loaded.add(replace(make_result(backend="vendor"), request=request))
    assert ResultCache(settings, tmp_path / "results").find(request, ["b"]) is not None
    (directory / name).write_text('{"n": 2}')
    assert ResultCache(settings, tmp_path / "results").find(request, ["b"]) is None
    assert loaded.find(request, ["b"]) is not None


# --- files ----------------------------------------------------------------------------------------

CREATED = "2026-11-21T10:00:00+00:00"


def test_what_is_saved_is_found(tmp_path: Path) -> None:
    store = ResultStore(tmp_path / "results")
    recorded = RecordedResult(make_result(text="ünï <|ref|>text<|/ref|> 🙂"), CREATED)
    store.save("key", recorded)
    assert store.find("key") == recorded
    assert store.find("other") is None
    assert [file.name for file in (tmp_path / "results").iterdir()] == ["key.parquet"]


def test_a_row_of_a_run_directory_is_found_as_long_as_it_is_there(tmp_path: Path) -> None:
    result = make_result(image=tmp_path / "page.png")
    with RunRecorder(Settings(), out=tmp_path / "out", save=False) as recorder:
        recorder.add("page.png", Comparison(result.request, result), keys={"eager": "key"})
    store = ResultStore(tmp_path / "results")
    store.link(["key", "another"], tmp_path / "out", CREATED)
    assert store.find("key") == RecordedResult(result, CREATED)
    assert store.find("another") is None
    (tmp_path / "out" / "readings.parquet").unlink()
    assert store.find("key") is None


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"run": 1}', '{"run": "/", "created": 1}', "null"])
@pytest.mark.parametrize("suffix", [".json", ".parquet"])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, suffix: str, content: str) -> None:
    (tmp_path / f"key{suffix}").write_text(content)
    assert ResultStore(tmp_path).find("key") is None


def test_a_failed_write_leaves_the_old_result_and_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ResultStore(tmp_path)
    before = RecordedResult(make_result(text="before"), CREATED)
    store.save("key", before)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", full)
        with pytest.raises(DsocrError, match="No space left"):
            store.save("key", replace(before, result=make_result(text="after")))
    assert store.find("key") == before
    assert len(list(tmp_path.iterdir())) == 1
