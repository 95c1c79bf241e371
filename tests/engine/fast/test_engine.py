"""Both engines on a whole page: the same text from a small model, and each says which one it is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image, ImageDraw

import dsocr_core.engine.fast.step as step
from dsocr_core.engine.base import EngineOptions
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.engine.fast.engine import FastEngine
from dsocr_core.reading.records import OcrRequest
from tests.support.seeded_weights import tiny_config, with_changes, write_seeded_checkpoint
from tests.support.small_decoder import FEW

TOKENS = 6


def test_both_engines_write_the_same_text(
    tmp_path: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step, "launches_for", lambda _: FEW)
    config = with_changes(tiny_config(), num_hidden_layers=2)
    directory = write_seeded_checkpoint(config, tmp_path / "tiny_fast", torch.float32)
    checkpoint = load_checkpoint(str(directory), device, torch.float32)
    picture = Image.new("RGB", (300, 200), "white")
    ImageDraw.Draw(picture).text((20, 20), "Hello page", fill="black")
    picture.save(tmp_path / "page.png")
    request = OcrRequest(tmp_path / "page.png", "tiny", max_new_tokens=TOKENS)

    options = EngineOptions(ignore_eos=True)
    eager, fast = (engine(checkpoint, options).recognize(request) for engine in (EagerEngine, FastEngine))
    assert fast.token_ids == eager.token_ids
    assert fast.text_raw == eager.text_raw
    assert fast.inputs == eager.inputs
    assert len(fast.token_ids) == TOKENS and len(set(fast.token_ids)) > 1
    assert [(row.stage, row.calls) for row in fast.timings] == [
        (row.stage, row.calls) for row in eager.timings
    ]
