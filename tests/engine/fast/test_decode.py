"""The whole step and the decode loop against the eager engine, in float32 on a small random model."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from unittest.mock import Mock, patch

import pytest
import torch

from dsocr_core.engine.fast import decode, graphs
from dsocr_core.engine.fast.decode import FastDecoder
from dsocr_core.engine.fast.graphs import CapturedPasses
from dsocr_core.engine.fast.step import DecodeStep
from dsocr_core.engine.fast.weights import pack
from dsocr_core.engine.generate import NO_TOKEN, Sequence, finish_reason, generate
from dsocr_core.engine.ngram_rule import NgramRule
from dsocr_core.models.blocks.attention import sdpa_core
from dsocr_core.models.ocr_model import OcrModel
from dsocr_core.reading.records import NgramPolicy
from tests.engine.decoders import FEW, small_model

PROMPT = (3, 9, 4, 9, 4, 7, 3, 9)


@pytest.fixture(scope="module")
def model() -> OcrModel:
    return small_model()


@pytest.fixture(scope="module")
def fast(model: OcrModel) -> FastDecoder:
    return FastDecoder(model, NO_TOKEN, torch.float32, FEW, group=4)


def eager_tokens(
    model: OcrModel, limit: int, ngram_size: NgramPolicy | int, eos: int = NO_TOKEN
) -> tuple[list[int], str]:
    sequence = Sequence.start(model, PROMPT, limit, ngram_size, sdpa_core, torch.float32)
    logits = sequence.forward(model, model.decoder.embed_tokens(torch.tensor([PROMPT], device=model.device)))
    tokens = list(generate(sequence.next_logits(model), logits, sequence.rule, limit, eos))
    return tokens, finish_reason(tokens, eos)


def fast_tokens(
    fast: FastDecoder, model: OcrModel, limit: int, ngram_size: NgramPolicy | int
) -> tuple[list[int], str]:
    sequence = fast.start(PROMPT, limit, ngram_size, sdpa_core)
    logits = sequence.forward(model, model.decoder.embed_tokens(torch.tensor([PROMPT], device=model.device)))
    tokens = list(fast.tokens(sequence, PROMPT, logits, limit))
    return tokens, finish_reason(tokens, fast._eos)


@torch.inference_mode()
@pytest.mark.parametrize("policy", [3, NgramPolicy(2, 9, (33,))], ids=["published", "window and whitelist"])
def test_same_tokens_as_the_eager_engine(
    model: OcrModel, fast: FastDecoder, policy: NgramPolicy | int
) -> None:
    """The rule must have had something to do."""
    expected = eager_tokens(model, 15, policy)
    assert fast_tokens(fast, model, 15, policy) == expected
    assert all(expected[0] != eager_tokens(model, 15, other)[0] for other in (0, 2))


@torch.inference_mode()
def test_a_ring_forgets_what_the_eager_engines_forgets(model: OcrModel) -> None:
    """It turns three times; decoding again from the same prefill keeps the prompt."""
    windowed = small_model(window=3)
    fast = FastDecoder(windowed, NO_TOKEN, torch.float32, FEW, group=4)
    policy = NgramPolicy(2, 9, (), over_prompt=True)
    expected = eager_tokens(windowed, 11, policy)
    assert fast_tokens(fast, windowed, 11, policy) == expected
    assert expected[0] != eager_tokens(model, 11, policy)[0]

    sequence = fast.start(PROMPT, 11, policy, sdpa_core)
    logits = sequence.forward(
        windowed, windowed.decoder.embed_tokens(torch.tensor([PROMPT], device=model.device))
    )
    for again in (NgramPolicy(), policy):
        sequence = replace(sequence, rule=NgramRule(again, PROMPT))
        assert list(fast.tokens(sequence, PROMPT, logits, 8)) == eager_tokens(windowed, 8, again)[0]

    step = DecodeStep(pack(model.decoder), windowed.config.decoder, 64, torch.float32, 1, FEW, cached=11)
    step.begin((*PROMPT, 1), 40, 0)
    with pytest.raises(ValueError, match="do not fit a cache of 11"):
        step.begin((*PROMPT, 1, 1), 40, 0)


@torch.inference_mode()
def test_decoding_ends_at_the_limit_or_the_end_token_at_any_place_of_a_group(
    model: OcrModel, fast: FastDecoder
) -> None:
    for limit in (1, 5, 6):
        assert fast_tokens(fast, model, limit, 3) == (eager_tokens(model, limit, 3)[0], "length")
    without = eager_tokens(model, 9, 3)[0]
    for eos in (without[0], without[5]):
        wanted = without[: without.index(eos) + 1]
        ending = FastDecoder(model, eos, torch.float32, FEW, group=4)
        assert fast_tokens(ending, model, 9, 3) == eager_tokens(model, 9, 3, eos) == (wanted, "eos")


def test_a_capture_gives_unused_memory_back_where_little_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise what runs next asks for all of it anew."""
    graph, emptied = Mock(), Mock()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: graph)
    monkeypatch.setattr(torch.cuda, "empty_cache", emptied)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    for free, times in ((graphs.ROOM_BYTES, 0), (graphs.ROOM_BYTES - 1, 1)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device, free=free: (free, 0))
        with pytest.raises(ValueError, match="of the pass"), patch.object(graph, "capture_end") as ended:
            graphs._captured(Mock(side_effect=ValueError("of the pass")), Mock(), None)
        assert emptied.call_count == times and ended.called


