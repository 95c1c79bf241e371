"""The decode loop with a draft against the loop without: same tokens, and what it says of the draft."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence as Tokens
from dataclasses import replace

import pytest
import torch

from dsocr_core.base.errors import Cancelled
from dsocr_core.engine.fast import drafted
from dsocr_core.engine.fast.decode import FastDecoder
from dsocr_core.engine.generate import NO_TOKEN, Sequence, decode
from dsocr_core.models.blocks.attention import sdpa_core
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.models.weights import random_model
from dsocr_core.reading.records import NgramPolicy
from tests.support.small_decoder import FEW, FEW_ROWS, small_model

PROMPT = (3, 9, 4, 9, 4, 7, 3, 9)
LIMIT = 22


@pytest.fixture(scope="module")
def model() -> OcrModel:
    return small_model(torch.bfloat16)


def read(
    model: OcrModel, decoder: FastDecoder, draft: Tokens[int] | None = (), limit: int = LIMIT,
    ngram: NgramPolicy | int = 3, prompt: tuple[int, ...] = PROMPT,
) -> tuple[list[int], str, dict[str, str] | None]:  # fmt: skip
    seen: list[int] = []
    sequence = decoder.start(prompt, limit, ngram, sdpa_core)
    sequence.draft, sequence.drafts_itself = tuple(draft or ()), draft is None
    logits = sequence.forward(model, model.embed(torch.tensor([prompt], device=model.device)))
    tokens, reason = decoder.decode(sequence, prompt, logits, limit, seen.append, None)
    assert seen == tokens
    return tokens, reason, sequence.drafted


@pytest.fixture(scope="module")
def true(model: OcrModel) -> list[int]:
    with torch.inference_mode():
        return read(model, FastDecoder(model, NO_TOKEN, torch.float32, FEW, group=4))[0]


@pytest.fixture
def four_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes of four rows only: the interpreter takes its time."""
    monkeypatch.setattr(drafted.PassGraphs.__init__, "__defaults__", ((4,), None))
    monkeypatch.setattr(drafted, "Pace", lambda costs, **given: drafted_pace({1: 1.0, 4: 2.0}, **given))


@pytest.fixture
def decoder(model: OcrModel, four_rows: None) -> FastDecoder:
    return FastDecoder(model, NO_TOKEN, torch.float32, FEW, group=4, drafts=FEW_ROWS)


drafted_pace = drafted.Pace


@torch.inference_mode()
def test_a_right_draft_takes_few_passes(model: OcrModel, decoder: FastDecoder, true: list[int]) -> None:
    tokens, reason, facts = read(model, decoder, true)
    assert (tokens, reason) == (true, "length")
    assert facts is not None and (facts["passes"], facts["accepted"]) == ("6", "15")  # 21 tokens by fours
    assert facts["rows"] == "4:6" and facts["won"] == "1.46"  # 21 steps for 6 passes of 2.4


@torch.inference_mode()
def test_no_draft_is_no_pass(model: OcrModel, decoder: FastDecoder, true: list[int]) -> None:
    assert read(model, decoder, limit=6) == (true[:6], "length", None)


@torch.inference_mode()
@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2))])
def test_any_draft_gives_the_same_tokens(
    model: OcrModel, decoder: FastDecoder, true: list[int], seed: int
) -> None:
    """Wrong, missing and added words at random; stretches of nonsense send it to single steps and back."""
    chance = random.Random(seed)
    draft = [t for t in true for _ in range(chance.choices((0, 1, 2), (1, 12, 1))[0])]
    draft = [t if chance.random() > 0.1 else chance.randrange(-2, 50) for t in draft]
    draft[10:18] = [chance.randrange(40) for _ in range(8)]
    assert read(model, decoder, draft)[:2] == (true, "length")


@torch.inference_mode()
def test_a_decoder_with_a_window_verifies_drafts(model: OcrModel, four_rows: None) -> None:
    """Its cache has room for the window and the rows that may be refused, the other's for the window."""
    config = replace(model.config, decoder=replace(model.config.decoder, window=5))
    windowed = random_model(config, model.device, torch.bfloat16, seed=2)
    plain = FastDecoder(windowed, NO_TOKEN, torch.float32, FEW, group=4)
    true = read(windowed, plain, limit=12)[0]
    draft = [*true[:6], 1, *true[7:]]
    decoder = FastDecoder(windowed, NO_TOKEN, torch.float32, FEW, group=4, drafts=FEW_ROWS)
    tokens, _, facts = read(windowed, decoder, draft, limit=12)
    assert tokens == true and facts is not None and int(facts["accepted"]) > 2


@torch.inference_mode()
def test_a_useless_draft_is_soon_left(model: OcrModel, decoder: FastDecoder, true: list[int]) -> None:
    tokens, _, facts = read(model, decoder, [(t + 1) % 40 for t in true])
    assert tokens == true
    assert facts is not None and int(facts["passes"]) <= 2 * drafted.PASSES_A_GROUP


@torch.inference_mode()
@pytest.mark.parametrize(
    ("ngram", "limit"), [(0, 30), (NgramPolicy(3, 12, (33,)), LIMIT)], ids=["loops", "window"]
)
def test_a_page_may_draft_itself(
    model: OcrModel, decoder: FastDecoder, ngram: NgramPolicy | int, limit: int
) -> None:
    prompt = (33, *PROMPT[1:])  # after which the model says one token for ever
    sequence = Sequence.start(model, prompt, limit, ngram, sdpa_core, torch.float32)
    logits = sequence.forward(model, model.embed(torch.tensor([prompt], device=model.device)))
    true, _ = decode(model, sequence, logits, limit, NO_TOKEN, lambda _: None, None)
    tokens, _, facts = read(model, decoder, None, limit, ngram, prompt)
    assert tokens == true and facts is not None
    if ngram == 0:
        assert int(facts["accepted"]) > 8


@torch.inference_mode()
@pytest.mark.parametrize("limit", [1, 5])
def test_the_limit_cuts_a_pass(model: OcrModel, decoder: FastDecoder, true: list[int], limit: int) -> None:
    assert read(model, decoder, true, limit)[:2] == (true[:limit], "length")


@torch.inference_mode()
def test_the_end_token_cuts_a_pass(model: OcrModel, decoder: FastDecoder, true: list[int]) -> None:
    decoder._eos = true[6]
    assert read(model, decoder, true)[:2] == (true[: true.index(true[6]) + 1], "eos")


@torch.inference_mode()
def test_cancel_is_heard_between_groups(model: OcrModel, decoder: FastDecoder, true: list[int]) -> None:
    cancel = threading.Event()
    sequence = decoder.start(PROMPT, LIMIT, 3, sdpa_core)
    sequence.draft = tuple(true)
    logits = sequence.forward(model, model.embed(torch.tensor([PROMPT], device=model.device)))
    with pytest.raises(Cancelled):
        decoder.decode(sequence, PROMPT, logits, LIMIT, lambda _: cancel.set(), cancel)
