"""A difference of two texts: joined, its runs give each text back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr_core.reading.text_diff import text_difference


@given(st.text(max_size=80), st.text(max_size=80))
def test_a_difference_gives_both_texts_back(a: str, b: str) -> None:
    left, right = text_difference(a, b)
    assert "".join(text for text, _ in left) == a
    assert "".join(text for text, _ in right) == b


@pytest.mark.parametrize(
    ("a", "b", "left", "right"),
    [
        ("same words", "same words", [("same words", "same")], [("same words", "same")]),
        ("340 g", "340 a,", [("340 ", "same"), ("g", "letter")], [("340 ", "same"), ("a,", "letter")]),
        ("by 1,234.00 now", "by 7,234.00 now",
         [("by ", "same"), ("1", "letter"), (",234.00", "word"), (" now", "same")],
         [("by ", "same"), ("7", "letter"), (",234.00", "word"), (" now", "same")]),
        ("", "more", [], [("more", "letter")]),
        ("二月四日", "二月五日", [("二月", "same"), ("四", "letter"), ("日", "same")],
         [("二月", "same"), ("五", "letter"), ("日", "same")]),
    ],
)  # fmt: skip
def test_a_difference_is_one_of_words_then_of_their_letters(a: str, b: str, left: list, right: list) -> None:
    assert text_difference(a, b) == (left, right)
