"""The preset that `auto` means on a CPU, and where it is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from analytic_model import PUBLISHED
from analytic_model.on_cpu import with_cpu_preset
from dsocr_core.settings import Settings

HERE = Settings(checkpoint=f"random:{PUBLISHED}", device="cpu")


def test_a_large_model_is_read_small_and_says_why(tmp_path: Path) -> None:
    found, why = with_cpu_preset(HERE)
    assert found == replace(HERE, preset="small")
    assert "preset small" in why and "3.34 G parameters" in why and "--preset gundam" in why
    document = json.loads(PUBLISHED.read_text()) | {"sliding_window": 128}
    document["architectures"] = ["UnlimitedOCRForCausalLM"]
    (tmp_path / "config.json").write_text(json.dumps(document))
    found, why = with_cpu_preset(replace(HERE, checkpoint=f"random:{tmp_path / 'config.json'}"))
    assert found.preset == "base" and "under gundam" in why  # it has none named small


def test_elsewhere_auto_means_what_it_did(tmp_path: Path) -> None:
    small = json.loads(PUBLISHED.read_text()) | {"n_routed_experts": 8, "num_hidden_layers": 2}
    (tmp_path / "config.json").write_text(json.dumps(small))
    for settings in (
        replace(HERE, preset="gundam"),  # chosen
        replace(HERE, device="cuda"),
        Settings(device="cpu"),  # the embedded checkpoint
        replace(HERE, a="endpoint:http://127.0.0.1:1", b="folder:there"),  # another machine reads
        replace(HERE, checkpoint="/nowhere"),
        replace(HERE, checkpoint=f"random:{tmp_path / 'config.json'}"),
    ):
        assert with_cpu_preset(settings) == (settings, "")
