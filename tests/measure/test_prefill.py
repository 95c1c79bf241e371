"""The command that times vision and prefill, on a tiny model without a GPU."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

import dsocr_core.measure.prefill as command
from dsocr_core.measure.prefill_variants import Page
from dsocr_core.models.family import parse_config, preset_named
from dsocr_core.models.weights import random_model
from tests.support.seeded_weights import tiny_config

CPU = torch.device("cpu")


@torch.inference_mode()
def test_both_engines_and_the_variants_are_timed_and_checked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = random_model(parse_config(tiny_config()), CPU, torch.float32)
    page = Page.random(model.config, preset_named("tiny"), (1, 1), 9, CPU)
    assert [view.shape for view in page.views] == [(1, 3, 512, 512)]
    assert len(page.prompt.ids) == 1 + 73 + 9

    def refuse(*_: object) -> None:
        raise RuntimeError("no such attention\nand a long story")

    monkeypatch.setattr("dsocr_core.engine.fast.vision.extended_attention", refuse)
    command.measure(model, page, rate=1e12, repeat=2)
    lines = capsys.readouterr().out.splitlines()
    for name in ("eager", "fast", "fast, no graph", "fast, bias written out"):
        stages = [line[27:41].strip() for line in lines if line[:26].strip() == name]
        assert stages == ["sam", "clip", "projector", "vision_fusion", "prefill", "all in a row"]
    assert "fast, extended dimensions: failed: no such attention" in lines
    errors = {line[:26].strip(): line[26:].split() for line in lines[-9:]}
    for stage in (
        "sam",
        "clip",
        "projector",
        "vision_fusion",
        "prefill",
        "prefill, same embeddings",
        "values, median position",
    ):
        eager, fast = map(float, errors[stage])
        assert eager == 0 and 0 < fast < 1e-4
    assert errors["best token as float32's"] == errors["twice, the same bits"] == ["yes", "yes"]
