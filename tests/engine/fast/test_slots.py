"""Slots against the eager engine, page by page in float32: whatever else is in them, whenever a page comes.

Most run on the plain form of the kernels, which is as exact and a hundred times as fast as the interpreter.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import dsocr_core.engine.fast.batch as batch
from dsocr_core.engine.fast.batch import Slots
from dsocr_core.engine.fast.batch_step import BatchLaunches, BatchStep, SlotCaches
from dsocr_core.engine.fast.weights import pack
from dsocr_core.engine.generate import NO_TOKEN, generate
from dsocr_core.engine.generate import Sequence as Decoding
from dsocr_core.kernels.batch.drafts import ACCEPTED, PASSES, RIGHT, WRONG
from dsocr_core.kernels.batch.scales import FP8
from dsocr_core.kernels.launch import PLAIN, TRITON, Kernels, Launch
from dsocr_core.kernels.state import DONE, POSITION
from dsocr_core.models.blocks.attention import sdpa_core
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.reading.records import NgramPolicy
from tests.engine.decoders import DEVICE, VOCABULARY, small_model
from tests.engine.fast.batch_pages import Page, decoded, mixed_pages, prefill

CAPACITY = 64
FEW = BatchLaunches(Launch(16, 4), 1, 2, Launch(2048), Launch(1), Launch(64), Launch(64))


@pytest.fixture(scope="module")
def model() -> OcrModel:
    return small_model()


def windowed(model: OcrModel, window: int | None) -> OcrModel:
    """The same weights with another window."""
    return model if window is None else small_model(window=window)


def step_of(
    model: OcrModel, slots: int, eos: int = NO_TOKEN, kernels: Kernels = PLAIN, **more: Any
) -> BatchStep:
    launches = FEW if kernels is TRITON else None
    config, weights = model.config.decoder, pack(model.decoder)
    return BatchStep(weights, config, slots, CAPACITY, torch.float32, eos, launches, kernels, **more)


def tokens_of(slots: Slots, model: OcrModel, pages: Sequence[Page], **more: Any) -> dict[object, Any]:
    return {key: one.tokens for key, one in decoded(slots, model, pages, **more).items()}


def eager(model: OcrModel, page: Page, eos: int = NO_TOKEN) -> tuple[int, ...]:
    sequence = Decoding.start(model, page.ids, page.limit, page.ngram_size, sdpa_core, torch.float32)
    logits = sequence.forward(
        model, model.decoder.embed_tokens(torch.tensor([page.ids], device=model.device))
    )
    return tuple(generate(sequence.next_logits(model), logits, sequence.rule, page.limit, eos))


@torch.inference_mode()
@pytest.mark.parametrize(("seed", "window"), [(0, None), (1, None), (0, 3)])
def test_a_pages_tokens_do_not_depend_on_the_batch(model: OcrModel, seed: int, window: int | None) -> None:
    """Each forgets by its own prompt where there is a ring."""
    own, pages, draw = windowed(model, window), mixed_pages(14, seed), random.Random(seed)
    wanted = {page.key: eager(own, page) for page in pages}
    assert window is None or any(eager(model, page) != wanted[page.key] for page in pages)
    # An end token that comes: in the middle of some page, at the first token of another.
    eos = wanted[next(key for key, tokens in wanted.items() if len(tokens) >= 9)][4]
    ending = {page.key: eager(own, page, eos) for page in pages}
    assert any(len(ending[key]) < len(tokens) for key, tokens in wanted.items())
    for slots, group in ((1, 4), (3, 1), (14, 7)):
        decoder = Slots(step_of(own, slots, eos), group)
        for _ in range(2):  # and once more in the same slots, in another order
            found = decoded(decoder, own, draw.sample(pages, len(pages)))
            assert {key: one.tokens for key, one in found.items()} == ending
            assert decoder.free == slots and not decoder.busy
            assert all(one.milliseconds is not None and one.milliseconds >= 0 for one in found.values())


@torch.inference_mode()
def test_a_cache_of_a_prompt_and_its_ring_is_enough(model: OcrModel) -> None:
    """64 positions, and of each layer 64 slots were more than 3 + 3: as many as alignment makes of them."""
    own = windowed(model, 3)
    small = BatchStep(
        pack(own.decoder), own.config.decoder, 2, 200, torch.float32, NO_TOKEN, kernels=PLAIN, cached=22
    )
    assert (small.positions, small.cached, small.keys.shape[3]) == (256, 64, 64)
    page, decoder = Page(0, (3, 9, 4), 190, 3), Slots(small, 8)
    assert tokens_of(decoder, own, [page])[0] == eager(own, page)
    held = [group.positions for group in decoder.times]
    assert max(held) == 3 + 3 and small.fits(61, 190) and not small.fits(62, 190)


@torch.inference_mode()
@pytest.mark.parametrize("window", [None, 3])
def test_the_kernels_decode_what_the_eager_engine_does(model: OcrModel, window: int | None) -> None:
    own = windowed(model, window)
    pages = [
        Page(0, (3, 9, 4, 9, 4, 7, 3, 9), 7, 3), Page(1, (5, 6), 6, NgramPolicy(1, 5, (), True)),
        Page(2, (3, 3, 3, 3, 3), 4, 1), Page(3, (8, 9, 2, 11), 1, 3),
    ]  # fmt: skip
    found = tokens_of(Slots(step_of(own, 2, kernels=TRITON), 4), own, pages)
    assert found == {page.key: eager(own, page) for page in pages}


# --- drafts ---------------------------------------------------------------------------------------


def spoilt(true: Sequence[int], errors: float, chance: random.Random) -> list[int]:
    """Tokens changed, lost and added; ids of none among them."""
    words = [t for t in true for _ in range(chance.choices((0, 1, 2), (errors, 4, errors))[0])]
    return [t if chance.random() > errors else chance.randrange(-2, 50) for t in words]


@torch.inference_mode()
@pytest.mark.parametrize(("errors", "window"), [(0.0, None), (0.1, None), (1.0, None), (0.1, 3)])
def test_any_draft_gives_the_tokens_of_the_batch_without(
    model: OcrModel, errors: float, window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages that end and start, an end token that comes, limits at the slot's end, pages without a draft."""
    model, chance = windowed(model, window), random.Random(int(10 * errors))
    pages = [
        *mixed_pages(8, 4), Page(8, (3, 4, 5), CAPACITY - 3, 3), Page(9, (7, 7, 7), CAPACITY - 3, 0),
    ]  # fmt: skip
    eos = tokens_of(Slots(step_of(model, 3)), model, pages)[8][40]
    plain = tokens_of(Slots(step_of(model, 3, eos)), model, pages)
    assert len({len(tokens) for tokens in plain.values()}) > 4
    drafts = {page.key: spoilt(plain[page.key], errors, chance) for page in pages if page.key != 3}
    monkeypatch.setattr(batch, "PASSES_A_GROUP", 2)
    decoder = Slots(step_of(model, 3, eos, drafted=True))
    for _ in range(2):  # and once more in the same slots, in another order
        found = decoded(decoder, model, chance.sample(pages, len(pages)), drafts)
        assert {key: one.tokens for key, one in found.items()} == plain
        assert decoder.free == 3 and not decoder.busy
    facts = found[8].draft
    assert found[3].draft is None and facts is not None
    if not errors:
        made = [int(part.partition(":")[2]) for part in facts["rows"].split()]
        assert int(facts["accepted"]) > 2 * int(facts["passes"]) and sum(made) == int(facts["passes"])
    if errors == 1:
        assert int(facts["passes"]) < 12