def test_work_on_a_side_stream_is_waited_for_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A capture can end only then; it would say so in place of the error, which is that of memory."""
    here = Mock()
    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: here)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: nullcontext())
    side = graphs.SideStream(torch.device("cpu"))
    side._stream = Mock()
    with pytest.raises(ZeroDivisionError):
        side.overlap(lambda: 1, lambda: 1 / 0)
    here.wait_stream.assert_called_once_with(side._stream)


@torch.inference_mode()
def test_a_long_page_does_other_work_while_the_device_decodes(
    model: OcrModel, fast: FastDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once, before its tokens are read; a page too short to hide it does none."""
    monkeypatch.setattr(decode, "STEPS_BESIDE", 6)
    for limit, times in ((15, 1), (6, 0)):
        done: list[int] = []
        sequence = fast.start(PROMPT, limit, 3, sdpa_core)
        embeddings = model.decoder.embed_tokens(torch.tensor([PROMPT], device=model.device))
        logits = sequence.forward(model, embeddings)
        found = fast.tokens(sequence, PROMPT, logits, limit, lambda: done.append(0))  # noqa: B023
        first = next(found)
        assert len(done) == times
        assert [first, *found] == eager_tokens(model, limit, 3)[0]
        assert len(done) == times


def test_a_shape_is_captured_at_its_second_time_or_before() -> None:
    passes, made = CapturedPasses[str, str](2), []

    def get(shape: str) -> str | None:
        return passes.get(shape, lambda: made.append(shape) or shape.upper())  # type: ignore[func-returns-value]

    assert [get("a"), get("a"), get("a")] == [None, "A", "A"] and not passes.pending
    assert get("b") is None and made == ["a"]
    for capture in passes.pending:
        capture()
    assert made == ["a", "b"] and not passes.pending
    assert [get("b"), get("c"), get("b"), get("a")] == ["B", None, "B", None]
    assert made == ["a", "b"]

    full = Mock(side_effect=torch.cuda.OutOfMemoryError)
    assert passes.get("d", full) is None
    passes.pending[0]()
    assert passes.get("d", full) is None and full.call_count == 2, "read without"
    assert get("d") == "D"


def test_a_cache_that_has_room_for_the_longest_page_is_kept(model: OcrModel) -> None:
    """Without room it grows with a page that needs more."""
    for room, kept in (((1030, 900), True), ((0, 0), False)):
        fast = FastDecoder(model, NO_TOKEN, torch.float32, FEW)
        caches = [fast.start(PROMPT * size, 900, 0, sdpa_core, room).cache for size in (1, 16, 3)]
        assert (caches[0] is caches[1], caches[1] is caches[2]) == (kept, True)
        assert caches[0].capacity == (2048 if kept else 1024)
