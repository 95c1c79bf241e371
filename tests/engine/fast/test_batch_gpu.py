"""The batch at the published sizes on a real GPU: `pytest -m gpu tests/engine/fast/test_batch_gpu.py`.

Kernels against their plain references, caches of more than 2^31 elements, the whole step against its plain
form, recorded against launched, and a sequence's tokens whatever its neighbours.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from dsocr_core.engine.fast.batch import Slots
from dsocr_core.engine.fast.batch_step import BatchStep
from dsocr_core.engine.fast.weights import DecoderWeights, pack
from dsocr_core.kernels.batch.attention import (
    attend_rows,
    attend_rows_reference,
    join_rows,
    join_rows_reference,
)
from dsocr_core.kernels.launch import PLAIN, TRITON, Kernels, Launch
from dsocr_core.kernels.state import state_row
from dsocr_core.reading.records import NgramPolicy
from tests.engine.decoders import EMBEDDED, PUBLISHED, random_decoder

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]

POSITIONS, NGRAM = 512, 3


@pytest.fixture(autouse=True)
def give_memory_back() -> Iterator[None]:
    yield
    torch.cuda.empty_cache()


@pytest.fixture(scope="module", params=[PUBLISHED, EMBEDDED], ids=["published", "embedded"])
def weights(request: pytest.FixtureRequest) -> tuple[object, DecoderWeights]:
    config = request.param
    return config, pack(random_decoder(config, torch.device("cuda")))


def new_step(weights: tuple[object, DecoderWeights], slots: int, kernels: Kernels = TRITON) -> BatchStep:
    config, held = weights
    return BatchStep(held, config, slots, POSITIONS, torch.bfloat16, -1, kernels=kernels)  # type: ignore[arg-type]


def fill(step: BatchStep, slots: list[int], seed: int = 1) -> None:
    """Page n of the seed into the n-th of these slots: prompts of different lengths, random caches."""
    for number, slot in enumerate(slots):
        generator = torch.Generator().manual_seed(seed * 1000 + number)
        count = 100 + 37 * number % 200
        ids = torch.randint(0, min(50, step.config.vocab_size), (count,), generator=generator)
        on_device = torch.Generator("cuda").manual_seed(seed * 1000 + number)
        for half in (step.keys, step.values):
            half[:, slot].normal_(generator=on_device)
        step.begin(slot, tuple(ids.tolist()), 100, NGRAM)
        step.first(slot, torch.randn(step.config.vocab_size, generator=on_device, device="cuda"))


@torch.inference_mode()
@pytest.mark.parametrize("stages", [1, 2, 3])
@pytest.mark.parametrize("splits", [1, 4])
def test_attention_in_a_cache_beyond_32_bits(splits: int, stages: int) -> None:
    slots, heads, capacity, dim = 256, 10, 6656, 128
    assert slots * heads * capacity * dim > 2**31
    keys, values = (
        torch.empty(slots, heads, capacity, dim, dtype=torch.bfloat16, device="cuda") for _ in range(2)
    )
    live = {0: 0, 1: 900, 128: 6655, 254: 31, 255: 4000}
    states = torch.tensor([state_row(0, 9999, 1, NgramPolicy(), 0)] * slots, dtype=torch.int32)
    for slot, position in live.items():
        states[slot] = torch.tensor(state_row(position, 9999, 0, NgramPolicy(), 0))
        keys[slot].normal_()
        values[slot].normal_()
    states = states.cuda()
    q = torch.randn(slots, heads, dim, device="cuda").bfloat16()
    found: list[Tensor] = []
    for attend, join in ((attend_rows, join_rows), (attend_rows_reference, join_rows_reference)):
        partial = torch.full((slots, splits, heads, dim), float("nan"), device="cuda")
        log_sums = torch.full((slots, splits, heads), float("nan"), device="cuda")
        mixed = torch.full((slots, heads * dim), float("nan"), dtype=torch.bfloat16, device="cuda")
        attend(q, keys, values, states, partial, log_sums, Launch(32, 4), stages)
        join(partial, log_sums, mixed, Launch(1, 1))
        found.append(mixed)
    torch.testing.assert_close(found[0], found[1], rtol=2e-2, atol=2e-3)
    assert not found[0][[2, 100, 253]].any()


@torch.inference_mode()
def test_a_step_is_its_plain_forms(weights: tuple[object, DecoderWeights]) -> None:
    """Logits within bfloat16's rounding, tokens as good as the plain form's best within that.

    A tie of two experts, which rounding decides, may move a row or two further.
    """
    kernel, plain = new_step(weights, 13), new_step(weights, 13, PLAIN)
    for step in (kernel, plain):
        fill(step, list(range(12)))
    assert torch.equal(kernel.tokens, plain.tokens) and torch.equal(kernel.states, plain.states)
    for _ in range(6):
        kernel.run()
        plain.run()
        exact, near = plain.logits[:12].float(), kernel.logits[:12].float()
        assert torch.equal(exact.isinf(), near.isinf())
        assert _row_errors(near, exact).median() < 3e-2
        position = kernel.states[:12, 0].long()
        chosen = kernel.tokens[:12].gather(1, position[:, None]).long()
        lost = exact.max(dim=1).values - exact.gather(1, chosen)[:, 0]
        assert (lost <= 0.1 * exact[~exact.isinf()].std()).sum() >= 10
        # Both go on from the same place.
        for name in ("tokens", "states", "keys", "values"):
            getattr(plain, name).copy_(getattr(kernel, name))


@torch.inference_mode()
def test_every_page_decodes_the_same_whatever_is_beside_it(weights: tuple[object, DecoderWeights]) -> None:
    """Bit for bit: other slots, other neighbours, recorded or launched, once more."""

    def run(slots: list[int], others: list[int], graph: bool) -> Tensor:
        step = new_step(weights, 64)
        decoder = Slots(step) if graph else None
        fill(step, slots)
        fill(step, others, seed=2)
        for _ in range(40):
            decoder.replay() if decoder is not None else step.run()
        return step.tokens[slots]

    expected = run([0, 1, 2, 3], [], graph=False)
    assert len(set(expected[0, 100:140].tolist())) > 10
    assert torch.equal(run([0, 1, 2, 3], [], graph=True), expected)
    assert torch.equal(run([63, 5, 40, 17], [1, 2, 3, 50, 60], graph=True), expected)
    assert torch.equal(
        run([7, 8, 9, 10], [n for n in range(64) if n not in (7, 8, 9, 10)], graph=True), expected
    )


def _row_errors(logits: Tensor, exact: Tensor) -> Tensor:
    """Of each row, what is banned left out."""
    allowed = ~exact.isinf()
    distance = torch.where(allowed, logits - exact, 0.0)
    return distance.norm(dim=1) / torch.where(allowed, exact, 0.0).norm(dim=1)
