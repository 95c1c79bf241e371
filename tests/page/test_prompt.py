"""Prompt layout by hand-computed ids."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_prompts_are_as_long_as_the_published_ones() -> None:
    """`sequence_minus_text` is the tokens besides the image's: a character each, and bos."""
    cases = json.loads((PUBLISHED / "preprocess.json").read_text(encoding="utf-8"))["cases"]
    for case in cases:
        count = image_token_count(PRESETS[case["preset"]], tuple(case["grid"]))
        prompt = build_prompt("<image>\n<|grounding|>Convert the document to markdown.")
        layout = prompt_layout(letters, prompt, 7, 0, count)
        assert layout.ids.count(7) == case["image_tokens"] == layout.mask[0][1]
        assert len(layout.ids) - count == case["sequence_minus_text"]


@given(st.text(), st.text(), st.integers(1, 2000))
def test_mask_is_where_the_image_is(before: str, after: str, count: int) -> None:
    if "<image>" in before + "<image>" + after and (before + "<image>" + after).count("<image>") != 1:
        return
    layout = prompt_layout(letters, f"{before}<image>{after}", 7, 0, count)
    ((start, length),) = layout.mask
    assert layout.ids[0] == 0
    assert set(layout.ids[start : start + length]) == {7} and length == count
    assert 7 not in layout.ids[:start] + layout.ids[start + length :]


@pytest.mark.parametrize(("text", "found"), [("Free OCR.", "none"), ("", "none"), ("<image> a <image>", "2")])
def test_one_image_exactly(text: str, found: str) -> None:
    with pytest.raises(
        DsocrError, match=f"exactly one <image>, where the page goes, and has {found}; the published"
    ):
        prompt_layout(letters, build_prompt(text), 7, 0, 5)


def test_every_known_prompt_has_its_image() -> None:
    for text in PROMPTS.values():
        assert prompt_layout(letters, build_prompt(text), 7, 0, 5).mask == ((1, 5),)
