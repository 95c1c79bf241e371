"""Prompt layout by hand-computed ids."""

import pytest

from dsocr_core.base.errors import DsocrError
from dsocr_core.models.deepseek_ocr import PROMPTS
from dsocr_core.page.prompt import build_prompt, prompt_layout


def letters(text: str) -> list[int]:
    return [1000 + ord(letter) for letter in text]


def test_the_layout_of_a_small_prompt_is_as_worked_out_by_hand() -> None:
    layout = prompt_layout(letters, build_prompt("  ab<image>\nc \n"), 7, 0, 3)
    assert layout.ids == (0, 1097, 1098, 7, 7, 7, 1010, 1099)
    assert layout.mask == ((3, 3),)
    for text in PROMPTS.values():
        assert prompt_layout(letters, build_prompt(text), 7, 0, 5).mask == ((1, 5),)


@pytest.mark.parametrize(("text", "found"), [("Free OCR.", "none"), ("", "none"), ("<image> a <image>", "2")])
def test_one_image_exactly(text: str, found: str) -> None:
    with pytest.raises(DsocrError, match=f"exactly one <image>, where the page goes, and has {found}"):
        prompt_layout(letters, build_prompt(text), 7, 0, 5)
