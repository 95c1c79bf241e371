"""The results that come with the project, found again under the settings that they stand for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from data.samples.record import EXAMPLE, EXAMPLE_SETTINGS
from dsocr_core.history.result_cache import ResultCache
from dsocr_core.outputs.comparison import Comparison
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
    assert [result.inputs and result.inputs.dtype for result in example.results.values()] == ["bfloat16"] * 2
    usual = found(Settings().for_comparison(), tmp_path)
    assert usual is not None and usual.verdict == "identical"
    assert found(replace(EXAMPLE_SETTINGS, attention="eager"), tmp_path) is None


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_result_of_float32_does_not_stand_for_another_number_type(dtype: str, tmp_path: Path) -> None:
    asked = replace(Settings().for_comparison(), dtype=dtype)  # type: ignore[arg-type]
    page = EXAMPLE.with_name("01-letter.png")
    assert ResultCache(asked, tmp_path).find(asked.request(page, page.name)) is None


def test_a_result_of_other_engine_code_is_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(Settings().for_comparison(), device="cpu", preset="tiny")
    page = EXAMPLE.with_name("01-letter.png")
    cache, request = ResultCache(settings, tmp_path), settings.request(page, page.name)
    cache.add(replace(make_result(backend="eager"), request=request))
    assert cache.find(request, ["a"]) is not None
    monkeypatch.setattr("dsocr_core.history.result_cache.code_version", lambda: "another")
    assert cache.find(request, ["a"]) is None
