"""`measure host-path`: both ways give the same bytes, and every part has its figures."""

import json
from typing import Any

import numpy as np
import pytest

import dsocr_core.measure.device as device
import dsocr_core.measure.host_path as host_path
from dsocr_core.base.console import OK
from dsocr_core.cli.main import main


@pytest.fixture(autouse=True)
def small_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_CPU_COPY_BYTES", 2**16)


def test_every_part_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["measure", "host-path", "--size", "700x200", "--repeat", "1"]) == OK
    answer = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert answer["size"] == [700, 200] and answer["preset"] == "gundam"
    names = [
        "open", "resize and pad, straight", "resize and pad", "hashes, straight",
        "hashes (beside the device)",
    ]  # fmt: skip
    assert [row["name"] for row in answer["rows"]] == names
    assert all(row["ms"] > 0 and row["cpu_ms"] is not None for row in answer["rows"])


def test_other_pixels_are_not_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    views = host_path._straight_views

    def one_off(*of: Any) -> host_path.Views:
        view, tiles = views(*of)
        return np.bitwise_xor(view, 1), tiles

    monkeypatch.setattr(host_path, "_straight_views", one_off)
    command = ["measure", "host-path", "--size", "200x100", "--preset", "tiny", "--repeat", "1"]
    assert main(command) != OK
    assert "two ways of a tiny page differ" in capsys.readouterr().out
