"""What is said while weights load and kernels compile."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest
import torch
from rich.console import Console
from safetensors.torch import load_file, save_file

from dsocr_core.base.errors import DsocrError
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.engine.preparing import saying, words
from dsocr_core.models.family import load_config
from dsocr_core.models.weights import load_model, weight_bytes
from dsocr_core.read.progress import bar
from tests.support.seeded_weights import tiny_config, with_changes, write_seeded_checkpoint

CPU = torch.device("cpu")


def test_words_stand_for_as_long_as_the_work_goes_on() -> None:
    with pytest.raises(ValueError), saying() as say:
        assert words() == ""
        say("compiling kernels, 3 of 40")
        assert words() == "compiling kernels, 3 of 40"
        raise ValueError
    assert words() == ""


def test_bytes_of_weights_are_told_as_they_load_and_nothing_of_a_load_that_failed(tmp_path: Path) -> None:
    config = with_changes(tiny_config(), num_hidden_layers=2)
    directory = write_seeded_checkpoint(config, tmp_path / "weights", torch.float32)
    heard: list[tuple[int, int]] = []
    load_model(load_config(directory), directory, CPU, torch.float32, lambda *each: heard.append(each))
    done, counts = zip(*heard, strict=True)
    assert list(done) == sorted(set(done)) and {*counts} == {done[-1]}
    assert done[-1] == weight_bytes(load_config(directory), torch.float32)

    shard = next(directory.glob("*.safetensors"))
    held = load_file(shard)
    held.pop(next(iter(held)))
    save_file(held, shard)
    with pytest.raises(DsocrError, match="1 missing"):
        load_checkpoint(str(directory), CPU, torch.float32)
    assert words() == ""


def until_shown(words: str, shown: io.StringIO) -> None:
    end = time.monotonic() + 30
    while words not in shown.getvalue():
        assert time.monotonic() < end, shown.getvalue()[-300:]
        time.sleep(0.02)


def test_the_bar_of_a_terminal_says_what_the_engine_prepares(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=120)
    with bar(console) as show, saying() as say:
        show("page 1 of 9", 0.0)
        until_shown("page 1 of 9", shown)
        say("loading weights, 3.1 of 6.7 GB")
        until_shown("page 1 of 9, loading weights, 3.1 of 6.7 GB", shown)
