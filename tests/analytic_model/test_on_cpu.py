"""The preset that `auto` means on a CPU, its estimate against one by hand, and where it is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from analytic_model import PUBLISHED, on_cpu
from analytic_model.on_cpu import of_cpu, page_s
from dsocr_core.models.family import load_config
from dsocr_core.settings import Settings

HERE = Settings(checkpoint=f"random:{PUBLISHED}", device="cpu")


def test_a_page_over_a_minute_is_read_small_and_says_why() -> None:
    """By hand, of the published sizes: a token reads 0.605 G weights of 4 bytes, 999 of them at 50 GB/s.

    These are 48 s under any preset; vision and prefill of Gundam are 4.4 TFLOP on 2 x 3 tiles, 0.3 a second.
    """
    config = load_config(PUBLISHED)
    assert page_s(config, "gundam") == pytest.approx(48.3 + 4.4 / 0.3, abs=1.5)
    found, why = of_cpu(HERE)
    assert found == replace(HERE, preset="small")
    assert f"{page_s(config, 'gundam'):.0f} s under gundam" in why
    assert f"{page_s(config, 'small'):.0f} s under small" in why
    assert "estimated" in why and "300 GFLOP/s and 50 GB/s" in why and "--preset gundam" in why


@pytest.mark.parametrize(
    "settings",
    [
        replace(HERE, preset="gundam"),  # chosen
        replace(HERE, device="cuda"),
        Settings(device="cpu"),  # the embedded checkpoint, which is small as ever
        replace(HERE, a="endpoint:http://127.0.0.1:1", b="folder:there"),  # another machine reads
        replace(HERE, checkpoint="/nowhere"),
    ],
)
def test_elsewhere_auto_means_what_it_did(settings: Settings) -> None:
    assert of_cpu(settings) == (settings, "")


def test_a_page_of_less_than_a_minute_keeps_its_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_cpu, "MOST_S", 100.0)
    assert of_cpu(HERE) == (HERE, "")


def test_a_model_without_small_has_its_smallest_view(tmp_path: Path) -> None:
    document = json.loads(PUBLISHED.read_text()) | {"sliding_window": 128}
    document["architectures"] = ["UnlimitedOCRForCausalLM"]
    (tmp_path / "config.json").write_text(json.dumps(document))
    found, why = of_cpu(replace(HERE, checkpoint=f"random:{tmp_path / 'config.json'}"))
    assert found.preset == "base" and "under gundam" in why
