"""The acceptance tool of the fast engine, on a CPU: equal in float32, and a wrong way does not pass."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")

import tests.perf.parity as parity
from tests.support.seeded_weights import tiny_config, with_changes, write_seeded_checkpoint
from tests.vendor.both_backends import noise_page


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
