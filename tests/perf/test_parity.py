"""The acceptance tool of the fast engine, on a CPU: equal in float32, and a wrong way does not pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

import tests.perf.parity as parity
from dsocr_core.engine.base import EngineOptions
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.engine.stage_timer import Marks, StageTimer
from dsocr_core.settings import Settings
from tests.support.both_backends import noise_page
from tests.support.seeded_weights import tiny_config, with_changes, write_seeded_checkpoint
from tests.support.teacher_forcing import oracle_of, teacher_forced_eager, teacher_forced_oracle
from tests.support.tiny_members import WINDOW, tiny_unlimited, written


def test_equal_in_float32_and_a_wrong_way_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = with_changes(tiny_config(), num_hidden_layers=2)
    checkpoint = write_seeded_checkpoint(config, tmp_path / "tiny", torch.float32)
    words = [str(noise_page(tmp_path, 300, 200)), "--checkpoint", str(checkpoint), "--preset", "tiny"]
    words += ["--device", "cpu", "--tokens", "9", "--batch", "2"]
    assert parity.main(words) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    (batch,) = found["agreements"]
    assert (batch["positions"], batch["misses"]) == (9, 0) and batch["error"] < 1e-5
    assert {row["equal"] for row in found["distances"]} == {1} and set(found["repeats"].values()) == {1}

    right = parity.teacher_forced_batch

    def shifted(*arguments: object) -> object:
        way = right(*arguments)  # type: ignore[arg-type]
        return type(way)(way.logits.roll(1, dims=1), way.chosen)

    monkeypatch.setattr(parity, "teacher_forced_batch", shifted)
    assert parity.main(words) == 1


def test_the_oracle_in_one_pass_is_the_model_token_by_token(tmp_path: Path) -> None:
    """With a window that turns three times."""
    source = written(tiny_unlimited(), tmp_path)
    engine = EagerEngine(load_checkpoint(source, torch.device("cpu"), torch.float32), EngineOptions("sdpa"))
    with engine.modes():
        request = Settings(checkpoint=source, preset="base").request(noise_page(tmp_path, 300, 200))
        inputs, pixels = engine.take_in(request, None, StageTimer(torch.device("cpu"), marks=Marks.NONE))
    tokens = torch.randint(3, 259, (3 * WINDOW,), generator=torch.Generator().manual_seed(0)).tolist()
    exact = teacher_forced_oracle(oracle_of(engine), engine, inputs, pixels, tokens)
    one_by_one = teacher_forced_eager(engine, inputs, pixels, tokens).logits
    torch.testing.assert_close(exact, one_by_one, rtol=1e-5, atol=1e-5)
