"""The fast engine's taps against the eager engine's hooks: the same names, the same values in float32."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageDraw

import dsocr_core.engine.fast.step as step
from dsocr_core.engine.base import EagerEngine
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.models.taps.files import Dump
from dsocr_core.reading.records import OcrRequest
from dsocr_core.trace.fast import trace_fast
from dsocr_core.trace.run import compare_dumps
from dsocr_core.trace.sides import Task, trace_engine
from tests.engine.decoders import FEW
from tests.support.seeded_weights import (
    tiny_config,
    tiny_ocr2_config,
    tiny_unlimited_config,
    with_changes,
    written,
)

STEPS = 2


CLIP = {
    "clip.embeddings", "clip.pre_norm", "clip.block0.act", "clip.block0.out", "clip.block1.fc1",
}  # fmt: skip
ENCODER = {
    "encoder.embeddings", "encoder.block0.q", "encoder.block0.k", "encoder.block0.attn", "encoder.block0.act",
    "encoder.block0.out", "encoder.block1.v",
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "preset", "size", "steps", "behind_sam"),
    [
        (tiny_config, "gundam", (700, 300), STEPS, CLIP),
        (tiny_ocr2_config, "default", (800, 400), STEPS, ENCODER),
        (lambda: tiny_unlimited_config(4), "base", (300, 200), 6, CLIP),
    ],
    ids=["two sizes of views", "an encoder", "a ring"],
)
def test_every_buffer_of_the_fast_engine_has_the_eager_engines_values(
    config: Callable[[], dict[str, Any]], preset: str, size: tuple[int, int], steps: int,
    behind_sam: set[str], tmp_path: Path, device: torch.device, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(step, "launches_for", lambda _: FEW)
    source = written(with_changes(config(), num_hidden_layers=2), tmp_path / "tiny_fast_trace")
    engine = EagerEngine(load_checkpoint(source, device, torch.float32))
    picture = Image.new("RGB", size, "white")
    ImageDraw.Draw(picture).text((20, 20), "Hello page", fill="black")
    picture.save(tmp_path / "page.png")
    request = OcrRequest(tmp_path / "page.png", preset, model=engine.checkpoint.model.family.name)
    tokens = trace_engine(engine, Task(request, steps, tmp_path / "a"))
    assert trace_fast(engine, Task(request, steps, tmp_path / "b", tokens)) == tokens
    a, b = Dump(tmp_path / "a"), Dump(tmp_path / "b")
    assert b.about["backend"] == "fast" and b.calls == a.calls == steps + 1
    found = compare_dumps(a, b)
    assert found.only_b == ()
    in_prefill = {row.name for row in found.tensors if row.call == 0}
    assert behind_sam | {
        "pixels", "sam.embeddings", "sam.block0.mid", "sam.block1.attn", "sam.neck", "sam.out",
        "projector.in", "projector", "embeddings", "decoder.layer0.keys", "decoder.layer0.mixed",
        "decoder.layer0.down", "decoder.layer1.router.ids", "decoder.layer1.experts", "decoder.layer1.out",
        "decoder.layer1.shared.act", "norm", "logits",
    } <= in_prefill  # fmt: skip
    in_step = {row.name for row in found.tensors if row.call == steps}
    assert {
        "embeddings", "decoder.layer0.queries", "decoder.layer0.keys", "decoder.layer0.v",
        "decoder.layer0.mid", "decoder.layer0.act", "decoder.layer0.out", "decoder.layer1.router.ids",
        "decoder.layer1.router.weights", "decoder.layer1.shared.act", "decoder.layer1.out", "logits",
    } <= in_step  # fmt: skip
    views = {row.view for row in found.tensors if row.name == "sam.out"}
    assert views == ({0} if preset == "base" else {0, 1})  # tiles, global view
    for row in found.tensors:
        allowed = 1e-3 if row.elements == 2 else 1e-4  # of the spread, which is small of two alike
        assert row.differing_share == 0 or (row.error is not None and row.error < allowed), row
