"""A page of the embedded checkpoint traced once; every test of a fault compares with that."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from dsocr_core.base.paths import EMBEDDED_CHECKPOINT, PROJECT_ROOT
from dsocr_core.engine.base import EagerEngine, EngineOptions
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.models.taps.files import Dump
from dsocr_core.reading.records import OcrRequest
from dsocr_core.reading.trace_records import TraceSummary
from dsocr_core.trace.run import compare_dumps
from dsocr_core.trace.sides import Task, trace_engine
from tests.kernels.interpreter import device, interpreter_as_devices

__all__ = ["device", "interpreter_as_devices"]

PAGE = PROJECT_ROOT / "data" / "samples" / "06-small-ticket.png"
STEPS = 1


@pytest.fixture(scope="session")
def engine() -> EagerEngine:
    checkpoint = load_checkpoint(str(EMBEDDED_CHECKPOINT), torch.device("cpu"), torch.bfloat16)
    return EagerEngine(checkpoint, EngineOptions("eager"))


@pytest.fixture(scope="session")
def request_() -> OcrRequest:
    return OcrRequest(PAGE, "tiny")


@pytest.fixture(scope="session")
def baseline(
    engine: EagerEngine, request_: OcrRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Dump, tuple[int, ...]]:
    """Side A: the page as the engine reads it, and its tokens."""
    directory = tmp_path_factory.mktemp("trace") / "a"
    tokens = trace_engine(engine, Task(request_, STEPS, directory))
    return Dump(directory), tokens


@pytest.fixture
def trace_again(
    engine: EagerEngine, request_: OcrRequest, baseline: tuple[Dump, tuple[int, ...]], tmp_path: Path
) -> Callable[..., TraceSummary]:
    """Side B: the same engine as it is now, fed with A's tokens, compared with A. `only` as in a trace."""

    def again(only: tuple[str, ...] = ()) -> TraceSummary:
        a, tokens = baseline
        trace_engine(engine, Task(request_, STEPS, tmp_path / "b", tokens, only))
        return compare_dumps(a, Dump(tmp_path / "b"), only=only)

    return again
