"""The precision ladder on a small checkpoint: the control is equal, fewer bits are worse, truth is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageDraw

from dsocr_core.base.console import BAD_USAGE, OK
from dsocr_core.base.errors import DsocrError
from dsocr_core.cli.main import main
from dsocr_core.measure.ladder import _choices, read_truth
from tests.support.paths import SAMPLES
from tests.support.seeded_weights import tiny_config, with_changes, write_seeded_checkpoint


@pytest.fixture(scope="module")
def ladder(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("ladder")
    config = with_changes(tiny_config(), num_hidden_layers=2)
    checkpoint = write_seeded_checkpoint(config, folder / "tiny_ladder", torch.float32)
    picture = Image.new("RGB", (300, 200), "white")
    ImageDraw.Draw(picture).text((20, 20), "Hello page", fill="black")
    picture.save(folder / "page.png")
    return [
        "measure", "ladder", str(folder / "page.png"), "--checkpoint", str(checkpoint), "--preset", "tiny",
        "--device", "cpu", "--infer.max-new-tokens", "12",
    ]  # fmt: skip


def test_the_control_stands_beside_every_rung_and_a_value_has_no_speed(
    ladder: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "page.txt").write_text("Other words")
    rungs = ["fp8-kv", "int8", "int4", f"folder:{tmp_path}"]
    assert main([*ladder, "--rungs", *rungs, "--slots", "1", "--forced", "1"]) == OK
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    rows = {row["name"]: row for row in found["rungs"]}
    assert [*rows][:5] == ["base", "control", "fp8-kv", "int8", "int4"]
    base, control, kv, int8, int4, folder = rows.values()
    assert (base["agreement"], base["divergence"], base["identical"]) == (1.0, 0.0, 1)
    assert control["agreement"] == 1.0 and control["divergence"] < 1e-9
    assert control["divergence"] < int8["divergence"] < int4["divergence"]
    assert kv["divergence"] > 1e-9
    assert kv["bytes_a_token"] < base["bytes_a_token"] and int4["memory_bytes"] < int8["memory_bytes"]
    assert all(row["tokens_per_s"] is None and row["positions"] == 12 for row in [*rows.values()][:5])
    assert int4["title"] == "int4 (values only)"
    assert folder["agreement"] is None and folder["bytes_a_token"] is None and folder["differing"] == 1


def test_choices_by_hand() -> None:
    """Half and half against 3 to 1: ln(1/2 / 3/4) / 2 + ln(1/2 / 1/4) / 2 = 0.1438."""
    base = torch.tensor([[0.0, 0.0], [5.0, 1.0]])
    own = torch.tensor([[0.0, torch.log(torch.tensor(3.0))], [5.0, 1.0]])
    positions, same, divergence = _choices(own, base)
    assert (positions, same) == (2, 1) and divergence == pytest.approx(0.143841, abs=1e-6)


def test_truth_is_read_or_refused(tmp_path: Path) -> None:
    assert read_truth(SAMPLES / "ground_truth.json")["01-letter.png"].startswith(
        "Northwind Library\n14 March"
    )
    for content in ("[]", '{"a.png": {"blocks": 3}}', "{"):
        (tmp_path / "truth.json").write_text(content)
        with pytest.raises(DsocrError, match="no truth of pages"):
            read_truth(tmp_path / "truth.json")


def test_an_unknown_rung_is_refused_before_anything_is_loaded(
    ladder: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ladder, "--rungs", "fp7"]) == BAD_USAGE
    assert "'fp7' is not known" in capsys.readouterr().out