@torch.inference_mode()
@pytest.mark.parametrize(
    ("slots", "window", "kernels"), [(3, None, PLAIN), (3, 3, PLAIN), (1, None, TRITON)],
    ids=["", "ring", "kernels, one slot"],
)  # fmt: skip
def test_pages_that_repeat_themselves_draft_from_their_own_text(
    model: OcrModel, slots: int, window: int | None, kernels: Kernels
) -> None:
    model = windowed(model, window)
    repeats = Page(8, (24, 9, 4), 24 if kernels is PLAIN else 14, 0)  # one token again and again
    pages = [*mixed_pages(8, 4), repeats] if kernels is PLAIN else [repeats]
    plain = tokens_of(Slots(step_of(model, slots, kernels=kernels)), model, pages)
    decoder = Slots(step_of(model, slots, kernels=kernels, drafted=True, own_text=True), group=2)
    for _ in range(2):  # and once more in slots that have another page's tokens
        found = decoded(decoder, model, pages)
        assert {key: one.tokens for key, one in found.items()} == plain
    facts = found[8].draft
    assert facts is not None and int(facts["accepted"]) > 1


Rolled = tuple[list[list[int]], list[Tensor]]
"""New tokens of each page, and every token's logits."""


def rolled(
    model: OcrModel, draft: Callable[[list[int]], list[int]], steps: Sequence[int], slots: int
) -> tuple[Rolled, Rolled, list[list[int]]]:
    """A page a slot decoded by single steps and by steps of those rows, and their drafts' states then."""
    pages = [Page(0, (3, 9, 4, 9, 4, 7, 3, 9), 14, 2), Page(1, (5, 6), 17, NgramPolicy(2, 6, (4, 9)))][:slots]

    def read(step: BatchStep, rows: Sequence[int], drafts: Sequence[list[int]]) -> Rolled:
        kept = [torch.full((CAPACITY, VOCABULARY), 7.0, device=DEVICE) for _ in pages]
        for slot, page in enumerate(pages):
            logits = prefill(model, page.ids, step.cache_of(slot))
            step.begin(slot, page.ids, page.limit, page.ngram_size, drafts[slot])
            step.first(slot, logits)
        for each in rows:
            before = step.states.tolist()
            step.run(each)
            after = step.states.tolist()
            for slot, page in enumerate(pages):
                first = before[slot][POSITION] - len(page.ids) + 1
                taken = sum(after[slot][at] - before[slot][at] for at in (POSITION, DONE))
                for r in range(min(taken, each)):
                    kept[slot][first + r] = step.rows[each].logits[r * step.slots + slot]
        assert step.states[:, DONE].all()
        tokens = [step.tokens[s, len(p.ids) :][: p.limit].tolist() for s, p in enumerate(pages)]
        return tokens, kept

    plain = read(step_of(model, slots, kernels=TRITON), [1] * 16, [[], []])
    step = step_of(model, slots, kernels=TRITON, drafted=True)
    drafted = read(step, steps, [draft(tokens) for tokens in plain[0]])
    assert step.drafts is not None
    return plain, drafted, step.drafts[1].tolist()


