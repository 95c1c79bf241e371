"""The engine's own choices: pages prepared ahead, marks without clocks, decoding past the end token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageDraw
from transformers.generation.logits_process import NoRepeatNGramLogitsProcessor

from dsocr_core.engine.base import EagerEngine, EngineOptions
from dsocr_core.engine.checkpoint import Checkpoint, load_checkpoint
from dsocr_core.engine.generate import Sequence
from dsocr_core.models.stages import Stage
from dsocr_core.reading.records import OcrRequest
from tests.support.seeded_weights import tiny_config, write_seeded_checkpoint


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    folder = tmp_path_factory.mktemp("backend") / "tiny_backend"
    directory = write_seeded_checkpoint(tiny_config(), folder, torch.float32)
    return load_checkpoint(str(directory), torch.device("cpu"), torch.float32)


@pytest.fixture
def request_(tmp_path: Path) -> OcrRequest:
    picture = Image.new("RGB", (900, 700), "white")
    ImageDraw.Draw(picture).text((20, 20), "Hello page", fill="black")
    picture.save(tmp_path / "page.png")
    return OcrRequest(tmp_path / "page.png", "gundam", max_new_tokens=3)


def test_a_page_prepared_ahead_reads_the_same(checkpoint: Checkpoint, request_: OcrRequest) -> None:
    engine = EagerEngine(checkpoint)
    here = engine.recognize(request_)
    ahead = engine.prepare(request_)
    request_.image.unlink()  # it is not looked at again
    there = engine.recognize(request_, prepared=replace(ahead, milliseconds=5000.0))
    assert there.inputs == here.inputs
    assert len(here.inputs.tiles_shape) == 4 and here.inputs.tiles_shape[0] > 1
    assert (there.token_ids, there.image_size) == (here.token_ids, here.image_size)
    assert ahead.milliseconds is not None and ahead.milliseconds > 0
    assert (there.milliseconds(Stage.PREPROCESS) or 0) > 5000
    assert here.environment | {"overlapped": "preprocess"} == there.environment


def test_decoding_goes_on_past_the_end_token_when_told(checkpoint: Checkpoint, request_: OcrRequest) -> None:
    request = replace(request_, preset="tiny", max_new_tokens=8, no_repeat_ngram_size=0)
    first = EagerEngine(checkpoint).recognize(request).token_ids
    tokenizer = checkpoint.tokenizer
    before, tokenizer.eos_token_id = tokenizer.eos_token_id, first[2]
    try:
        stopped = EagerEngine(checkpoint).recognize(request)
        forced = EagerEngine(checkpoint, EngineOptions(ignore_eos=True)).recognize(request)
    finally:
        tokenizer.eos_token_id = before
    assert (stopped.token_ids, stopped.finish_reason) == (first[: first.index(first[2]) + 1], "eos")
    assert (forced.token_ids, forced.finish_reason) == (first, "length")


def test_the_two_best_of_every_step_are_those_after_the_ngram_rule(
    checkpoint: Checkpoint, request_: OcrRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against transformers' own rule and a sort of the logits that the model gave."""
    seen: list[torch.Tensor] = []
    forward, following = Sequence.forward, Sequence.next_logits

    def heard(step: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        return lambda *args: seen.append(step(*args).clone()) or seen[-1]  # type: ignore[func-returns-value]

    monkeypatch.setattr(Sequence, "forward", heard(forward))
    monkeypatch.setattr(Sequence, "next_logits", lambda *args: heard(following(*args)))
    request = replace(request_, preset="tiny", max_new_tokens=12, no_repeat_ngram_size=2)
    engine = EagerEngine(checkpoint, EngineOptions(ignore_eos=True))
    result = engine.recognize(request)
    ids, rule, banned = list(result.inputs.prompt_ids), NoRepeatNGramLogitsProcessor(2), 0
    for token, top, logits in zip(result.token_ids, result.top_two, seen, strict=True):
        allowed = rule(torch.tensor([ids]), logits[None].clone())[0]
        best = allowed.topk(2)
        assert top.ids == tuple(best.indices.tolist()) and top.ids[0] == token
        assert top.logits == tuple(best.values.tolist())
        banned += int(logits.argmax()) != token
        ids.append(token)
    assert banned, "the rule never forbade the best token: the test proves too little"

    quiet = EagerEngine(checkpoint, EngineOptions(ignore_eos=True, top_two=False)).recognize(request)
    assert (quiet.token_ids, quiet.top_two) == (result.token_ids, ())
