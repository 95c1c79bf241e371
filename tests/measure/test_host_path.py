"""`measure host-path`: both ways give the same bytes, and every part has its figures."""

import json
from typing import Any

import numpy as np
import pytest

import dsocr_core.measure.host_path as host_path
from dsocr_core.cli.main import main
from dsocr_core.console import OK


def test_every_part_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    command = ["measure", "host-path", "--size", "700x200", "--repeat", "1", "--json"]
    assert main(command) == OK
    answer = json.loads(capsys.readouterr().out)
    assert answer["size"] == [700, 200] and answer["preset"] == "gundam"
    names = [part["name"] for part in answer["parts"]]
    assert names == ["open", "resize and pad", "hashes (beside the device)"]
    assert all(part["ms"] > 0 for part in answer["parts"])
    assert [part["straight_ms"] is None for part in answer["parts"]] == [True, False, False]


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
