"""Whatever of an engine works on a device does so with that as torch's current device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import dsocr_core.backends.on_device as on_device
import dsocr_core.engine.base as base
from dsocr_core.backends.backend import Opening
from dsocr_core.backends.on_device import EngineBackend
from dsocr_core.engine.base import EagerEngine
from dsocr_core.engine.fast.batch import BatchReader, Slots
from dsocr_core.kernels.launch import PLAIN
from dsocr_core.measure import bench
from dsocr_core.settings import InferSettings, Settings
from tests.support.paths import SAMPLES

WATCHED = (
    (on_device, "shared_checkpoint"), (EagerEngine, "__init__"), (EagerEngine, "take_in"),
    (EagerEngine, "prefill"), (EagerEngine, "tokens"), (BatchReader, "decoder_for"), (Slots, "advance"),
    (Slots, "reset"), (bench, "copy_bandwidth"), (bench, "matmul_rate"),
)  # fmt: skip


def test_every_entry_has_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered: list[torch.device] = []
    seen: dict[str, set[bool]] = {}

    @contextmanager
    def current(device: torch.device) -> Iterator[None]:
        entered.append(device)
        yield
        entered.pop()

    def watch(owner: object, name: str) -> None:
        real: Callable[..., Any] = getattr(owner, name)

        def called(*arguments: Any, **more: Any) -> Any:
            seen.setdefault(name, set()).add(entered == [torch.device("cpu")])
            return real(*arguments, **more)

        monkeypatch.setattr(owner, name, called)

    for module in (base, on_device, bench):
        monkeypatch.setattr(module, "current", current)
    for owner, name in WATCHED:
        watch(owner, name)
    settings = Settings(device="cpu", preset="tiny", infer=InferSettings(max_new_tokens=2))
    backend = EngineBackend(settings.spec("a"), settings, Opening(tmp_path))
    request = settings.request(SAMPLES / "01-letter.png")
    backend.read(request)
    prefilled = backend.engine.prefilled(request)
    with backend.engine.decoding_again(prefilled, request, 2) as new:
        list(new)
    BatchReader(backend.engine, 1, kernels=PLAIN).read_all([request])
    bench._device(backend, bench.BenchPlan(settings))
    assert seen == {name: {True} for _, name in WATCHED}
