"""What drafts would give, and which experts neighbouring tokens share."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from PIL import Image
from rich.console import Console

from dsocr_core.backends.on_device import engine_backend
from dsocr_core.measure.drafts import by_chance, distinct, experts_of, run
from dsocr_core.models.blocks.moe import MixtureOfExperts
from dsocr_core.settings import InferSettings, Settings
from tests.support.seeded_weights import tiny_config, write_seeded_checkpoint


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    folder = write_seeded_checkpoint(tiny_config(), tmp_path_factory.mktemp("drafts") / "tiny", torch.float32)
    return Settings(str(folder), "tiny", device="cpu", infer=InferSettings(max_new_tokens=20))


@pytest.fixture
def page(tmp_path: Path) -> Path:
    Image.new("RGB", (120, 90), "white").save(tmp_path / "page.png")
    return tmp_path / "page.png"


def test_experts_of_neighbours_are_counted_once() -> None:
    chosen = torch.tensor([[[0, 1], [1, 2], [3, 4], [3, 4], [5, 6]]])  # (1, 5, 2)
    assert distinct(chosen, 2).tolist() == [[3, 2]]  # the fifth has no neighbour
    assert distinct(chosen, 4).tolist() == [[5]]
    assert by_chance(64, 6, 1) == pytest.approx(6) and by_chance(64, 6, 4) == pytest.approx(20.8, abs=0.05)


def test_the_experts_are_those_that_single_steps_go_to(
    settings: Settings, page: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = engine_backend(settings).engine
    request = settings.request(page, "page.png")
    tokens = engine.recognize(request).required_tokens
    together = experts_of(engine, request, tokens)

    seen: list[torch.Tensor] = []
    plain = MixtureOfExperts.route

    def noted(module: MixtureOfExperts, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        chosen, weights = plain(module, x)
        if len(x) == 1:
            seen.append(chosen[0])
        return chosen, weights

    monkeypatch.setattr(MixtureOfExperts, "route", noted)
    monkeypatch.setattr("dsocr_core.engine.generate.TokenStep.fits", lambda decoder: False)
    assert engine.recognize(request).required_tokens == tokens
    layers = together.shape[0]
    alone = torch.stack(seen).view(len(tokens) - 1, layers, -1).transpose(0, 1)
    assert torch.equal(together.sort(-1).values, alone.sort(-1).values)


def test_every_source_has_a_row(settings: Settings, page: Path, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    text = engine_backend(settings).engine.recognize(settings.request(page, "page.png")).text_raw
    (texts / "page.txt").write_text(text or "nothing")
    console = Console(record=True, width=110)
    run(settings, (str(page),), draft=("lookup", f"folder:{texts}", "text-layer"), console=console)
    printed = console.export_text()
    assert "1 pages, 20 tokens" in printed and "lookup" in printed and "of 4 experts a layer" in printed
    assert "K = 16: " in printed and "K = 32: " not in printed  # of 32 neighbours there are none
