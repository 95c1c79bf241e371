"""What `measure batch-step` times is a step of live streams, each at its own context."""

from __future__ import annotations

from dataclasses import replace

import torch

from dsocr_core.engine.fast.batch_step import BatchLaunches
from dsocr_core.engine.fast.batch_weights import BatchWeights
from dsocr_core.engine.fast.packed import PackedDecoder
from dsocr_core.kernels.launch import Launch
from dsocr_core.kernels.state import POSITION
from dsocr_core.measure.batch_step import BatchSteps
from dsocr_core.models.family import parse_config
from dsocr_core.models.weights import random_model
from tests.support.seeded_weights import tiny_config


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
