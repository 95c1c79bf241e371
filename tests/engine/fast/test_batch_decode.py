"""The batch against the eager engine, page by page in float32: whatever else is in it, whenever a page comes.

Most run on the plain form of the kernels, which is as exact and a hundred times as fast as the interpreter.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace

import pytest
import torch

from dsocr_core.engine.fast.batch import Decoded, Slots
from dsocr_core.engine.fast.batch_buffers import slot_bytes
from dsocr_core.engine.fast.batch_step import BatchStep
from dsocr_core.engine.fast.launches import BatchLaunches
from dsocr_core.engine.fast.weights import pack
from dsocr_core.engine.generate import NO_TOKEN, Sequence, generate
from dsocr_core.engine.sampling import NgramRule
from dsocr_core.kernels.launch import PLAIN, TRITON, Kernels, Launch
from dsocr_core.kernels.state import DONE
from dsocr_core.models.blocks.attention import sdpa_core
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import random_model
from dsocr_core.reading.records import NgramPolicy
from tests.support.batch_pages import Page, mixed_pages, prefill
from tests.support.small_decoder import DEVICE, VOCABULARY, small_model

FEW = BatchLaunches(Launch(64, 4), 1, 1, Launch(2048), Launch(1), Launch(64))


@pytest.fixture(scope="module")
def model() -> OcrModel:
    return small_model()


def batch(model: OcrModel, slots: int, group: int, eos: int = NO_TOKEN, kernels: Kernels = PLAIN) -> Slots:
    weights = pack(model.decoder)
    launches = FEW if kernels is TRITON else None
    config = model.config.decoder
    return Slots(BatchStep(weights, config, slots, 64, torch.float32, eos, launches, kernels), group)


def decoded(decoder: Slots, model: OcrModel, pages: Iterable[Page]) -> dict[object, Decoded]:
    """All pages through the slots, each as soon as one is free."""
    waiting, ended = list(pages), {}
    while waiting or decoder.busy:
        while waiting and decoder.free:
            page = waiting.pop(0)
            slot, cache = decoder.take()
            logits = prefill(model, page.ids, cache)
            decoder.begin(slot, page.key, page.ids, page.limit, page.ngram_size, logits)
        for one in decoder.advance():
            assert one.key not in ended
            ended[one.key] = one
    return ended


def eager(model: OcrModel, page: Page, eos: int = NO_TOKEN) -> tuple[int, ...]:
    sequence = Sequence.start(model, page.ids, page.limit, page.ngram_size, sdpa_core, torch.float32)
    logits = sequence.forward(model, model.embed(torch.tensor([page.ids], device=model.device)))
    return tuple(generate(sequence.next_logits(model), logits, sequence.rule, page.limit, eos))


@torch.inference_mode()
@pytest.mark.parametrize("seed", range(2))
def test_a_pages_tokens_do_not_depend_on_the_batch(model: OcrModel, seed: int) -> None:
    pages = mixed_pages(14, seed)
    wanted = {page.key: eager(model, page) for page in pages}
    # An end token that comes: in the middle of some page, at the first token of another.
    eos = wanted[next(key for key, tokens in wanted.items() if len(tokens) == 9)][4]
    ending = {page.key: eager(model, page, eos) for page in pages}
    assert any(len(tokens) == 1 for tokens in ending.values())
    assert any(len(ending[key]) < len(tokens) for key, tokens in wanted.items())
    draw = random.Random(seed)
    for slots, group in ((1, 4), (3, 1), (5, 4), (14, 7)):
        decoder = batch(model, slots, group, eos)
        for _ in range(2):  # and once more in the same slots, in another order
            found = decoded(decoder, model, draw.sample(pages, len(pages)))
            assert {key: one.tokens for key, one in found.items()} == ending
            assert decoder.free == slots and not decoder.busy
            assert all(one.milliseconds is not None and one.milliseconds >= 0 for one in found.values())


@pytest.fixture(scope="module")
def windowed(model: OcrModel) -> OcrModel:
    """The same weights, and a ring of three slots."""
    decoder = replace(model.config.decoder, window=3)
    return random_model(replace(model.config, decoder=decoder), DEVICE, torch.float32, seed=2)


@torch.inference_mode()
def test_each_page_forgets_by_its_own_prompt(model: OcrModel, windowed: OcrModel) -> None:
    pages = mixed_pages(9, 0)
    wanted = {page.key: eager(windowed, page) for page in pages}
    assert any(eager(model, page) != wanted[page.key] for page in pages)
    draw = random.Random(0)
    for slots, group in ((1, 4), (3, 1), (9, 7)):
        decoder = batch(windowed, slots, group)
        for _ in range(2):  # and once more in the same slots, in another order
            found = decoded(decoder, windowed, draw.sample(pages, len(pages)))
            assert {key: one.tokens for key, one in found.items()} == wanted


@torch.inference_mode()
def test_a_cache_of_a_prompt_and_its_ring_is_enough(windowed: OcrModel) -> None:
    """64 positions, and of each layer 64 slots were more than 3 + 3: as many as alignment makes of them."""
    step = batch(windowed, 1, 1).step
    small = BatchStep(step.weights, step.config, 2, 200, torch.float32, NO_TOKEN, kernels=PLAIN, held=22)
    assert (small.positions, small.held, small.keys.shape[3]) == (256, 64, 64)
    page = Page(0, (3, 9, 4), 190, 3)
    decoder = Slots(small, 8)
    assert decoded(decoder, windowed, [page])[0].tokens == eager(windowed, page)
    held = [group.positions for group in decoder.times]
    assert max(held) == 3 + 3 and small.fits(61, 190) and not small.fits(62, 190)


@torch.inference_mode()
def test_the_kernels_turn_each_ring_by_itself(windowed: OcrModel) -> None:
    pages = [Page(0, (3, 9, 4, 9), 8, 2), Page(1, (5, 6), 6, NgramPolicy(1, 5, (), True))]
    found = decoded(batch(windowed, 2, 4, kernels=TRITON), windowed, pages)
    assert {key: one.tokens for key, one in found.items()} == {p.key: eager(windowed, p) for p in pages}


@torch.inference_mode()
def test_the_kernels_decode_what_the_eager_engine_does(model: OcrModel) -> None:
    pages = [
        Page(0, (3, 9, 4, 9, 4, 7, 3, 9), 7, 3),
        Page(1, (5, 6), 3, 0),
        Page(2, (3, 3, 3, 3, 3), 4, 1),
        Page(3, (8, 9, 2, 11), 1, 3),
        Page(4, (3, 9, 4, 9, 4, 7, 3, 9), 9, NgramPolicy(2, 6, (4, 9))),
    ]
    found = decoded(batch(model, 2, 4, kernels=TRITON), model, pages)
    assert {key: one.tokens for key, one in found.items()} == {p.key: eager(model, p) for p in pages}
    assert eager(model, pages[2]) != eager(model, replace(pages[2], ngram_size=0))


@torch.inference_mode()
@pytest.mark.parametrize("count", [11, 12])
def test_the_rule_reaches_back_into_the_prompt(model: OcrModel, count: int) -> None:
    """Banned at the first token and at every later one are the rule's, the slot used before by another."""
    draw, size = random.Random(count), 3
    step = batch(model, 2, 1).step
    step.keys.fill_(0.5)
    step.values.fill_(0.5)
    hits = 0
    for page in range(2):
        tokens = draw.choices(range(3), k=count + 4 * page)
        step.begin(1, tuple(tokens), 20, size)
        step.first(1, torch.zeros(VOCABULARY))
        logits = step._first_logits[0]
        for _ in range(8):
            banned = NgramRule(size, tokens).banned()
            hits += len(banned)
            assert set(logits.isinf().nonzero().flatten().tolist()) == banned
            # What it chose gives way to a token that makes repetitions.
            tokens.append(draw.randrange(3))
            step.tokens[1, len(tokens) - 1] = tokens[-1]
            step.run()
            logits = step.logits[1]
    assert hits > 8


