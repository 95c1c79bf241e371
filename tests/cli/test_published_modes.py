"""`--infer.eval-mode`, `--infer.test-compress`, and the attention of a comparison, from the command line."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image, ImageDraw

import dsocr_core.runs.result_cache as results
from dsocr_core.backends.on_device import PublishedBackend
from dsocr_core.base.console import BAD_USAGE, OK
from dsocr_core.cli.main import main
from dsocr_core.engine import checkpoint as checkpoint_module
from dsocr_core.reading.postprocess import clean_text
from dsocr_core.runs.readings import SCHEMA
from dsocr_core.runs.run_folder import run_rows
from dsocr_core.vendor.backend import VendorBackend
from tests.support.seeded_weights import tiny_config, write_seeded_checkpoint

FAST = ("--preset", "tiny", "--infer.max-new-tokens", "6", "--device", "cpu")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_seeded_checkpoint(
        tiny_config(), tmp_path_factory.mktemp("modes") / "tiny_modes", torch.float32
    )


@pytest.fixture(scope="module", autouse=True)
def one_worker() -> Iterator[None]:
    """Each command would start a worker of its own; here those of one checkpoint and attention share it."""
    build, close = PublishedBackend._made, VendorBackend.close
    started: dict[tuple[str, str], VendorBackend] = {}

    def shared(backend: PublishedBackend) -> VendorBackend:
        settings = backend.settings
        key = settings.checkpoint, settings.vendor_attention
        return started.get(key) or started.setdefault(key, build(backend))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PublishedBackend, "_made", shared)
        patch.setattr(VendorBackend, "close", lambda _: None)
        yield
    for backend in started.values():
        close(backend)


@pytest.fixture(autouse=True)
def own_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RUNS_DIRECTORY", tmp_path / "runs")


@pytest.fixture
def page(tmp_path: Path) -> Path:
    picture = Image.new("RGB", (300, 200), "white")
    ImageDraw.Draw(picture).text((20, 20), "Hello page", fill="black")
    picture.save(tmp_path / "page.png")
    return tmp_path / "page.png"


def compare(page: Path, checkpoint: Path, *more: str) -> int:
    trust = f"--vendor.trust-remote-code=[{checkpoint}]"
    out = str(page.parent / "out")
    return main(["compare", str(page), "--checkpoint", str(checkpoint), trust, *FAST, "--out", out, *more])


def written(page: Path, backend: str) -> dict:
    """The result that a comparison left of a backend."""
    rows = run_rows(page.parent / "out", SCHEMA.names)
    return {row["backend"]: row for row in rows}[backend or "eager"]


def test_both_modes_reach_both_backends(
    page: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    modes = ("--infer.eval-mode", "true", "--infer.test-compress", "true")
    assert compare(page, checkpoint, *modes, "--json") == OK
    [row] = json.loads(capsys.readouterr().out)["pages"]
    assert row["tokens_equal"] is True and row["input_parity"] is True and row["notes"] == []
    assert row["compression"]["eager"] == row["compression"]["vendor"]
    figures = row["compression"]["eager"]
    assert figures["image_size"] == [300, 200] and figures["valid_image_tokens"] == 64
    assert figures["ratio"] == round(figures["text_tokens"] / 64, 2)
    for backend in ("", "vendor"):
        assert written(page, backend)["inputs"]["no_repeat_ngram_size"] == 35


def test_evaluation_mode_gives_the_text_that_the_published_code_returns(
    page: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """That text on both sides, without the end token; the other mode returns nothing."""
    assert compare(page, checkpoint, "--infer.eval-mode", "true", "--json") == OK
    [row] = json.loads(capsys.readouterr().out)["pages"]
    texts = {
        name: written(page, folder)["text_raw"] for name, folder in (("eager", ""), ("vendor", "vendor"))
    }
    assert row["returned"] == {name: clean_text(text) for name, text in texts.items()}
    assert row["returned"]["eager"] == row["returned"]["vendor"] != ""
    assert compare(page, checkpoint, "--json") == OK
    [row] = json.loads(capsys.readouterr().out)["pages"]
    assert row["returned"] == {}


def test_a_comparison_is_of_one_attention_unless_another_is_chosen(
    page: Path, checkpoint: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert compare(page, checkpoint, "--json") == OK
    assert "attention" not in caplog.text
    assert [written(page, backend)["inputs"]["attention"] for backend in ("", "vendor")] == ["eager", "eager"]
    with caplog.at_level(logging.WARNING):
        assert compare(page, checkpoint, "--json", "--attention", "sdpa") == OK
    assert "attention sdpa against eager" in caplog.text
    assert [written(page, backend)["inputs"]["attention"] for backend in ("", "vendor")] == ["sdpa", "eager"]


def test_code_without_float32_is_refused_before_any_model_is_loaded(
    page: Path, checkpoint: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    published = write_seeded_checkpoint(tiny_config(), tmp_path / "device_aware")
    code = published / "modeling_deepseekocr.py"
    code.write_text(code.read_text().replace("supports_float32 = True", "pass"))
    monkeypatch.setattr(checkpoint_module, "load_model", lambda *_: pytest.fail("a model was loaded"))
    assert compare(page, published, "--json") == BAD_USAGE
    assert "--dtype bfloat16" in " ".join(capsys.readouterr().err.split())
