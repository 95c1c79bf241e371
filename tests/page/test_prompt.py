"""Prompt layout by hand-computed ids."""

import json

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.models.deepseek_ocr import PRESETS, PROMPTS
from dsocr_core.page.prompt import build_prompt, prompt_layout
from dsocr_core.page.tiling import image_token_count
from tests.support.paths import PUBLISHED


def letters(text: str) -> list[int]:
    return [1000 + ord(letter) for letter in text]


def test_the_layout_of_a_small_prompt_is_as_worked_out_by_hand() -> None:
    layout = prompt_layout(letters, build_prompt("  ab<image>\nc \n"), 7, 0, 3)
    assert layout.ids == (0, 1097, 1098, 7, 7, 7, 1010, 1099)
    assert layout.mask == ((3, 3),)
    for text in PROMPTS.values():
        assert prompt_layout(letters, build_prompt(text), 7, 0, 5).mask == ((1, 5),)


def test_prompts_are_as_long_as_the_published_ones() -> None:
    """`sequence_minus_text` is the tokens besides the image's: a character each, and bos."""
    cases = json.loads((PUBLISHED / "preprocess.json").read_text(encoding="utf-8"))["cases"]
    for case in cases:
        count = image_token_count(PRESETS[case["preset"]], tuple(case["grid"]))
        prompt = build_prompt("<image>\n<|grounding|>Convert the document to markdown.")
        layout = prompt_layout(letters, prompt, 7, 0, count)
        assert layout.ids.count(7) == case["image_tokens"] == layout.mask[0][1]
        assert len(layout.ids) - count == case["sequence_minus_text"]


@pytest.mark.parametrize(("text", "found"), [("Free OCR.", "none"), ("", "none"), ("<image> a <image>", "2")])
def test_one_image_exactly(text: str, found: str) -> None:
    with pytest.raises(DsocrError, match=f"exactly one <image>, where the page goes, and has {found}"):
        prompt_layout(letters, build_prompt(text), 7, 0, 5)
