"""Places, margins and ties by hand-made logits."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr_core.outputs.margins import TIE_ULPS, margin_words, margins, margins_row, place
from dsocr_core.outputs.parity import parity
from dsocr_core.parity_records import Margins
from dsocr_core.records import OcrResult, TopTwo, to_jsonable, top_two_steps
from tests.support.results import make_result

BF16 = ("bfloat16", "bfloat16")


def two(most: float, less: float) -> TopTwo:
    return TopTwo((7, 8), (most, less))


@given(st.floats(2.0**-100, 2.0**100, width=32))
def test_a_place_of_float32_is_numpys_spacing(logit: float) -> None:
    assert place(logit, "float32") == place(-logit, "float32") == float(np.spacing(np.float32(logit)))


@pytest.mark.parametrize(
    ("logit", "expected"),
    [(4.0, 2**-5), (7.96875, 2**-5), (8.0, 2**-4), (-24.0, 2**-3), (1.0, 2**-7), (0.0, 2.0**-133)],
)
def test_a_place_of_bfloat16(logit: float, expected: float) -> None:
    """Eight significant bits: from 4 to 8 numbers lie 1/32 apart."""
    assert place(logit, "bfloat16") == expected


@pytest.mark.parametrize(
    ("ours", "vendor", "dtypes", "places", "tie"),
    [
        (two(7.5, 7.46875), two(7.5, 7.5), BF16, 1, True),
        (two(7.5, 7.46875), None, BF16, 1, True),
        (None, two(24.0, 23.5), BF16, 4, True),
        (two(24.0, 23.75), two(24.0, 23.625), BF16, 5, False),
        (two(24.0, 21.0), two(24.0, 21.0), BF16, 48, False),
        # Rounding cannot turn a near tie on one side into a clear choice on the other.
        (two(7.5, 7.5), two(7.5, 4.5), BF16, 96, False),
        # In float32 the same margins are far from a tie; beside bfloat16 its places count.
        (two(7.5, 7.46875), None, ("float32", "float32"), 65536, False),
        (two(7.5, 7.46875), two(7.5, 7.5), ("float32", "bfloat16"), 1, True),
        (two(0.0, 0.0), two(0.0, 0.0), BF16, 0, True),
    ],
)
def test_a_margin_within_rounding_is_a_tie(
    ours: TopTwo | None, vendor: TopTwo | None, dtypes: tuple[str, str], places: float, tie: bool
) -> None:
    found = margins(ours, vendor, dtypes)
    assert found is not None
    assert (found.places, found.tie) == (places, tie)
    assert margins(vendor, ours, dtypes) == replace(found, a=vendor, b=ours)


def test_nothing_recorded_says_nothing() -> None:
    assert margins(None, None, BF16) is None
    assert margins(two(1.0, 0.5), None, ("int8", None)) is None


FINITE = st.floats(-3e38, 3e38)


@given(st.lists(st.tuples(FINITE, FINITE), max_size=6), st.sampled_from(["bfloat16", "float32"]))
def test_margins_are_not_negative_and_can_be_written(steps: list[tuple[float, float]], dtype: str) -> None:
    ordered = [sorted(step, reverse=True) for step in steps]
    tops = top_two_steps([1, 2] * len(steps), [logit for step in ordered for logit in step])
    assert len(tops) == len(steps)
    for top in tops:
        found = margins(top, tops[0], (dtype, dtype))
        assert found is not None and top.margin >= 0 and found.places >= 0
        assert found.tie == (found.places <= TIE_ULPS)
        json.dumps(margins_row(found), allow_nan=False)


@pytest.mark.parametrize("step", [(1.0, 2.0), (float("nan"), 1.0), (float("inf"), 1.0), (1e300, 1.0)])
def test_a_step_without_a_margin_ends_the_record(step: tuple[float, float]) -> None:
    assert top_two_steps([1, 2, 3, 4, 1, 2], [2.0, 1.0, *step, 2.0, 1.0]) == (TopTwo((1, 2), (2.0, 1.0)),)
    with pytest.raises(ValueError, match="no pairs"):
        top_two_steps([1, 2, 3], [1.0, 0.5, 0.25])


# --- in a parity report ---------------------------------------------------------------------------


def result(text: str, margin: float, backend: str) -> OcrResult:
    top = tuple(TopTwo((ord(letter), 0), (7.5, 7.5 - margin)) for letter in text)
    return replace(make_result(text, backend, dtype="bfloat16"), top_two=top)  # type: ignore[arg-type]


def test_the_report_has_the_margins_of_the_first_divergence() -> None:
    found = parity(result("abcd", 0.03125, "ours"), result("abXd", 0.0, "vendor")).first_divergence
    assert found is not None and found.margins is not None
    assert found.margins == Margins(
        TopTwo((ord("c"), 0), (7.5, 7.46875)), TopTwo((ord("X"), 0), (7.5, 7.5)), "bfloat16", 1.0, True
    )
    assert to_jsonable(found)["margins"]["tie"] is True


def test_a_backend_that_has_ended_chose_nothing() -> None:
    found = parity(result("abc", 0.0, "ours"), result("ab", 0.0, "vendor")).first_divergence
    assert found is not None and found.margins is None


def test_a_backend_that_did_not_record_them() -> None:
    plain = make_result("abXd", "vendor", dtype="bfloat16")
    found = parity(result("abcd", 3.0, "ours"), plain).first_divergence
    assert found is not None and found.margins is not None
    assert (found.margins.b, found.margins.tie, found.margins.places) == (None, False, 96)
    nothing = parity(make_result("abcd"), plain).first_divergence
    assert nothing is not None and nothing.margins is None


def test_words_and_values() -> None:
    near = margins(two(7.5, 7.46875), two(7.5, 7.5), BF16)
    assert near is not None
    assert margin_words(near) == "a tie: margin 0.03125 of ours and 0 of vendor, 1 place of bfloat16"
    assert margins_row(near) == {
        "ours": {"ids": [7, 8], "logits": [7.5, 7.46875], "margin": 0.03125},
        "vendor": {"ids": [7, 8], "logits": [7.5, 7.5], "margin": 0.0},
        "dtype": "bfloat16", "places": 1.0, "tie": True,
    }  # fmt: skip
    far = margins(two(24.0, 21.0), None, BF16)
    assert far is not None
    assert margin_words(far, ("A", "B")) == (
        "not a tie: margin 3 of A and not recorded of B, at least 24 places of bfloat16"
    )
    assert (margins_row(far, ("a", "b")) or {})["b"] is None and margins_row(None) is None
