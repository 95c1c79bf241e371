"""A member of the family is one folder and one row: everything else asks the row."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import dsocr_core.engine.stage_timer as stage_timer
from analytic_model.measure import META, Meter, count_parameters
from analytic_model.policy import Policy
from analytic_model.predict import parameters, predict
from analytic_model.workload import Workload
from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.main import main
from dsocr_core.engine.base import EngineOptions
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.engine.generate import Sequence
from dsocr_core.models.blocks.attention import eager_core
from dsocr_core.models.blocks.cache import KvCache
from dsocr_core.models.family import FAMILIES, load_config, stage_colours
from dsocr_core.models.taps.files import Dump
from dsocr_core.settings import Settings
from dsocr_core.trace.names import our_taps, weights_of
from dsocr_core.trace.run import compare_dumps
from dsocr_core.trace.sides import Task, trace_engine
from tests.support.made_up_member import MADE_UP, MIXER, WINDOW, write_config


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, MADE_UP.name, MADE_UP)


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    return write_config(tmp_path)


@pytest.fixture
def page(tmp_path: Path) -> Path:
    pixels = np.random.default_rng(0).integers(0, 256, (100, 300, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "page.png")
    return tmp_path / "page.png"


def engine_of(checkpoint: str, attention: str = "eager") -> EagerEngine:
    found = load_checkpoint(checkpoint, torch.device("cpu"), torch.float32)
    return EagerEngine(found, EngineOptions(attention, ignore_eos=True))


def test_settings_ask_the_row(checkpoint: str, page: Path) -> None:
    request = Settings(checkpoint=checkpoint).request(page)
    assert (request.model, request.preset, request.prompt) == ("made_up", "cut", "<image>Read.")
    assert (request.max_new_tokens, request.no_repeat_ngram_size, request.unpublished) == (24, 0, {})
    with pytest.raises(DsocrError, match="choose one of cut, whole"):
        Settings(checkpoint=checkpoint, preset="gundam").request(page)


def test_pages_are_read_with_its_stages(checkpoint: str, page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges: list[str] = []
    monkeypatch.setattr(stage_timer.nvtx, "push_range", ranges.append)
    request = Settings(checkpoint=checkpoint).request(page)
    result = engine_of(checkpoint).recognize(request)
    # 300 x 100 at 96: three tiles of 2 x 2 tokens and one view of 2 x 2, no row ends, the separator.
    assert result.required_inputs.grid == (3, 1)
    assert result.required_inputs.image_token_count == 3 * 4 + 4 + 1
    assert [timing.stage for timing in result.timings] == [*MADE_UP.stages]
    assert ranges.count("mixer") == 2 and "clip" not in ranges
    assert stage_colours()[MIXER] == "#117733"


def test_two_images_go_into_one_prompt(checkpoint: str, page: Path) -> None:
    settings = Settings(checkpoint=checkpoint, preset="whole")
    engine, one = engine_of(checkpoint), settings.request(page)
    both = engine.recognize(settings.request(page, more=(page,))).required_inputs
    assert both.image_token_count == 2 * engine.recognize(one).required_inputs.image_token_count
    assert both.global_shape == (2, 3, 128, 128)
    with pytest.raises(DsocrError, match="a prompt takes 2"):
        engine.recognize(replace(one, more=(page, page)))
    with pytest.raises(DsocrError, match="not cut"):
        engine.recognize(replace(one, preset="cut", more=(page,)))


def test_a_token_is_forgotten_after_the_window(checkpoint: str) -> None:
    """Against one pass under a mask: a position sees the prompt and the last WINDOW new ones, itself too."""
    engine, count = engine_of(checkpoint), 40
    model, draw = engine.checkpoint.model, np.random.default_rng(3)
    prompt, tokens = (tuple(draw.integers(3, 200, size).tolist()) for size in (11, count))
    places = torch.arange(11 + count)
    hidden = (places > places[:, None]) | ((places >= 11) & (places <= places[:, None] - WINDOW))

    def masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        scores = (q @ k.transpose(2, 3) / q.shape[-1] ** 0.5).masked_fill(hidden, float("-inf"))
        return scores.softmax(-1) @ v

    with torch.inference_mode():
        whole = Sequence.start(model, prompt, count, 0, masked, torch.float32)
        whole.cache = KvCache(replace(model.config.decoder, window=None), 51, torch.float32, model.device)
        embeddings = model.embed(torch.tensor([[*prompt, *tokens]]))
        expected = model.decoder.last_logits(embeddings, whole.cache, whole.rotary, masked, count + 1)[0]
        ring = Sequence.start(model, prompt, count, 0, eager_core, torch.float32)
        assert ring.cache.capacity == 11 + WINDOW
        steps = [ring.forward(model, model.embed(torch.tensor([prompt])))]
        following = ring.following(model)
        steps += [following(token).clone() for token in tokens]
    torch.testing.assert_close(torch.stack(steps), expected, rtol=1e-4, atol=1e-4)


def test_compare_and_trace(
    checkpoint: str, page: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(
        [
            "compare", str(page), "--checkpoint", checkpoint, "--a", "eager", "--b", "eager",
            "--b.attention", "sdpa", "--infer.max-new-tokens", "20", "--device", "cpu", "--json",
            "--history", "",
        ]
    )  # fmt: skip
    found = json.loads(capsys.readouterr().out)
    assert code in (0, 1) and found["pages"], found
    engine, request = engine_of(checkpoint), Settings(checkpoint=checkpoint).request(page)
    tokens = trace_engine(engine, Task(request, 12, tmp_path / "a"))
    trace_engine(engine, Task(request, 12, tmp_path / "b", tokens))
    summary = compare_dumps(Dump(tmp_path / "a"), Dump(tmp_path / "b"))
    names = {row.name for row in summary.tensors}
    assert "mixer.out" in names and "decoder.layer2.keys" in names
    assert not any(row.differs for row in summary.tensors)
    assert weights_of("mixer.out") == ("model.mixer.",)
    assert len(our_taps(engine.checkpoint.config)) > 30


def test_flops_are_those_that_torch_counts(checkpoint: str) -> None:
    config = load_config(Path(checkpoint.removeprefix("random:")))
    meter = Meter(config, META)
    for width, height in ((90, 80), (300, 100), (200, 200)):
        workload = Workload.from_image(width, height, "cut", 7, 30, family=MADE_UP)
        counted = meter.measure(workload)
        prediction = predict(config, workload, Policy())
        assert {s: sum(c.values()) for s, c in counted.items()} == {
            s: c.cost.flops for s, c in prediction.stages.items()
        }
    assert parameters(config) == count_parameters(config)
