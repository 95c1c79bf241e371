"""What `measure batch-step` times is a step of live streams, each at its own context."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import dsocr_core.measure.batch_step as command
from dsocr_core.engine.fast.batch_step import BatchLaunches, BatchStep
from dsocr_core.engine.fast.batch_weights import BatchWeights
from dsocr_core.engine.fast.packed import PackedDecoder
from dsocr_core.kernels.launch import Launch
from dsocr_core.kernels.state import POSITION
from dsocr_core.measure.batch_step import BatchSteps
from dsocr_core.measure.rows import Rows
from dsocr_core.models.family import parse_config
from dsocr_core.models.weights import random_model
from tests.support.seeded_weights import tiny_config
from tests.support.tiny_members import tiny_unlimited


@torch.inference_mode()
def test_every_stream_is_at_its_own_context_and_moves_by_one() -> None:
    config = parse_config(tiny_config())
    decoder = replace(config.decoder, layers=1, heads=2, vocab_size=40)
    model = random_model(replace(config, decoder=decoder), torch.device("cpu"), torch.bfloat16, seed=2)
    weights = BatchWeights.of(PackedDecoder.of(model.decoder))
    few = BatchLaunches(Launch(512, 4), 1, 1, Launch(2048), Launch(1), Launch(64))
    step = BatchSteps(decoder, weights, context=5, tokens=4).step(3, few)
    assert step.states[:, POSITION].tolist() == [5, 7, 9]
    step.run()
    assert step.states[:, POSITION].tolist() == [6, 8, 10]


@torch.inference_mode()
def test_a_window_is_timed_beside_full_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same contexts; of the full one as many positions are read as it has, of the other 5 + 4."""
    config = parse_config(tiny_unlimited()).decoder
    config = replace(config, layers=2, heads=2, vocab_size=40)
    weights = BatchWeights.of(PackedDecoder.of(command.random_decoder(config, torch.device("cpu"))))
    steps = BatchSteps(config, weights, context=5, tokens=20)
    seen: list[tuple[int, int, list[int]]] = []

    def record(run: Callable[[], None], device: torch.device) -> SimpleNamespace:
        step: BatchStep = run.__self__  # type: ignore[attr-defined]
        assert step.keys[1].is_contiguous()
        run()
        return SimpleNamespace(
            replay=lambda: seen.append((step.ring, step.held, step.states[:, POSITION].tolist()))
        )

    monkeypatch.setattr(command, "record", record)
    monkeypatch.setattr("dsocr_core.measure.rows.copy_bandwidth", lambda _: 1e12)
    ratios = command.against_full(Rows(torch.device("cpu")), steps, 3)
    assert set(ratios) == {"spread", "all at the end"}
    assert {ring: held for ring, held, _ in seen} == {4: 64, 0: 5 + 20 + command.SPARE + 39}
    assert [positions for _, _, positions in seen[:: command.REPLAYS + 1]] == 2 * [[5, 15, 25], [25, 25, 25]]
    size = 2 * 2 * 2 * 32 * 2 * 3
    assert steps.cache_bytes(3) == size * (5 + 4) and steps.cache_bytes(3, 20, full=True) == size * 25
