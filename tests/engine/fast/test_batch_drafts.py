"""The batch with drafts against the batch without: the same tokens and logits, whatever is drafted."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dsocr_core.engine.fast import batch as batch_decode
from dsocr_core.engine.fast.batch import Decoded, Slots
from dsocr_core.engine.fast.batch_buffers import slot_bytes
from dsocr_core.engine.fast.batch_step import BatchStep
from dsocr_core.engine.fast.drafts import SlotDraft, rows_of
from dsocr_core.engine.fast.launches import BatchLaunches
from dsocr_core.engine.fast.weights import pack
from dsocr_core.engine.generate import NO_TOKEN
from dsocr_core.kernels.batch.drafts import ACCEPTED, DRAFT_SIZE, PASSES, RIGHT, WRONG
from dsocr_core.kernels.launch import PLAIN, TRITON, Kernels, Launch
from dsocr_core.kernels.state import DONE, POSITION
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import random_model
from dsocr_core.reading.records import NgramPolicy
from tests.support.batch_pages import Page, mixed_pages, prefill
from tests.support.small_decoder import DEVICE, VOCABULARY, small_model

CAPACITY = 64
FEW = BatchLaunches(Launch(16, 4), 1, 2, Launch(2048), Launch(1), Launch(64), Launch(64))


@pytest.fixture(scope="module")
def model() -> OcrModel:
    return small_model()


def windowed(model: OcrModel, window: int | None) -> OcrModel:
    """The same weights with another window."""
    decoder = replace(model.config.decoder, window=window)
    return random_model(replace(model.config, decoder=decoder), DEVICE, torch.float32, seed=2)


def new_step(
    model: OcrModel, slots: int, drafted: bool, eos: int = NO_TOKEN, kernels: Kernels = PLAIN,
    own_text: bool = False,
) -> BatchStep:  # fmt: skip
    weights = pack(model.decoder)
    launches = FEW if kernels is not PLAIN else None
    return BatchStep(
        weights, model.config.decoder, slots, CAPACITY, torch.float32, eos, launches, kernels,
        drafted=drafted, own_text=own_text,
    )  # fmt: skip


def decoded(
    decoder: Slots, model: OcrModel, pages: Sequence[Page], drafts: Mapping[int, Sequence[int]]
) -> dict[object, Decoded]:
    """All pages through the slots, each as soon as one is free."""
    waiting, ended = list(pages), {}
    while waiting or decoder.busy:
        while waiting and decoder.free:
            page = waiting.pop(0)
            slot, cache = decoder.take()
            logits, draft = prefill(model, page.ids, cache), drafts.get(page.key, ())
            decoder.begin(slot, page.key, page.ids, page.limit, page.ngram_size, logits, draft)
        ended |= {one.key: one for one in decoder.advance()}
    return ended


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
    model = windowed(model, window)
    chance = random.Random(int(10 * errors))
    pages = [
        *mixed_pages(8, 4), Page(8, (3, 4, 5), CAPACITY - 3, 3), Page(9, (7, 7, 7), CAPACITY - 3, 0),
    ]  # fmt: skip
    plain = decoded(Slots(new_step(model, 3, False)), model, pages, {})
    eos = plain[8].tokens[40]
    plain = decoded(Slots(new_step(model, 3, False, eos)), model, pages, {})
    assert len({len(one.tokens) for one in plain.values()}) > 4
    drafts = {page.key: spoilt(plain[page.key].tokens, errors, chance) for page in pages if page.key != 3}
    monkeypatch.setattr(batch_decode, "PASSES_A_GROUP", 2)
    decoder = Slots(new_step(model, 3, True, eos))
    for _ in range(2):  # and once more in the same slots, in another order
        found = decoded(decoder, model, chance.sample(pages, len(pages)), drafts)
        assert {key: one.tokens for key, one in found.items()} == {k: one.tokens for k, one in plain.items()}
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
def test_pages_that_repeat_themselves_draft_what_they_said(
    model: OcrModel, slots: int, window: int | None, kernels: Kernels
) -> None:
    model = windowed(model, window)
    repeats = Page(8, (24, 9, 4), 24 if kernels is PLAIN else 14, 0)  # one token again and again
    pages = [*mixed_pages(8, 4), repeats] if kernels is PLAIN else [repeats]
    plain = decoded(Slots(new_step(model, slots, False, kernels=kernels)), model, pages, {})
    decoder = Slots(new_step(model, slots, True, kernels=kernels, own_text=True), group=2)
    for _ in range(2):  # and once more in slots that have another page's tokens
        found = decoded(decoder, model, pages, {})
        assert {key: one.tokens for key, one in found.items()} == {k: one.tokens for k, one in plain.items()}
    facts = found[8].draft
    assert facts is not None and int(facts["accepted"]) > 1


Rolled = tuple[list[list[int]], list[Tensor]]
"""New tokens of each page, and every token's logits."""


