"""A pass over drafted rows against one-row steps, bit for bit: tokens, logits, cache, whatever is drafted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from dsocr_core.engine.fast.draft_pass import MOST_DRAFTED, DraftPass, PageDraft
from dsocr_core.engine.fast.packed import PackedDecoder
from dsocr_core.engine.fast.step import DecodeStep
from dsocr_core.engine.generate import NO_TOKEN
from dsocr_core.kernels.launch import Launch
from dsocr_core.kernels.state import DONE, POSITION
from dsocr_core.kernels.verify.draft import ACCEPTED, DRAFTED, PASSES
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.reading.records import NgramPolicy
from tests.support.small_decoder import FEW, FEW_ROWS, small_model

PROMPT = (3, 9, 4, 9, 4, 7, 3, 9, 5)
"""The prompt and the first new token."""

SPLIT = replace(FEW, split_attention=Launch(8), splits=2, tiles=1)
CAPACITY = 64
Decoded = tuple[list[int], Tensor, Tensor, Tensor]


@pytest.fixture(scope="module")
def model() -> OcrModel:
    return small_model(torch.bfloat16)


class Page:
    """A step and passes over one cache, both from the same start; of one row it has the step alone."""

    def __init__(
        self, model: OcrModel, rows: int, eos: int = NO_TOKEN, window: int | None = None,
        capacity: int = CAPACITY,
    ) -> None:  # fmt: skip
        weights, config = PackedDecoder.of(model.decoder), replace(model.config.decoder, window=window)
        self.step = DecodeStep(weights, config, capacity, torch.float32, eos, SPLIT, ahead=rows - 1)
        self.draft = PageDraft(self.step)
        if rows > 1:
            self.passes = DraftPass(self.step, self.draft, rows, FEW_ROWS)
        self._window, self._places = window or capacity, (window or capacity) + self.step.spare

    def begin(self, draft: Sequence[int], limit: int, ngram: NgramPolicy | int) -> None:
        generator = torch.Generator(self.step.device).manual_seed(1)
        self.step.cache.keys.normal_(generator=generator)
        self.step.cache.values.normal_(generator=generator)
        self.step.begin(PROMPT, limit, ngram)
        self.draft.begin(draft, len(PROMPT) - 1)

    def decoded(self, run: Callable[[], None]) -> Decoded:
        """New tokens, their logits but the first's, and keys and values of the positions entered, in time."""
        for _ in range(CAPACITY):
            if self.step.state[DONE]:
                break
            run()
        first, entered = len(PROMPT) - 1, int(self.step.state[POSITION]) + 1
        tokens = self.step.tokens[first : entered + 1].tolist()
        cache = self.step.cache
        seen = [*range(first), *range(max(first, entered - self._window), entered)]
        places = [p if p < first else first + (p - first) % self._places for p in seen]
        held = [t[:, :, :, places].clone() for t in (cache.keys, cache.values)]
        return tokens, self.step.logits[first + 1 : entered + 1].clone(), *held


def assert_same(drafted: Decoded, plain: Decoded) -> None:
    assert drafted[0] == plain[0]
    for mine, theirs in zip(drafted[1:], plain[1:], strict=True):
        assert torch.equal(mine, theirs)


def changed(tokens: Sequence[int], *places: int) -> list[int]:
    return [(token + 1) % 40 if number in places else token for number, token in enumerate(tokens)]


DRAFTS: dict[str, Callable[[list[int]], list[int]]] = {
    "right": list,
    "wrong characters": lambda true: changed(true, 3, 4, 11),
    "a word too many and one too few": lambda true: [*true[:5], 1, 2, *true[5:12], *true[15:]],
    "each wrong in turn": lambda true: changed(true, *(n * (n + 3) // 2 for n in range(9))),
    "begins late": lambda true: true[6:],
    "ends early": lambda true: true[:7],
    "nothing": lambda true: [],
    "one token for ever": lambda true: [true[1]] * 200,
    "ids that are no token": lambda true: [-5, 2**40, 40, *true[3:]],
    "right, longer than is held": lambda true: [*true, *[7] * MOST_DRAFTED],
}


@torch.inference_mode()
@pytest.mark.parametrize(
    "policy", [pytest.param(3, marks=pytest.mark.slow), NgramPolicy(3, 12, (33,))], ids=["size 3", "window"]
)
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind == "a word too many and one too few" else [pytest.mark.slow])
        for kind in DRAFTS
    ],
)
@pytest.mark.parametrize("rows", [4, pytest.param(8, marks=pytest.mark.slow)])
def test_tokens_logits_and_cache_are_those_of_single_steps(
    model: OcrModel, rows: int, kind: str, policy: NgramPolicy | int
) -> None:
    page = Page(model, rows)
    page.begin((), 24, policy)
    plain = page.decoded(page.step.run)
    page.begin(DRAFTS[kind](plain[0]), 24, policy)
    assert_same(page.decoded(page.passes.run), plain)
    stats = page.draft.state.tolist()
    # Every pass appends one token beside those accepted; the first is the prefill's.
    assert stats[PASSES] + stats[ACCEPTED] == 23
    if kind == "right":
        assert stats[ACCEPTED] > 23 * (rows - 2) // rows and stats[DRAFTED] >= stats[ACCEPTED]
    if kind == "a word too many and one too few":
        assert stats[ACCEPTED] > 8  # the place was found again


