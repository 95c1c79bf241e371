"""Backends opened by their specification, and read through the protocol."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dsocr_core.backends.backend import Opening
from dsocr_core.backends.on_device import EngineBackend
from dsocr_core.models.family import FIRST
from dsocr_core.read.session import Session
from dsocr_core.reading.records import OcrRequest, OcrResult
from dsocr_core.settings import Settings
from tests.support.results import make_result


class FakeEngine:
    """Answers with whose settings it was made under."""

    options = SimpleNamespace(drafts=None)
    checkpoint = SimpleNamespace(model=SimpleNamespace(family=FIRST))

    def recognize(self, request: OcrRequest, *_: Any) -> OcrResult:
        return replace(make_result(backend="eager"), request=request)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.png"
    path.write_bytes(b"pixels")
    return path


def test_each_side_reads_with_its_own_request_and_is_cached_under_its_engines_name(
    tmp_path: Path, page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(
        device="cpu", b={"spec": "eager", "name": "mine", "preset": "base", "infer.max_new_tokens": 5}
    )
    monkeypatch.setattr(EngineBackend, "engine", property(lambda self: FakeEngine()))
    session = Session(settings, Opening(tmp_path / "results"))
    comparison = session.compare(settings.request(page))
    assert comparison.a is not None and comparison.b is not None and comparison.errors == {}
    assert (comparison.a.backend, comparison.b.backend) == ("eager", "mine")
    assert (comparison.a.request.preset, comparison.b.request.preset) == ("small", "base")
    assert comparison.b.request.max_new_tokens == 5
    assert session.cache_key("a", settings.request(page)) != session.cache_key("b", settings.request(page))
    again = session.recorded(settings.request(page))
    assert again is not None and again.b is not None and again.b.backend == "mine"
    backend = session.side("b")
    assert isinstance(backend, EngineBackend)
    found = backend.results.find(comparison.b.request, ("a",))
    assert found is not None and found.a is not None and found.a.backend == "eager"
