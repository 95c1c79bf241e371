"""`measure decode-step --at`: tokens from given steps on, on a tiny decoder."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import dsocr_core.measure.decode_step as command
from dsocr_core.engine.fast.packed import PackedDecoder
from dsocr_core.engine.fast.step_launches import StepLaunches
from dsocr_core.kernels.launch import Launch
from dsocr_core.measure.batch_step import random_decoder
from dsocr_core.measure.rows import Rows
from dsocr_core.models.family import parse_config
from tests.support.tiny_members import tiny_unlimited

FEW = StepLaunches(
    embed_token=Launch(2048), split_attention=Launch(16), splits=1,
    **{name: Launch(64) for name in (
        "qkv_rotary", "attention_output", "dense_gate_up", "dense_down", "gate_up", "mixture_down",
        "bound_rows", "best_of_bounded",
    )},
)  # fmt: skip


@torch.inference_mode()
def test_tokens_are_timed_from_the_steps_that_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    config = replace(parse_config(tiny_unlimited()).decoder, layers=1, heads=2, vocab_size=40)
    packed = PackedDecoder.of(random_decoder(config, torch.device("cpu")))
    steps = command.Steps(config, packed, 7, 40)
    monkeypatch.setattr(command, "TIMED", 2)
    monkeypatch.setattr("dsocr_core.measure.rows.copy_bandwidth", lambda _: 1e12)
    began: list[int] = []

    def replay(graph: command.StepGraph, count: int) -> None:
        began.append(int(graph.step.state[command.POSITION]))
        graph.step.run()

    monkeypatch.setattr(command.StepGraph, "replay", replay)
    rows = Rows(torch.device("cpu"))
    command.at_steps(rows, steps, FEW, (3, 30), repeat=1)
    assert began == [10, 37, 10, 37]
    assert [row.name for row in rows.rows] == 2 * ["from step 3 on", "from step 30 on"]
