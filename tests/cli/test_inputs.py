"""`inputs`: one document or a table of what a model gets, and what it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from dsocr_core.base.console import BAD_USAGE, FAILED, OK
from dsocr_core.cli.main import main
from dsocr_core.engine.checkpoint import load_checkpoint
from dsocr_core.engine.eager import EagerEngine
from dsocr_core.settings import Settings
from tests.support.paths import MINI, ROOT, SAMPLES

LETTER = SAMPLES / "01-letter.png"
UNLIMITED = ("--model", "unlimited_ocr")


def told(capsys: pytest.CaptureFixture[str], *words: object, code: int = OK) -> list[dict[str, Any]]:
    assert main(["inputs", *map(str, words), "--json"]) == code
    out = capsys.readouterr().out
    assert out.count("\n") == 1
    pages: list[dict[str, Any]] = json.loads(out)["pages"]
    return pages


def shown(capsys: pytest.CaptureFixture[str], *words: object, code: int = OK) -> str:
    assert main(["inputs", *map(str, words)]) == code
    return capsys.readouterr().out


@pytest.fixture
def document(tmp_path: Path) -> Path:
    """A PDF of three pages; two are 700 x 900 pixels at 72 dpi, the last is wide."""
    first, *others = (Image.new("RGB", size, "white") for size in ((700, 900), (700, 900), (800, 200)))
    first.save(tmp_path / "paper.pdf", save_all=True, append_images=others, resolution=72)
    return tmp_path / "paper.pdf"


def test_the_document_of_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    (page,) = told(capsys, LETTER, "--preset", "gundam", "--model", "deepseek_ocr")
    views = page.pop("views")
    assert page == {
        "image": "01-letter.png", "model": "deepseek_ocr", "preset": "gundam", "width": 827, "height": 1169,
        # 273 of the view, 20 tokens and a row's end for each of 30 rows
        "grid": [2, 3], "tiles": 6, "image_tokens": 273 + 21 * 30, "prompt_tokens": 273 + 21 * 30 + 10,
        "notes": [
            "tiles: enlarged, width x 1.55, height x 1.64",
            "no tokenizer is at hand: the text is 10 tokens of the published one, bos included",
        ],
    }  # fmt: skip
    assert [(view["name"], view["shape"]) for view in views] == [
        ("global", [1, 3, 1024, 1024]),
        ("tiles", [6, 3, 640, 640]),
    ]
    assert all(len(view["sha256"]) == 64 for view in views)


def test_it_says_what_a_reading_records(capsys: pytest.CaptureFixture[str]) -> None:
    (page,) = told(capsys, LETTER, "--preset", "small")
    engine = EagerEngine(load_checkpoint(str(MINI), torch.device("cpu"), torch.float32))
    request = replace(Settings(preset="small").request(LETTER), max_new_tokens=1)
    inputs = engine.recognize(request).required_inputs
    (view,) = page["views"]
    assert (view["shape"], view["sha256"]) == (list(inputs.global_shape), inputs.global_sha256)
    assert (page["prompt_tokens"], page["image_tokens"]) == (len(inputs.prompt_ids), inputs.image_token_count)
    assert page["grid"] == list(inputs.grid)


def test_each_page_of_a_pdf_and_all_in_one_prompt(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pages = told(capsys, document, "--pages", "1,3", "--pdf-dpi", "72", *UNLIMITED)
    assert [(page["image"], page["width"], page["height"]) for page in pages] == [
        ("paper.pdf#1", 700, 900),
        ("paper.pdf#3", 800, 200),
    ]
    (page,) = told(capsys, document, "--pdf-dpi", "72", *UNLIMITED, "--pages-together")
    assert page["images"] == ["paper.pdf#1", "paper.pdf#2", "paper.pdf#3"] and "image" not in page
    assert page["sizes"] == [[700, 900], [700, 900], [800, 200]] and page["width"] is None
    assert (page["preset"], page["image_tokens"], page["prompt_tokens"]) == ("base", 819, 824)
    assert [view["shape"] for view in page["views"]] == [[3, 3, 1024, 1024]]
    assert page["notes"][0] == "paper.pdf#1: global view: enlarged, both sides x 1.14"
    (alone,) = told(capsys, "--pages-together", document, "--pages", "2", "--pdf-dpi", "72", *UNLIMITED)
    assert (alone["images"], alone["width"], alone["prompt_tokens"]) == (["paper.pdf#2"], 700, 278)
    pairs = told(capsys, document, LETTER, "--pages-together", "2", "--pdf-dpi", "72", *UNLIMITED)
    assert [pair["images"] for pair in pairs] == [
        ["paper.pdf#1", "paper.pdf#2"],
        ["paper.pdf#3"],
        ["01-letter.png"],  # single images are a document of their own
    ]


def test_a_table_names_what_is_to_say_once(document: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, document, "--pdf-dpi", "72", "--model", "DeepSeek-OCR-2", "--prompt", "free_ocr")
    lines = out.splitlines()
    assert lines[0] == "deepseek_ocr2, preset default"
    row = next(line.split() for line in lines if line.startswith(" paper.pdf#3"))
    assert row[1:11] == ["800", "x", "200", "4", "x", "1", "4", "833", "not", "known"]
    said = [line for line in lines if "not known" in line and "tokens" in line]
    assert len(said) == 1 and said[0].startswith("paper.pdf#1 and 2 more: ")


def test_the_table_in_the_documentation_is_what_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    lines = (ROOT / "docs" / "using.md").read_text(encoding="utf-8").splitlines()
    start = next(
        number for number, line in enumerate(lines) if line.startswith("    dsocr inputs data/samples")
    )
    _, command, *words = lines[start].split()
    printed = [" ".join(line.split()) for line in shown(capsys, *words).splitlines()]
    following = [" ".join(line.split()) for line in lines[start + 2 :]]
    assert command == "inputs" and len(printed) > 7
    assert following[: len(printed)] == printed


def test_a_page_that_cannot_be_opened_is_named_and_the_others_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(LETTER, tmp_path / "b.png")
    (tmp_path / "a.png").write_bytes(b"no image")
    bad, good = told(capsys, tmp_path, "--model", "deepseek_ocr", code=FAILED)
    assert set(bad) == {"image", "error"} and "not an image" in bad["error"]
    assert good["image"] == "b.png" and good["tiles"] == 6
    assert "not an image" in shown(capsys, tmp_path, "--model", "deepseek_ocr", code=FAILED)


def test_a_config_alone_is_enough_and_a_tokenizer_counts_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"architectures": ["DeepseekOCR2ForCausalLM"]}))
    (page,) = told(capsys, LETTER, "--checkpoint", tmp_path)
    assert (page["model"], page["prompt_tokens"]) == ("deepseek_ocr2", page["image_tokens"] + 10)
    shutil.copy(MINI / "config.json", tmp_path)
    # Random weights are read with a tokenizer of bytes: bos, a newline, 47 letters.
    (page,) = told(capsys, LETTER, "--checkpoint", f"random:{tmp_path}/config.json", "--preset", "tiny")
    text = len("\n<|grounding|>Convert the document to markdown.")
    assert page["prompt_tokens"] == page["image_tokens"] + 1 + text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "deepseek_ocr2", "--preset", "small"], "choose one of default, 768, 1024"),
        (["--model", "deepseek_ocr2", "--infer.tile-size", "512"], "takes views of 768 and 1024 pixels"),
        (["--model", "deepseek_ocr2", "--pages-together"], "DeepSeek-OCR-2 reads one image a prompt"),
        ([*UNLIMITED, "--pages-together", "--preset", "gundam"], "preset 'gundam' cuts pages"),
        (["--model", "nothing"], "unknown model 'nothing': choose one of deepseek_ocr, deepseek_ocr2, unlim"),
        (["--model", "deepseek_ocr2", "--checkpoint", "x"], "leave it or --checkpoint out"),
        (["--checkpoint", "nowhere"], "nowhere: no config.json here"),
        ([*UNLIMITED, "--prompt", "no image"], "needs exactly one <image>"),
        (["--model", "deepseek_ocr", "--prompt", "pages"], "needs exactly one <image>"),
        ([*UNLIMITED, "--pages", "2"], "none of the given files has several pages"),
    ],
)  # fmt: skip
def test_what_does_not_go_together_is_refused_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    out = " ".join(shown(capsys, LETTER, *words, code=BAD_USAGE).split())
    assert out.startswith("error: ") and message in out


def test_no_torch_is_needed() -> None:
    code = "import sys, dsocr_core.cli.main as cli; cli.main(sys.argv[1:]); exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code, "inputs", str(LETTER)], check=True, capture_output=True)
