"""The fast engine's taps against the eager engine's hooks: the same names, the same values in float32."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image, ImageDraw

import dsocr_core.engine.fast.step as step
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.models.taps.files import Dump
from dsocr_core.reading.records import OcrRequest
from dsocr_core.trace.fast import trace_fast
from dsocr_core.trace.run import compare_dumps
from dsocr_core.trace.sides import Task, trace_engine
from tests.engine.fast.test_engine import few_programs
from tests.support.seeded_weights import tiny_config, with_changes, write_seeded_checkpoint

STEPS = 2


def test_every_buffer_of_the_fast_engine_has_the_eager_engines_values(
    tmp_path: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page with tiles: two sizes of views, which the fast engine runs as one."""
    monkeypatch.setattr(step, "launches_for", few_programs)
    config = with_changes(tiny_config(), num_hidden_layers=2)
    directory = write_seeded_checkpoint(config, tmp_path / "tiny_fast_trace", torch.float32)
    engine = EagerEngine(load_checkpoint(str(directory), device, torch.float32))
    picture = Image.new("RGB", (700, 300), "white")
    ImageDraw.Draw(picture).text((20, 20), "Hello page", fill="black")
    picture.save(tmp_path / "page.png")
    request = OcrRequest(tmp_path / "page.png", "gundam")
    tokens = trace_engine(engine, Task(request, STEPS, tmp_path / "a"))
    assert trace_fast(engine, Task(request, STEPS, tmp_path / "b", tokens)) == tokens
    a, b = Dump(tmp_path / "a"), Dump(tmp_path / "b")
    assert b.about["backend"] == "fast" and b.calls == a.calls == STEPS + 1
    found = compare_dumps(a, b)
    assert found.only_b == ()
    in_prefill = {row.name for row in found.tensors if row.call == 0}
    assert {
        "pixels", "sam.embeddings", "sam.block0.mid", "sam.block1.attn", "sam.neck", "sam.out",
        "clip.embeddings", "clip.pre_norm", "clip.block0.act", "clip.block0.out", "clip.block1.fc1",
        "projector.in", "projector", "embeddings", "decoder.layer0.keys", "decoder.layer0.mixed",
        "decoder.layer0.down", "decoder.layer1.router.ids", "decoder.layer1.experts", "decoder.layer1.out",
        "decoder.layer1.shared.act", "norm", "logits",
    } <= in_prefill  # fmt: skip
    in_step = {row.name for row in found.tensors if row.call == STEPS}
    assert {
        "embeddings", "decoder.layer0.queries", "decoder.layer0.keys", "decoder.layer0.v",
        "decoder.layer0.mid", "decoder.layer0.act", "decoder.layer0.out", "decoder.layer1.router.ids",
        "decoder.layer1.router.weights", "decoder.layer1.shared.act", "decoder.layer1.out", "logits",
    } <= in_step  # fmt: skip
    assert {row.view for row in found.tensors if row.name == "sam.out"} == {0, 1}  # tiles, global view
    for row in found.tensors:
        assert row.differing_share == 0 or (row.error is not None and row.error < 1e-4), row