def rolled(
    model: OcrModel, kernels: Kernels, draft: Callable[[list[int]], list[int]], steps: Sequence[int],
    slots: int = 2,
) -> tuple[Rolled, Rolled, list[list[int]]]:  # fmt: skip
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

    plain = read(new_step(model, slots, False, kernels=kernels), [1] * 16, [[], []])
    step = new_step(model, slots, True, kernels=kernels)
    drafted = read(step, steps, [draft(tokens) for tokens in plain[0]])
    assert step.drafts is not None
    return plain, drafted, step.drafts[1].tolist()


def slips(true: list[int]) -> list[int]:
    """A wrong token, one too many, two too few."""
    return [*true[:3], true[3] + 1, *true[4:7], 1, *true[7:10], *true[12:]]


@torch.inference_mode()
@pytest.mark.parametrize(
    ("slots", "window"), [(1, None), (2, None), (2, 3)], ids=["one slot", "two slots", "ring"]
)
def test_the_kernels_logits_are_those_of_single_steps_bit_for_bit(
    model: OcrModel, slots: int, window: int | None
) -> None:
    steps = [4, 8, 1, 4, 1, 1, *[4] * 10]
    plain, drafted, states = rolled(windowed(model, window), TRITON, slips, steps, slots)
    assert drafted[0] == plain[0]
    for one, two in zip(plain[1], drafted[1], strict=True):
        assert torch.equal(one, two)
    for state in states:
        assert state[ACCEPTED] >= 3 and state[PASSES] >= 3 and state[WRONG] >= 2 and state[RIGHT] >= 6


def test_passes_are_made_while_drafts_together_are_worth_them() -> None:
    """By hand: at 90% right a pass of 4 has 3.44 tokens, of 8 5.70, of no draft 1; at 1.4 and 1.85 steps."""
    right, none, wrong = SlotDraft(True), SlotDraft(False), SlotDraft(True)
    assert right.expected(4) == right.expected(8) == pytest.approx(3.439)  # before its first pass
    state = [0] * DRAFT_SIZE
    state[RIGHT], state[WRONG], state[PASSES] = 27, 3, 10
    assert right.take(state, 4) == 10
    assert [right.expected(rows) for rows in (4, 8)] == pytest.approx([3.439, 5.695], abs=1e-3)
    assert none.expected(8) == 1.0
    state = [0] * DRAFT_SIZE
    state[PASSES] = state[WRONG] = 8
    assert wrong.take(state, 4) == 8 and wrong.expected(4) < 1.2
    assert rows_of([right, none]) == 8 and rows_of([SlotDraft(True), none]) == 4
    assert rows_of([wrong] * 20 + [right]) == rows_of([none]) == 1
    assert wrong.facts() == {"passes": "8", "drafted": "0", "accepted": "0", "rows": "4:8"}
    assert none.facts() is None


def test_what_a_drafted_slot_takes(model: OcrModel) -> None:
    """By hand: 16 rows of match lengths and 8 of logits."""
    config = replace(model.config.decoder, layers=12, heads=10, hidden_size=1280, vocab_size=129280)
    assert slot_bytes(config, 1000, 1000, torch.bfloat16, True) == 1000 * (61440 + 68) + 16 * 129280
