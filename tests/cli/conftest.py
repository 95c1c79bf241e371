"""Commands as a person or a program gives them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image, ImageDraw

from dsocr_core.base.console import OK
from dsocr_core.cli.main import main
from dsocr_core.runs import result_cache
from tests.support.seeded_weights import tiny_config, write_seeded_checkpoint


@pytest.fixture(autouse=True)
def own_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither results nor run directories of these tests land in the project."""
    monkeypatch.setattr(result_cache, "RUNS_DIRECTORY", tmp_path / "runs")


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that ends with `code`; gives all that it prints, on one line."""

    def run(*words: object, code: int = OK) -> str:
        assert main([str(word) for word in words]) == code
        out, err = capsys.readouterr()
        text = " ".join((out + err).split())
        assert "Traceback" not in text
        return text

    return run


@pytest.fixture
def document(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command with --json that ends with `code`; gives its document, the only line of stdout."""

    def run(*words: object, code: int = OK) -> Any:
        capsys.readouterr()
        assert main([*(str(word) for word in words), "--json"]) == code
        out = capsys.readouterr().out
        assert out.count("\n") == 1
        return json.loads(out)

    return run


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeded_checkpoint(tiny_config(), tmp_path_factory.mktemp("cli") / "tiny_cli", torch.float32)


def draw(file: Path) -> Path:
    """A page with its name on it."""
    picture = Image.new("RGB", (300, 200), "white")
    ImageDraw.Draw(picture).text((20, 20), f"Hello {file.name}", fill="black")
    picture.save(file)
    return file


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return draw(tmp_path / "page.png")
