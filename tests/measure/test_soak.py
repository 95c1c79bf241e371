"""The long run's watch: what counts as flat, by hand; a short one end to end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import dsocr_core.measure.soak as soak
from dsocr_core.base.console import BAD_USAGE, OK
from dsocr_core.cli.main import main
from dsocr_core.measure.soak import DEVICE_GROWTH, HOST_GROWTH, LongRun, Sample, linked_pages
from tests.support.seeded_weights import tiny_config, with_changes, write_seeded_checkpoint


def run_of(*samples: tuple[int, int, int]) -> LongRun:
    seen = tuple(Sample(pages, 1.0, host, 0, reserved) for pages, host, reserved in samples)
    return LongRun(100, 100, 0, 1.0, 0, seen)


def test_memory_is_flat_within_the_growth_that_is_allowed() -> None:
    start = (10, 0, 0)  # before everything has been seen once: does not count
    assert run_of(start, (40, 10**9, 10**9), (100, 10**9 + HOST_GROWTH, 10**9 + DEVICE_GROWTH)).flat
    assert not run_of(start, (40, 0, 0), (100, HOST_GROWTH + 1, 0)).flat
    assert not run_of(start, (40, 0, 0), (100, 0, DEVICE_GROWTH + 1)).flat
    assert run_of(start, (100, 10**12, 0)).flat


def test_pages_are_drawn_once_and_linked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soak, "SIZES", ((20, 30), (40, 10)))
    paths = linked_pages(tmp_path / "pages", 5)
    assert len({path.name for path in paths}) == 5
    assert len({path.stat().st_ino for path in paths}) == 2


def test_a_short_run_ends_with_its_samples_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak, "SIZES", ((120, 90), (60, 150)))
    config = with_changes(tiny_config(), num_hidden_layers=2)
    checkpoint = write_seeded_checkpoint(config, tmp_path / "tiny_many", torch.float32)
    given = ["--checkpoint", str(checkpoint), "--preset", "tiny", "--device", "cpu", "--tokens", "2"]
    assert main(["measure", "soak", *given, "--pages", "3"]) == OK
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (found["passed"], found["failed"], found["flat"]) == (3, 0, True)
    assert [sample["pages"] for sample in found["samples"]] == [1, 2, 3]
    assert main(["measure", "soak", *given, "--pages", "0"]) == BAD_USAGE
    assert "pages is 0" in capsys.readouterr().out
