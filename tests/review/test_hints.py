"""Likely causes: one table."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from dsocr_core.records import OcrRequest, OcrResult
from dsocr_core.review.hints import scaled_side
from tests.review.sides import BLOCKS, Block, changed, markup, page, texts
from tests.support.results import make_result

VENDOR = make_result(markup(), "vendor")
OTHER = markup(changed(1, text="other words"))


def ours(text: str = OTHER, **inputs: object) -> OcrResult:
    return make_result(text, "ours", **inputs)


def scaled(factor: float) -> tuple[Block, ...]:
    return tuple((label, tuple(round(v * factor) for v in box), text) for label, box, text in BLOCKS)  # type: ignore[misc]


TABLE = [
    ("equal pages need no cause", make_result(markup(), "ours", attention="sdpa"), []),
    ("words alone say nothing", ours(), []),
    ("n-gram size", ours(no_repeat_ngram_size=35), ["ngram"]),
    ("grid", ours(grid=(2, 2)), ["grid"]),
    ("dtype", ours(dtype="bfloat16"), ["dtype"]),
    ("attention", ours(attention="sdpa"), ["attention"]),
    ("rotary", ours(rotary_dtype="bfloat16"), ["rotary"]),
    ("prompt ids", ours(prompt_ids=(0, 5, 5, 5, 8)), ["prompt"]),
    (
        "prompt",
        replace(ours(), request=OcrRequest(Path("page.png"), "small", "<image>\nFree OCR.")),
        ["prompt"],
    ),
    ("preset", replace(ours(), request=OcrRequest(Path("page.png"), "base")), ["preset"]),
    ("EXIF", replace(ours(), image_size=(800, 1000)), ["exif"]),
    ("loop", ours(markup() + "over and over. " * 20), ["loop"]),
    (
        "length limit",
        replace(ours(max_new_tokens=9), finish_reason="length", token_ids=tuple(range(9)), token_texts=()),
        ["length"],
    ),
    ("scale of A, rounded", ours(markup(scaled(1000 / 999))), ["scale"]),
    ("scale of B, rounded", ours(markup(scaled(999 / 1000))), ["scale"]),
    ("a shift is no scale", ours(markup(changed(1, box=(101, 151, 901, 251)))), []),
    ("strong before weak", ours(no_repeat_ngram_size=35, dtype="bfloat16"), ["ngram", "dtype"]),
]


@pytest.mark.parametrize(("what", "result", "causes"), TABLE, ids=[row[0] for row in TABLE])
def test_causes(what: str, result: OcrResult, causes: list[str]) -> None:
    assert [hint.cause for hint in page(result, VENDOR).hints] == causes


def test_both_values_are_named() -> None:
    (hint,) = page(ours(no_repeat_ngram_size=35), VENDOR).hints
    assert "size 35 and 20" in hint.words
    cut = replace(ours(max_new_tokens=9), finish_reason="length", token_ids=(1,) * 9, token_texts=())
    (hint,) = page(cut, VENDOR).hints
    assert "9 tokens" in hint.words and "9 and 8192" in hint.words


@pytest.mark.parametrize(("factor", "side"), [(1000 / 999, "A"), (999 / 1000, "B")])
def test_the_side_that_counts_to_1000(factor: float, side: str) -> None:
    assert scaled_side(texts(markup(scaled(factor))).pairs) == side
    exact = tuple((label, tuple(v * factor for v in box), text) for label, box, text in BLOCKS)
    assert scaled_side(texts(markup(exact)).pairs) == side


def test_coordinates_that_were_cut_off_are_told_apart_too() -> None:
    """A page of 1,654 x 2,339 pixels whose boxes one side counts in 1000 parts, both cutting off."""
    chance = random.Random(3)
    parts: dict[int, list[Block]] = {999: [], 1000: []}
    for number in range(15):
        left, top = chance.randrange(100, 800), 150 * number
        for scale, blocks in parts.items():
            corners = (left / 1654, top / 2339, (left + 700) / 1654, (top + 120) / 2339)
            blocks.append(("text", tuple(int(part * scale) for part in corners), str(number)))  # type: ignore[arg-type]
    assert scaled_side(texts(markup(parts[1000]), markup(parts[999])).pairs) == "A"
    assert scaled_side(texts(markup(parts[999]), markup(parts[1000])).pairs) == "B"


def test_a_shift_of_everything_is_no_scale() -> None:
    moved = tuple((label, tuple(v + 1 for v in box), text) for label, box, text in BLOCKS)
    assert scaled_side(texts(markup(moved)).pairs) is None
    assert scaled_side(texts(markup()).pairs) is None
    assert scaled_side(()) is None
