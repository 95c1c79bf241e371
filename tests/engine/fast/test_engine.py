"""Both engines on a whole page: the same text from a small model, and each says which one it is."""

from __future__ import annotations

import pytest
import torch
from PIL import Image, ImageDraw

import dsocr_core.engine.fast.step as step
from dsocr_core.engine.base import Engine, EngineOptions
from dsocr_core.engine.checkpoint import Checkpoint, load_checkpoint
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.engine.fast.engine import FastEngine
from dsocr_core.engine.fast.step_launches import StepLaunches
from dsocr_core.kernels.launch import Launch
from dsocr_core.reading.records import OcrRequest, OcrResult
from tests.support.seeded_weights import tiny_config, with_changes, write_seeded_checkpoint

TOKENS = 6


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, device: torch.device) -> Checkpoint:
    config = with_changes(tiny_config(), num_hidden_layers=2)
    directory = write_seeded_checkpoint(config, tmp_path_factory.mktemp("fast") / "tiny_fast", torch.float32)
    return load_checkpoint(str(directory), device, torch.float32)


@pytest.fixture(scope="module")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(scope="module")
def request_(tmp_path_factory: pytest.TempPathFactory) -> OcrRequest:
    picture = Image.new("RGB", (300, 200), "white")
    ImageDraw.Draw(picture).text((20, 20), "Hello page", fill="black")
    path = tmp_path_factory.mktemp("page") / "page.png"
    picture.save(path)
    return OcrRequest(path, "tiny", max_new_tokens=TOKENS)


def read(engine: type[Engine], checkpoint: Checkpoint, request: OcrRequest) -> OcrResult:
    return engine(checkpoint, EngineOptions(ignore_eos=True)).recognize(request)


def few_programs(_: torch.device) -> StepLaunches:
    """Large blocks: the interpreter runs the programs of a kernel one after another."""
    names = (
        "qkv_rotary", "attention_output", "dense_gate_up", "dense_down", "gate_up", "mixture_down",
        "bound_rows", "best_of_bounded",
    )  # fmt: skip
    return StepLaunches(
        embed_token=Launch(2048), split_attention=Launch(256), splits=1,
        **{name: Launch(512) for name in names},
    )  # fmt: skip


def test_both_engines_write_the_same_text(
    checkpoint: Checkpoint, request_: OcrRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "launches_for", few_programs)
    eager, fast = (read(engine, checkpoint, request_) for engine in (EagerEngine, FastEngine))
    assert fast.token_ids == eager.token_ids
    assert fast.text_raw == eager.text_raw
    assert fast.inputs == eager.inputs
    assert len(fast.token_ids) == TOKENS and len(set(fast.token_ids)) > 1
    assert [(row.stage, row.calls) for row in fast.timings] == [
        (row.stage, row.calls) for row in eager.timings
    ]
    assert (eager.environment["engine"], fast.environment["engine"]) == ("eager", "fast")