def slips(true: list[int]) -> list[int]:
    """A wrong token, one too many, two too few."""
    return [*true[:3], true[3] + 1, *true[4:7], 1, *true[7:10], *true[12:]]


@torch.inference_mode()
@pytest.mark.parametrize("window", [None, 3], ids=["", "ring"])
def test_the_kernels_logits_are_those_of_single_steps_bit_for_bit(
    model: OcrModel, window: int | None
) -> None:
    steps = [4, 8, 1, 4, 1, 1, *[4] * 7]
    plain, drafted, states = rolled(windowed(model, window), slips, steps, 2)
    assert drafted[0] == plain[0]
    for one, two in zip(plain[1], drafted[1], strict=True):
        assert torch.equal(one, two)
    for state in states:
        assert state[ACCEPTED] >= 3 and state[PASSES] >= 3 and state[WRONG] >= 2 and state[RIGHT] >= 6


# --- a cache of 8 bits ----------------------------------------------------------------------------


def test_a_prompt_is_rounded_into_its_slot_by_its_own_scales() -> None:
    """By hand: a head whose largest value is 28 has the scale 28 x 2 / 448 = 1/8; 17 / 8 is held as 17/8."""
    caches = SlotCaches((1, 3, 1, 4, 2), torch.float32, torch.device("cpu"), "fp8-kv")
    cache = caches.of_slot(1)
    values = torch.tensor([[28.0, 2.125], [-1.0, 0.0]])
    cache.write(0, values[None, None] / 2, values[None, None])
    for half in (caches.keys, caches.values):
        half.zero_()
    cache.advance(2)
    for half, scales, scale in zip((caches.keys, caches.values), caches.scales, (1 / 16, 1 / 8), strict=True):
        assert half.dtype == FP8
        assert scales is not None and scales[0, :, 0].tolist() == [1.0, scale, 1.0]
        # Over the scale: 224, 17 and -8; between 16 and 18 the even one.
        assert half[0, 1, 0, :2].float().tolist() == [[224.0, 16.0], [-8.0, 0.0]]
        assert not half[0, ::2].float().any()


@torch.inference_mode()
def test_over_8_bits_a_pages_tokens_do_not_depend_on_its_neighbours(model: OcrModel) -> None:
    pages = mixed_pages(5, 40)
    one, four = (
        tokens_of(Slots(step_of(model, slots, precision="fp8-kv"), 4), model, pages) for slots in (1, 4)
    )
    assert one == four and len(one) == 5
