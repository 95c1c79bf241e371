"""Likely causes in one order, none that contradicts another; margins and ties by hand-made logits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.parity_records import TIE_ULPS, Margins, ParityReport
from dsocr_core.reading.records import OcrRequest, OcrResult, PageFile, TopTwo, top_two_steps
from tests.support.results import make_result
from tests.support.review_sides import changed, markup

VENDOR = make_result(markup(), "vendor")
BF16 = make_result(markup(), "vendor", dtype="bfloat16")
OTHER = markup(changed(1, text="other words"))
STEP = next(step for step, (a, b) in enumerate(zip(OTHER, markup(), strict=False)) if a != b)
TIE, CLEAR = (7.5, 7.46875), (24.0, 21.0)
"""Two best logits an ULP of bfloat16 apart, and far."""


def eager(text: str = OTHER, logits: Sequence[float] = (), **inputs: object) -> OcrResult:
    return recorded(make_result(text, "eager", **inputs), *logits)


def recorded(result: OcrResult, *logits: float) -> OcrResult:
    """The result with these two best logits in every step, or none."""
    top = (TopTwo((token, 0), (logits[0], logits[1])) for token in result.token_ids or () if logits)
    return replace(result, top_two=tuple(top))


def asked(preset: str = "small", *prompt: str) -> OcrResult:
    return replace(eager(), request=OcrRequest(Path("page.png"), preset, *prompt))


def compared(*sides: OcrResult) -> ParityReport:
    a, b = (replace(side, request=replace(side.request, file=PageFile(1, "ab"))) for side in sides)
    return compare_results(a, b)


CUT = {"finish_reason": "length", "token_ids": tuple(range(9)), "token_texts": ()}
TABLE = [
    ("equal pages need no cause", make_result(markup(), "eager", attention="sdpa"), VENDOR, []),
    ("equal text", make_result(markup(), "eager", dtype="bfloat16"), VENDOR, []),
    ("words alone say nothing", eager(), VENDOR, []),
    ("n-gram size", eager(no_repeat_ngram_size=35), VENDOR, ["ngram"]),
    ("grid", eager(grid=(2, 2)), VENDOR, ["grid"]),
    ("dtype", eager(dtype="bfloat16"), VENDOR, ["dtype"]),
    ("attention", eager(attention="sdpa"), VENDOR, ["attention"]),
    ("rotary", eager(rotary_dtype="bfloat16"), VENDOR, ["rotary"]),
    ("rotary follows from dtype", eager(dtype="bfloat16", rotary_dtype="bfloat16"), VENDOR, ["dtype"]),
    ("grid of preset", replace(asked("base"), inputs=eager(grid=(2, 2)).inputs), VENDOR, ["preset"]),
    ("prompt ids", eager(prompt_ids=(0, 5, 5, 5, 8)), VENDOR, ["prompt"]),
    ("prompt", asked("small", "<image>\nFree OCR."), VENDOR, ["prompt"]),
    ("preset", asked("base"), VENDOR, ["preset"]),
    ("EXIF", replace(eager(), image_size=(800, 1000)), VENDOR, ["exif"]),
    ("length limit", replace(eager(max_new_tokens=9), **CUT), VENDOR, ["length"]),
    ("strong before weak", eager(no_repeat_ngram_size=35, dtype="bfloat16"), VENDOR, ["ngram", "dtype"]),
    # Ties come after settings. Where rounding does not explain it, no other order of sums does.
    ("both an ULP apart", eager(logits=TIE, dtype="bfloat16"), recorded(BF16, *TIE), ["tie"]),
    ("one side recorded", eager(logits=TIE, dtype="bfloat16"), BF16, ["tie"]),
    ("three logits apart", eager(logits=CLEAR, dtype="bfloat16"), recorded(BF16, 24.0, 23.9), ["not a tie"]),
    ("neither recorded", eager(dtype="bfloat16"), BF16, []),
    ("another attention", eager(logits=TIE, dtype="bfloat16", attention="sdpa"), BF16, ["attention", "tie"]),
    ("no tie, attention", eager(logits=CLEAR, dtype="bfloat16", attention="sdpa"), BF16, ["not a tie"]),
    # F3: a margin never speaks against another number type.
    ("dtype, far", eager(logits=CLEAR, dtype="bfloat16"), recorded(VENDOR, 24.0, 23.875), ["dtype"]),
    ("dtype, near", eager(logits=TIE), BF16, ["dtype", "tie"]),
    ("one dtype, far in it", eager(logits=TIE), VENDOR, ["not a tie"]),
    ("a type that is not known", eager(logits=TIE, dtype="int8"), VENDOR, ["dtype"]),
]  # fmt: skip


@pytest.mark.parametrize(("what", "a", "b", "causes"), TABLE, ids=[row[0] for row in TABLE])
def test_causes_in_one_order(what: str, a: OcrResult, b: OcrResult, causes: list[str]) -> None:
    assert [cause.name for cause in compared(a, b).causes] == causes


# --- margins ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("a", "b", "dtypes", "ulps", "tie"),
    [
        (TIE, (7.5, 7.5), "bfloat16 bfloat16", 1, True),
        (None, (24.0, 23.5), "bfloat16 bfloat16", 4, True),
        ((24.0, 23.75), (24.0, 23.625), "bfloat16 bfloat16", 5, False),
        # Rounding cannot turn a near tie on one side into a clear choice on the other.
        ((7.5, 7.5), (7.5, 4.5), "bfloat16 bfloat16", 96, False),
        # In float32 the same margins are far from a tie; with bfloat16 on a side its ULPs count.
        (TIE, None, "float32 float32", 65536, False),
        (TIE, (7.5, 7.5), "float32 bfloat16", 1, True),
        (TIE, None, "float16 float32", 8, False),
        ((0.0, 0.0), (0.0, 0.0), "bfloat16 bfloat16", 0, True),
    ],
)
def test_a_tie_is_a_change_within_four_ulps(
    a: tuple[float, float] | None, b: tuple[float, float] | None, dtypes: str, ulps: float, tie: bool
) -> None:
    tops = [None if logits is None else TopTwo((7, 8), logits) for logits in (a, b)]
    first, second = dtypes.split()
    found = Margins.of(*tops, first, second)
    assert found is not None and (found.ulps, found.tie) == (ulps, tie) and TIE_ULPS == 4
    assert Margins.of(*tops[::-1], first, second) == replace(found, a=found.b, b=found.a)
    margins = [top and top.margin for top in tops]
    document = json.loads(json.dumps(found.document(), allow_nan=False))
    assert [document[side] and document[side]["margin"] for side in "ab"] == margins


@pytest.mark.parametrize("step", [(1.0, 2.0), (float("nan"), 1.0), (float("inf"), 1.0), (1e300, 1.0)])
def test_a_step_without_a_margin_ends_the_record(step: tuple[float, float]) -> None:
    assert top_two_steps([1, 2, 3, 4, 1, 2], [2.0, 1.0, *step, 2.0, 1.0]) == (TopTwo((1, 2), (2.0, 1.0)),)
    with pytest.raises(ValueError):
        top_two_steps([1, 2, 3], [1.0, 0.5, 0.25])
