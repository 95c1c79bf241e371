"""Likely causes: in one order, none that contradicts another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.parity_records import ParityReport, reproduced
from dsocr_core.reading.records import OcrRequest, OcrResult, PageFile, TopTwo
from tests.support.results import make_result
from tests.support.review_sides import changed, markup

VENDOR = make_result(markup(), "vendor")
OTHER = markup(changed(1, text="other words"))


def eager(text: str = OTHER, **inputs: object) -> OcrResult:
    return make_result(text, "eager", **inputs)


def compared(*sides: OcrResult) -> ParityReport:
    a, b = (replace(side, request=replace(side.request, file=PageFile(1, "ab"))) for side in sides)
    return compare_results(a, b)


def named(*sides: OcrResult) -> list[str]:
    return [cause.name for cause in compared(*sides).causes]


TABLE = [
    ("equal pages need no cause", make_result(markup(), "eager", attention="sdpa"), []),
    ("words alone say nothing", eager(), []),
    ("n-gram size", eager(no_repeat_ngram_size=35), ["ngram"]),
    ("grid", eager(grid=(2, 2)), ["grid"]),
    ("dtype", eager(dtype="bfloat16"), ["dtype"]),
    ("attention", eager(attention="sdpa"), ["attention"]),
    ("rotary", eager(rotary_dtype="bfloat16"), ["rotary"]),
    ("rotary follows from dtype", eager(dtype="bfloat16", rotary_dtype="bfloat16"), ["dtype"]),
    ("grid follows from preset", replace(eager(grid=(2, 2)), request=OcrRequest(Path("page.png"), "base")),
     ["preset"]),
    ("equal text", make_result(markup(), "eager", dtype="bfloat16"), []),
    ("prompt ids", eager(prompt_ids=(0, 5, 5, 5, 8)), ["prompt"]),
    (
        "prompt",
        replace(eager(), request=OcrRequest(Path("page.png"), "small", "<image>\nFree OCR.")),
        ["prompt"],
    ),
    ("preset", replace(eager(), request=OcrRequest(Path("page.png"), "base")), ["preset"]),
    ("EXIF", replace(eager(), image_size=(800, 1000)), ["exif"]),
    ("loop", eager(markup() + "over and over. " * 20), ["loop"]),
    (
        "length limit",
        replace(eager(max_new_tokens=9), finish_reason="length", token_ids=tuple(range(9)), token_texts=()),
        ["length"],
    ),
    ("strong before weak", eager(no_repeat_ngram_size=35, dtype="bfloat16"), ["ngram", "dtype"]),
]  # fmt: skip


@pytest.mark.parametrize(("what", "result", "causes"), TABLE, ids=[row[0] for row in TABLE])
def test_unequal_settings_are_named_as_causes(what: str, result: OcrResult, causes: list[str]) -> None:
    assert named(result, VENDOR) == causes


# --- ties ---------------------------------------------------------------------------------------


def recorded(result: OcrResult, *logits: float) -> OcrResult:
    top = tuple(TopTwo((token, 0), (logits[0], logits[1])) for token in result.token_ids)
    return replace(result, top_two=top)


BF16 = make_result(markup(), "vendor", dtype="bfloat16")
STEP = next(step for step, (a, b) in enumerate(zip(OTHER, markup(), strict=False)) if a != b)
TIES = [
    ("both an ULP of bfloat16 apart", (7.5, 7.46875), (7.5, 7.46875), ["tie"]),
    ("one side recorded", (7.5, 7.46875), None, ["tie"]),
    ("three logits apart", (24.0, 21.0), (24.0, 23.875), ["not a tie"]),
    ("neither recorded", None, None, []),
]


@pytest.mark.parametrize(("what", "a", "b", "causes"), TIES, ids=[row[0] for row in TIES])
def test_a_divergence_says_whether_it_is_a_tie(
    what: str, a: tuple[float, float] | None, b: tuple[float, float] | None, causes: list[str]
) -> None:
    left, right = (recorded(result, *top) if top else result
                   for result, top in ((eager(dtype="bfloat16"), a), (BF16, b)))  # fmt: skip
    assert named(left, right) == causes
    assert named(left, recorded(right, 7.5, 7.5))[:1] == (causes or ["tie"])


def test_a_tie_comes_with_its_figures_after_the_settings() -> None:
    left = recorded(eager(dtype="bfloat16", no_repeat_ngram_size=35, attention="sdpa"), 24.0, 21.0)
    found = compared(left, recorded(BF16, 24.0, 23.875)).causes
    # Rounding does not explain it: no other order of sums does.
    assert [cause.name for cause in found] == ["ngram", "not a tie"]
    assert found[1].words == (
        f"the tokens diverge at step {STEP}, not a tie: margin 3 of A and 0.125 of B, "
        "together 25 ULP of bfloat16: rounding does not explain it"
    )
    left = recorded(eager(dtype="bfloat16", attention="sdpa"), 7.5, 7.46875)
    assert named(left, BF16) == ["attention", "tie"]


def test_a_margin_never_speaks_against_another_number_type() -> None:
    """F3: in float32 the texts are the same, and the first cause said that rounding does not explain it."""
    far = recorded(eager(dtype="bfloat16", rotary_dtype="bfloat16"), 24.0, 21.0)
    assert named(far, recorded(VENDOR, 24.0, 23.875)) == ["dtype"]
    near = recorded(eager(dtype="float32"), 7.5, 7.46875)
    assert named(near, BF16) == ["dtype", "tie"]
    assert named(near, VENDOR) == ["not a tie"]


def test_an_unknown_type_says_nothing_of_ties() -> None:
    odd = recorded(eager(dtype="int8"), 7.5, 7.46875)
    assert "tie" not in named(odd, replace(VENDOR, inputs=odd.inputs))


def test_what_was_reproduced_comes_first_and_alone() -> None:
    far = recorded(eager(no_repeat_ngram_size=35), 24.0, 21.0)
    found = reproduced(compared(far, VENDOR).causes, "B is reproduced exactly with n-gram size 20")
    assert [cause.name for cause in found] == ["reproduced"]