@torch.inference_mode()
def test_a_finished_slot_stays_as_it_is_while_others_go_on(model: OcrModel) -> None:
    decoder = batch(model, 2, 1)
    for page in (Page(0, (3, 4), 3, 2), Page(1, (5, 6, 7), 30, 2)):
        slot, cache = decoder.take()
        decoder.begin(slot, page.key, page.ids, page.limit, page.ngram_size, prefill(model, page.ids, cache))
    step = decoder.step
    for _ in range(2):
        step.run()
    assert step.states[:, DONE].tolist() == [1, 0]
    before = [half[:, 0].clone() for half in (step.keys, step.values)] + [step.tokens[0].clone()]
    other = step.tokens[1].clone()
    for _ in range(4):
        step.run()
    after = [step.keys[:, 0], step.values[:, 0], step.tokens[0]]
    for one, two in zip(before, after, strict=True):
        assert torch.equal(one.nan_to_num(), two.nan_to_num())
    assert not torch.equal(other, step.tokens[1])


@torch.inference_mode()
def test_a_broken_off_run_leaves_nothing(model: OcrModel) -> None:
    decoder, page = batch(model, 2, 4), Page(0, (3, 4, 5), 40, 0)
    for _ in range(2):
        slot, cache = decoder.take()
        decoder.begin(slot, page.key, page.ids, page.limit, 0, prefill(model, page.ids, cache))
    decoder.advance()
    decoder.reset()
    assert decoder.free == 2 and not decoder.busy
    assert decoded(decoder, model, [page])[0].tokens == eager(model, page)


@torch.inference_mode()
def test_what_does_not_fit_is_refused(model: OcrModel) -> None:
    step = batch(model, 1, 1).step
    with pytest.raises(ValueError, match="3 \\+ 62 tokens do not fit a slot of 64"):
        step.begin(0, (1, 2, 3), 62, 0)
    with pytest.raises(ValueError, match="nothing to decode"):
        step.begin(0, (), 4, 0)
    with pytest.raises(ValueError, match="group of 0"):
        Slots(step, 0)
    with pytest.raises(ValueError, match="0 slots"):
        BatchStep(step.weights, step.config, 0, 64, torch.float32, 1)


def test_what_a_slot_takes(model: OcrModel) -> None:
    """By hand, of the published sizes: 61,440 bytes of cache a position in bfloat16; of a window fewer."""
    published = replace(model.config.decoder, layers=12, heads=10, hidden_size=1280, vocab_size=129280)
    assert slot_bytes(published, 1000, 1000, torch.bfloat16) == 1000 * (61440 + 12) + 2 * 129280
    assert slot_bytes(published, 1000, 405, torch.bfloat16) == 405 * 61440 + 1000 * 12 + 2 * 129280
