"""What a backend on a device says: which decoding is engaged, and that a load found no memory."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import dsocr_core.backends.on_device as on_device
from dsocr_core.backends.backend import Backend, Opening
from dsocr_core.backends.on_device import EngineBackend, engine_backend, published_backend
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT
from dsocr_core.models.devices import Gpu
from dsocr_core.settings import InferSettings, Settings
from tests.support.paths import SAMPLES
from tests.support.seeded_weights import tiny_unlimited_config, write_seeded_checkpoint

PAGE = SAMPLES / "01-letter.png"
LINE = "DeepSeek-OCR: vendor-parity decode engaged (no vendor infer)"


def settings_of(**given: str) -> Settings:
    infer = InferSettings(max_new_tokens=1)
    return Settings(device="cpu", infer=infer, **{"preset": "tiny"} | given)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def not_said_yet(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(on_device, "_announced", threading.Event())
    monkeypatch.setattr(on_device, "_published", weakref.WeakSet())
    caplog.set_level(logging.INFO, on_device.__name__)


def test_our_decoding_of_the_first_model_is_said_once_where_the_published_code_does_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoint = write_seeded_checkpoint(tiny_unlimited_config(8), tmp_path / "unlimited", torch.float32)
    other = engine_backend(settings_of(checkpoint=str(checkpoint), preset="base"), Opening(tmp_path))
    backend = engine_backend(settings_of(), Opening(tmp_path))
    published = published_backend(settings_of(), Opening(tmp_path))
    for each in (other, backend):
        each.read(each.settings.request(PAGE))
    assert LINE not in caplog.messages
    published.close()
    for each in (other, backend, backend):
        each.read(each.settings.request(PAGE))
    assert [record.levelname for record in caplog.records if record.message == LINE] == ["INFO"]


def test_a_load_without_memory_is_one_line_with_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory.\nTried to allocate")

    monkeypatch.setattr(on_device, "shared_checkpoint", full)
    monkeypatch.setattr(Gpu, "of", lambda device: Gpu("a card", (9, 0), ("sm_90",), 3 * 10**9, 10**10))
    backend = engine_backend(settings_of(), Opening(tmp_path))
    assert isinstance(backend, EngineBackend)
    with pytest.raises(DsocrError) as error:
        backend.load()
    said = str(error.value)
    assert "out of memory while the eager engine loads: the weights take 0.1 GB and the" in said
    assert "3.0 GB are free" in said and "\n" not in said


@pytest.mark.parametrize(
    ("make", "settings", "words"),
    [
        (engine_backend, {"precision": "fp8-kv"}, "precision fp8-kv is a setting of the fast engine, not of"),
        (published_backend, {"precision": "fp8-kv"}, "precision fp8-kv is a setting of the fast engine, no"),
        (engine_backend, {"draft": "lookup"}, "a draft is verified by the fast engine"),
        (published_backend, {"checkpoint": f"random:{EMBEDDED_CHECKPOINT}"}, r"random:\S+: random weights"),
    ],
)
def test_settings_that_a_backend_does_not_have_are_one_line(
    make: Callable[[Settings], Backend], settings: dict[str, str], words: str
) -> None:
    with pytest.raises(DsocrError, match=rf"^{words}[^\n]*$"):
        make(settings_of(**settings)).load()
