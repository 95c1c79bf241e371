"""The command that says how far rounding moves logits, on hand-made logits and a tiny model."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from PIL import Image

import dsocr_core.measure.ties as command
from dsocr_core.base.console import OK
from dsocr_core.cli.main import main
from tests.support.seeded_weights import tiny_config, write_seeded_checkpoint


def test_moves_are_counted_in_ulp_at_the_best_logits_magnitude() -> None:
    # At 4 to 8 an ULP of bfloat16 is 1/32, at 16 to 32 it is 1/8.
    one = torch.tensor([[7.5, 7.25, 0.0], [24.0, 0.0, 20.0]])
    other = torch.tensor([[7.46875, 7.3125, 9.0], [24.0, 0.0, 20.5]])
    found = command.moves(one, other, "bfloat16")
    assert found.logits.tolist() == [1.0, 2.0, 0.0, 4.0]
    assert found.margins.tolist() == [3.0, 4.0]
    assert found.flips == 1


@pytest.mark.slow
def test_the_command_prints_moves_and_the_cost_of_the_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = write_seeded_checkpoint(tiny_config(), tmp_path / "tiny_ties", torch.float32)
    Image.new("RGB", (80, 60), "white").save(tmp_path / "page.png")
    page, checkpoint = str(tmp_path / "page.png"), str(directory)
    few = ["--tokens", "4", "--repeat", "1", "--device", "cpu", "--dtype", "float32"]
    assert main(["measure", "ties", page, "--checkpoint", checkpoint, *few]) == OK
    first, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("float32, 4 steps, ")
    assert re.fullmatch(
        r"  a token takes [\d.]+ ms without the record, [\d.]+ ms with it: ratio [\d.]+", lines[2]
    )
