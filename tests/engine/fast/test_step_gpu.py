"""At the published and the embedded sizes on a real GPU: `pytest -m gpu tests/kernels`.

Recorded against launched, with dependent launch against without, early against late, and run against run.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from dsocr_core.engine.fast.decode import StepGraph
from dsocr_core.engine.fast.step import DecodeStep, StepLaunches
from dsocr_core.engine.fast.weights import DecoderWeights, pack
from dsocr_core.kernels.launch import Launch
from dsocr_core.models.config import DecoderConfig
from tests.engine.decoders import EMBEDDED, PUBLISHED, random_decoder

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]

PROMPT_TOKENS, NEW_TOKENS = 703, 200


Weights = tuple[DecoderConfig, DecoderWeights]


@pytest.fixture(scope="module", params=[PUBLISHED, EMBEDDED], ids=["published", "embedded"])
def weights(request: pytest.FixtureRequest) -> Weights:
    return request.param, pack(random_decoder(request.param, torch.device("cuda")))


def new_step(weights: Weights, dependent: bool = True, launches: StepLaunches | None = None) -> DecodeStep:
    config, packed = weights
    hopper = torch.cuda.get_device_capability() >= (9, 0)
    launches = (launches or StepLaunches()).with_dependent(dependent and hopper)
    return DecodeStep(packed, config, PROMPT_TOKENS + NEW_TOKENS, torch.bfloat16, -1, launches)


def begin(step: DecodeStep) -> None:
    """As after a prefill of random keys and values."""
    torch.manual_seed(1)
    step.cache.keys.normal_()
    step.cache.values.normal_()
    ids = torch.randint(0, step.config.vocab_size, (PROMPT_TOKENS + 1,))
    step.begin(tuple(ids.tolist()), NEW_TOKENS, 3)


LATE: dict[str, Any] = {
    name: replace(at, early=False) for name, at in vars(StepLaunches()).items() if isinstance(at, Launch)
}
FEW: dict[str, Any] = {
    "mixture_down": Launch(2, early=True), "gate_up": Launch(2, 1, programs=1584),
    "attention_output": Launch(8, 8, early=True), "qkv_rotary": Launch(2, 1, early=True),
    "split_attention": Launch(16, early=True), "splits": 3, "tiles": 2,
}  # fmt: skip
AT_ONCE = replace(StepLaunches(), gate_up=Launch(4))


def decoded(step: DecodeStep, graph: bool) -> list[int]:
    run = StepGraph(step).replay if graph else step.run
    begin(step)
    for _ in range(NEW_TOKENS):
        run()
    return step.tokens[PROMPT_TOKENS:].tolist()


@torch.inference_mode()
@pytest.mark.parametrize(
    "same", [(StepLaunches(), StepLaunches(**LATE), AT_ONCE), (StepLaunches(**FEW),)], ids=["", "few rows"]
)
def test_every_way_to_launch_gives_the_same_tokens(weights: Weights, same: tuple[StepLaunches, ...]) -> None:
    """What is read before it is complete shows here: without dependent launch nothing overlaps.

    At the same warps a row's sum does not know which program makes it, or when.
    """
    expected = decoded(new_step(weights, False, same[0]), graph=False)
    assert len(set(expected)) > 20
    for launches in same:
        for dependent in (False, True):
            step = new_step(weights, dependent, launches)
            for _ in range(3):
                assert decoded(step, graph=True) == expected
