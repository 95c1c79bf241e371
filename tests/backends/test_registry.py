"""Backends opened by their specification, and read through the protocol."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dsocr_core.backends.backend import Opening
from dsocr_core.backends.on_device import EngineBackend
from dsocr_core.base.specs import parse_backend
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


def test_results_are_called_as_the_backend_and_cached_as_the_engine_s(tmp_path: Path, page: Path) -> None:
    settings = Settings(device="cpu")
    spec = parse_backend({"spec": "eager", "name": "mine"})
    backend = EngineBackend(spec, settings, Opening(tmp_path / "results"))
    backend._engine = FakeEngine()  # type: ignore[assignment]
    result = backend.read(settings.request(page))
    assert result.backend == "mine"
    found = backend.results.find(settings.request(page), ("a",))
    assert found is not None and found.a is not None and found.a.backend == "eager"


def test_each_side_reads_with_a_request_of_its_own(
    tmp_path: Path, page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = Settings(device="cpu", b={"spec": "eager", "preset": "base", "infer.max_new_tokens": 5})
    monkeypatch.setattr(EngineBackend, "engine", property(lambda self: FakeEngine()))
    session = Session(settings, Opening(tmp_path / "results"))
    comparison = session.compare(settings.request(page))
    assert comparison.a is not None and comparison.b is not None and comparison.errors == {}
    assert (comparison.a.backend, comparison.b.backend) == ("eager", "eager-2")
    assert (comparison.a.request.preset, comparison.b.request.preset) == ("small", "base")
    assert comparison.b.request.max_new_tokens == 5
    assert session.key("a", settings.request(page)) != session.key("b", settings.request(page))
    again = session.recorded(settings.request(page))
    assert again is not None and again.b is not None and again.b.backend == "eager-2"


def test_the_reader_of_a_batch_is_replaced_while_nobody_reads_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two threads with other slots: the memory of both readers may not fit."""
    backend = EngineBackend(parse_backend("eager"), Settings(device="cpu"), Opening(tmp_path))
    holders: list[str | None] = []

    def reader_of(slots: int) -> SimpleNamespace:
        holders.append(backend.lock.holder)
        return SimpleNamespace(read=lambda *_: None)

    monkeypatch.setattr(EngineBackend, "engine", property(lambda self: FakeEngine()))
    monkeypatch.setattr(backend, "reader_of", reader_of)
    backend.read_many(None, lambda *_: None, 2)  # type: ignore[arg-type]
    assert holders == ["eager on many pages"]
