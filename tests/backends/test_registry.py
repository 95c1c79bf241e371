"""Backends opened by their specification, and read through the protocol."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dsocr_core.backend_specs.parsing import parse_backend
from dsocr_core.backends.in_process import InProcess
from dsocr_core.backends.local import LocalBackends
from dsocr_core.backends.registry import Opening, open_backend
from dsocr_core.engine.stage_timer import Marks
from dsocr_core.errors import DsocrError
from dsocr_core.records import OcrRequest, OcrResult
from dsocr_core.run.pipeline import Pipeline
from dsocr_core.settings import Settings
from tests.support.results import make_result


class FakeEngine:
    """Answers with whose settings it was made under."""

    def recognize(self, request: OcrRequest, *_: Any) -> OcrResult:
        return replace(make_result(backend="eager"), request=request)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.png"
    path.write_bytes(b"pixels")
    return path


def test_an_engine_has_the_run_s_settings_and_its_own(tmp_path: Path) -> None:
    settings = Settings(device="cpu", preset="tiny")
    spec = parse_backend({"spec": "eager", "dtype": "bfloat16", "name": "other"})
    opening = Opening(settings, tmp_path, (("marks", Marks.NONE),))
    backend = open_backend(spec, settings, opening)
    assert isinstance(backend, InProcess)
    assert (backend.name, backend.reads, backend.concurrency) == ("other", "eager", 1)
    assert (backend.settings.dtype, backend.settings.preset) == ("bfloat16", "tiny")


def test_the_vendor_is_opened_without_being_started(tmp_path: Path) -> None:
    backend = open_backend(parse_backend("vendor"), Settings(device="cpu"), Opening(Settings(), tmp_path))
    assert isinstance(backend, InProcess) and backend.reads == "vendor"
    assert backend.local._vendor is None
    backend.close()


def test_a_kind_without_an_opener_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr_core.backends.registry.OPENERS", {})
    with pytest.raises(DsocrError, match="backend eager is not available"):
        open_backend(parse_backend("eager"), Settings())


def test_results_are_called_as_the_backend_and_cached_as_the_engine_s(tmp_path: Path, page: Path) -> None:
    settings = Settings(device="cpu")
    local = LocalBackends(settings, tmp_path / "results")
    local._engine = FakeEngine()  # type: ignore[assignment]
    result = InProcess(local, "eager", "mine").recognize(settings.request(page))
    assert result.backend == "mine"
    found = local.results.find(settings.request(page), ("a",))
    assert found is not None and found.a is not None and found.a.backend == "eager"


def test_each_side_reads_with_a_request_of_its_own(
    tmp_path: Path, page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(device="cpu", b={"spec": "eager", "preset": "base", "infer.max_new_tokens": 5})
    monkeypatch.setattr(LocalBackends, "engine", property(lambda self: FakeEngine()))
    pipeline = Pipeline(settings, tmp_path / "results")
    comparison = pipeline.compare(settings.request(page))
    assert comparison.a is not None and comparison.b is not None and comparison.errors == {}
    assert (comparison.a.backend, comparison.b.backend) == ("eager", "eager-2")
    assert (comparison.a.request.preset, comparison.b.request.preset) == ("small", "base")
    assert comparison.b.request.max_new_tokens == 5
    assert pipeline.key("a", settings.request(page)) != pipeline.key("b", settings.request(page))
    again = pipeline.results.find(settings.request(page))
    assert again is not None and again.b is not None and again.b.backend == "eager-2"
