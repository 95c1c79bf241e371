"""`run --inputs`: one document or a table of what a model gets, and what it refuses."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from dsocr_core.base.console import BAD_USAGE, FAILED
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.settings import Settings
from tests.support.paths import MINI, SAMPLES

LETTER = SAMPLES / "01-letter.png"


Document = Callable[..., Any]
Said = Callable[..., str]


def test_it_prints_what_a_reading_records(document: Document, said: Said) -> None:
    words = ("run", LETTER, "--preset", "small", "--inputs")
    (page,) = document(*words)["pages"]
    engine = EagerEngine(load_checkpoint(str(MINI), torch.device("cpu"), torch.float32))
    request = replace(Settings(preset="small").request(LETTER), max_new_tokens=1)
    inputs = engine.recognize(request).required_inputs
    (view,) = page["views"]
    assert (view["shape"], view["sha256"]) == (list(inputs.global_shape), inputs.global_sha256)
    assert (page["prompt_tokens"], page["image_tokens"]) == (len(inputs.prompt_ids), inputs.image_token_count)
    assert page["grid"] == list(inputs.grid)
    row = said(*words)
    assert "01-letter.png 827 x 1169" in row and row.endswith(f"{view['sha256'][:12]} none")


def test_a_config_alone_is_enough(tmp_path: Path, document: Document) -> None:
    """Pages of a PDF, each by itself and all in one prompt; what no tokenizer counts is not known."""
    (unlimited := tmp_path / "unlimited").mkdir()
    (unlimited / "config.json").write_text('{"architectures": ["UnlimitedOCRForCausalLM"]}')
    first, *others = (Image.new("RGB", size, "white") for size in ((700, 900), (800, 200)))
    paper = tmp_path / "paper.pdf"
    first.save(paper, save_all=True, append_images=others, resolution=72)
    words = ("run", paper, "--pdf-dpi", "72", "--checkpoint", unlimited, "--inputs")
    (second,) = document(*words, "--pages", "2")["pages"]
    assert (second["image"], second["width"], second["prompt_tokens"]) == ("paper.pdf#2", 800, None)
    (page,) = document(*words, "--pages-together")["pages"]
    assert page["images"] == ["paper.pdf#1", "paper.pdf#2"] and page["sizes"] == [[700, 900], [800, 200]]
    assert (page["model"], page["preset"], page["width"]) == ("unlimited_ocr", "base", None)
    assert [view["shape"] for view in page["views"]] == [[2, 3, 1024, 1024]]


def test_a_page_that_cannot_be_opened_is_named(tmp_path: Path, document: Document) -> None:
    shutil.copy(LETTER, tmp_path / "b.png")
    (tmp_path / "a.png").write_bytes(b"no image")
    bad, good = document("run", tmp_path, "--preset", "gundam", "--inputs", code=FAILED)["pages"]
    assert (bad["image"], good["image"], good["tiles"]) == ("a.png", "b.png", 6)
    assert "not an image" in bad["error"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--pages-together"], "DeepSeek-OCR reads one image a prompt"),
        (["--checkpoint", "nowhere"], "nowhere: no config.json here"),
        (["--prompt", "no image"], "needs exactly one <image>"),
        (["--pages", "2"], "none of the given files has several pages"),
        (["--status", "out"], "give pages to read, or --status OUT alone"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words: list[str], message: str, said: Said) -> None:
    text = said("run", LETTER, *words, "--inputs", code=BAD_USAGE)
    assert text.startswith("error: ") and message in text
