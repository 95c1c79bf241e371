"""Traces on a real GPU, where the fast engine's taps lie inside CUDA graphs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import dsocr_core.trace.fast as fast
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT, PROJECT_ROOT
from dsocr_core.engine.base import EagerEngine
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.models.taps.files import Dump
from dsocr_core.reading.records import OcrRequest
from dsocr_core.settings import Settings
from dsocr_core.trace.run import TracePlan, compare_dumps, trace_page
from dsocr_core.trace.sides import Task, trace_engine

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]
PAGE = PROJECT_ROOT / "data" / "samples" / "07-large-scan.png"
STEPS = 6


@pytest.fixture(scope="module")
def engine() -> EagerEngine:
    return EagerEngine(load_checkpoint(str(EMBEDDED_CHECKPOINT), torch.device("cuda"), torch.bfloat16))


def test_the_fast_engine_differs_from_eager_by_rounding(engine: EagerEngine, tmp_path: Path) -> None:
    request = OcrRequest(PAGE, "gundam")
    tokens = trace_engine(engine, Task(request, STEPS, tmp_path / "a"))
    fast.trace_fast(engine, Task(request, STEPS, tmp_path / "b", tokens))
    found = compare_dumps(Dump(tmp_path / "a"), Dump(tmp_path / "b"), torch.device("cuda"))
    assert found.only_b == () and found.first is not None
    assert found.causes[0].kind == "rounding", found.sentence
    errors = [row.error for row in found.tensors if row.name in ("sam.out", "projector", "logits")]
    assert len(errors) == 4 + STEPS + 1 and all(error is not None and error < 0.1 for error in errors)


def test_the_reference_and_the_eager_engine_are_equal_over_sixty_steps() -> None:
    settings = Settings(preset="gundam", dtype="bfloat16", device="cuda", attention="eager")
    found = trace_page(settings, settings.request(PAGE), TracePlan("eager", "vendor", 60))
    assert found.equal, found.sentence