@torch.inference_mode()
@pytest.mark.parametrize(
    ("window", "rows", "kind"),
    [
        (4, 4, "wrong characters"),
        pytest.param(15, 8, "a word too many and one too few", marks=pytest.mark.slow),
        *(
            pytest.param(window, rows, kind, marks=pytest.mark.slow)
            for window in (4, 5, 16)
            for rows in (2, 4, 8, 16)
            for kind in DRAFTS
        ),
    ],
)
def test_a_ring_holds_after_a_refused_draft_what_single_steps_leave(
    model: OcrModel, window: int, rows: int, kind: str
) -> None:
    """The single steps are those of a ring that has nothing to spare."""
    policy, limit = NgramPolicy(3, 12, (33,)), 24
    page = Page(model, 1, window=window)
    page.begin((), limit, policy)
    plain = page.decoded(page.step.run)
    page = Page(model, rows, window=window)
    page.begin(DRAFTS[kind](plain[0]), limit, policy)
    turns = iter([page.passes.run] * 3 + [page.step.run] + [page.passes.run] * CAPACITY)
    assert_same(page.decoded(lambda: next(turns)()), plain)


def test_a_ring_without_room_for_refused_rows_has_no_passes(model: OcrModel) -> None:
    page = Page(model, 4, window=4)
    with pytest.raises(ValueError, match="a pass of 8 rows overwrites what a ring with 3 to spare holds"):
        DraftPass(page.step, page.draft, 8, FEW_ROWS)


@torch.inference_mode()
def test_passes_and_steps_may_take_turns(model: OcrModel) -> None:
    page = Page(model, 4)
    page.begin((), 14, 2)
    plain = page.decoded(page.step.run)
    page.begin(changed(plain[0], 4, 9), 14, 2)
    turns = iter([page.step.run, page.passes.run, page.passes.run, page.step.run, page.step.run] * 20)
    assert_same(page.decoded(lambda: next(turns)()), plain)


@torch.inference_mode()
@pytest.mark.parametrize("place", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 4, 5, 6))])
def test_the_end_token_and_the_limit_cut_inside_a_pass(model: OcrModel, place: int) -> None:
    page = Page(model, 4)
    page.begin((), place + 4, 3)
    true = page.decoded(page.step.run)[0]
    for eos, limit in ((true[place], place + 4), (NO_TOKEN, place + 1)):
        page = Page(model, 4, eos)
        page.begin((), limit, 3)
        plain = page.decoded(page.step.run)
        page.begin(true, limit, 3)
        drafted = page.decoded(page.passes.run)
        assert_same(drafted, plain)
        held = [t.clone() for t in (page.step.tokens, page.step.state, page.draft.state)]
        page.passes.run()  # a finished sequence stays as it is
        for before, after in zip(held, (page.step.tokens, page.step.state, page.draft.state), strict=True):
            assert torch.equal(before, after)


@torch.inference_mode()
def test_groups_of_rows_have_programs_of_their_own(model: OcrModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr_core.kernels.launch.MOST_AT_ONCE", 2)
    page = Page(model, 4)
    page.begin((), 12, 3)
    plain = page.decoded(page.step.run)
    page.begin(changed(plain[0], 2, 7), 12, 3)
    assert_same(page.decoded(page.passes.run), plain)
    monkeypatch.setattr("dsocr_core.kernels.launch.MOST_AT_ONCE", 3)
    with pytest.raises(ValueError, match="4 rows are not groups of 3"):
        page.passes.run()


@torch.inference_mode()
def test_the_limit_at_the_caches_end(model: OcrModel) -> None:
    """The last pass has rows past the limit: their places are the cache's last."""
    page = Page(model, 8, capacity=32)
    limit = 32 - len(PROMPT) - 8
    page.begin((), limit, 3)
    plain = page.decoded(page.step.run)
    page.begin(plain[0], limit, 3)
    assert_same(page.decoded(page.passes.run), plain)


def test_a_number_of_rows_that_no_graph_has_is_refused(model: OcrModel) -> None:
    page = Page(model, 2)
    for rows in (0, 1, 3, 64):
        with pytest.raises(ValueError, match=f"a pass of {rows} rows"):
            DraftPass(page.step, page.draft, rows)
