"""The command that times vision and prefill, on a tiny model without a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

pytest.importorskip("triton")

import dsocr_core.measure.prefill as command
from dsocr_core.engine.fast.prefill import FastPrefill
from dsocr_core.engine.fast.vision import VisionTowers
from dsocr_core.measure.prefill_variants import EagerVariant, FastVariant, Page
from dsocr_core.measure.rows import Rows
from dsocr_core.models.blocks.attention import sdpa_core
from dsocr_core.models.deepseek_ocr2 import DEEPSEEK_OCR2
from dsocr_core.models.family import parse_config, preset_named
from dsocr_core.models.weights import random_model
from tests.support.seeded_weights import tiny_config
from tests.support.tiny_members import tiny_ocr2

CPU = torch.device("cpu")


@torch.inference_mode()
def test_both_engines_and_the_variants_are_timed_and_checked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = random_model(parse_config(tiny_config()), CPU, torch.float32)
    page = Page.random(model.config, preset_named("tiny"), (1, 1), 9, CPU)
    assert [view.shape for view in page.views] == [(1, 3, 512, 512)]
    assert len(page.prompt.ids) == 1 + 73 + 9

    def only_recorded(*arguments: Any, graphs: bool = True) -> FastVariant:
        if not graphs:
            raise RuntimeError("no such pass\nand a long story")
        return FastVariant(*arguments, graphs)

    monkeypatch.setattr(command, "FastVariant", only_recorded)
    monkeypatch.setattr("dsocr_core.measure.rows.copy_bandwidth", lambda _: 1e12)
    rows = Rows(CPU)
    before = torch.get_num_threads()
    torch.set_num_threads(1)  # a CPU's products of several threads sum by where a row stands
    try:
        errors = command.measure(rows, model, page, repeat=1)
    finally:
        torch.set_num_threads(before)
    for name in ("eager", "fast", "fast, 4 pages together"):
        stages = [row.name for row in rows.rows if row.table == name]
        assert stages == ["sam", "clip", "projector", "vision_fusion", "prefill", "all in a row"]
    assert rows.failed == {"fast, no graph": "no such pass"}
    for stage in (
        "sam", "clip", "projector", "vision_fusion", "prefill", "prefill, same embeddings",
        "  values, median position",
    ):  # fmt: skip
        eager, fast = map(float, errors[stage])
        assert eager == 0 and 0 < fast < 1e-4
    assert "whoever is beside it: the same bits" in capsys.readouterr().out
    assert errors["best token as float32's"] == errors["twice, the same bits"] == ["yes", "yes"]


@torch.inference_mode()
def test_the_stages_of_another_model_are_its_rows() -> None:
    model = random_model(parse_config(tiny_ocr2()), CPU, torch.float32)
    page = Page.random(model.config, preset_named("default", DEEPSEEK_OCR2), (2, 1), 9, CPU)
    assert [view.shape for view in page.views] == [(2, 3, 768, 768), (1, 3, 1024, 1024)]
    assert len(page.prompt.ids) == 1 + 545 + 9
    eager = EagerVariant(model, page, sdpa_core)
    fast = FastVariant(model, page, sdpa_core, VisionTowers(model), FastPrefill(model))
    assert [str(stage) for stage in fast.stages()] == [
        "sam", "encoder", "projector", "vision_fusion", "prefill",
    ]  # fmt: skip
    for variant in (eager, fast):
        variant.run()
    for stage, rows in fast.joined().items():
        torch.testing.assert_close(rows, eager.joined()[stage], rtol=1e-4, atol=1e-4)
