"""ULPs, margins and ties by hand-made logits."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr_core.reading.margins import TIE_ULPS, margins, ulp
from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.records import OcrResult, TopTwo, top_two_steps
from tests.support.results import make_result

BF16 = ("bfloat16", "bfloat16")


def two(most: float, less: float) -> TopTwo:
    return TopTwo((7, 8), (most, less))


@given(st.floats(2.0**-100, 2.0**100, width=32))
def test_an_ulp_of_float32_is_numpys_spacing(logit: float) -> None:
    assert ulp(logit, "float32") == ulp(-logit, "float32") == float(np.spacing(np.float32(logit)))


@given(st.floats(-64992, 64992, width=16))
def test_an_ulp_of_float16_is_numpys_spacing(logit: float) -> None:
    assert ulp(logit, "float16") == float(np.spacing(np.float16(abs(logit))))
    assert margins(two(logit, logit), None, ("float16", "float32")) is not None


@pytest.mark.parametrize(
    ("logit", "expected"),
    [(4.0, 2**-5), (7.96875, 2**-5), (8.0, 2**-4), (-24.0, 2**-3), (1.0, 2**-7), (0.0, 2.0**-133)],
)
def test_an_ulp_of_bfloat16_by_hand(logit: float, expected: float) -> None:
    """Eight significant bits: from 4 to 8 numbers lie 1/32 apart."""
    assert ulp(logit, "bfloat16") == expected


@pytest.mark.parametrize(
    ("a", "b", "dtypes", "ulps", "tie"),
    [
        (two(7.5, 7.46875), two(7.5, 7.5), BF16, 1, True),
        (two(7.5, 7.46875), None, BF16, 1, True),
        (None, two(24.0, 23.5), BF16, 4, True),
        (two(24.0, 23.75), two(24.0, 23.625), BF16, 5, False),
        (two(24.0, 21.0), two(24.0, 21.0), BF16, 48, False),
        # Rounding cannot turn a near tie on one side into a clear choice on the other.
        (two(7.5, 7.5), two(7.5, 4.5), BF16, 96, False),
        # In float32 the same margins are far from a tie; beside bfloat16 its ULPs count.
        (two(7.5, 7.46875), None, ("float32", "float32"), 65536, False),
        (two(7.5, 7.46875), two(7.5, 7.5), ("float32", "bfloat16"), 1, True),
        (two(0.0, 0.0), two(0.0, 0.0), BF16, 0, True),
    ],
)
def test_a_tie_is_a_change_within_four_ulps(
    a: TopTwo | None, b: TopTwo | None, dtypes: tuple[str, str], ulps: float, tie: bool
) -> None:
    found = margins(a, b, dtypes)
    assert found is not None
    assert (found.ulps, found.tie) == (ulps, tie)
    assert margins(b, a, dtypes) == replace(found, a=b, b=a)


FINITE = st.floats(-3e38, 3e38)


@given(st.lists(st.tuples(FINITE, FINITE), max_size=6), st.sampled_from(["bfloat16", "float16", "float32"]))
def test_margins_are_not_negative_and_can_be_written(steps: list[tuple[float, float]], dtype: str) -> None:
    ordered = [sorted(step, reverse=True) for step in steps]
    tops = top_two_steps([1, 2] * len(steps), [logit for step in ordered for logit in step])
    assert len(tops) == len(steps)
    for top in tops:
        found = margins(top, tops[0], (dtype, dtype))
        assert found is not None and top.margin >= 0 and found.ulps >= 0
        assert found.tie == (found.ulps <= TIE_ULPS)
        json.dumps(found.document(), allow_nan=False)


@pytest.mark.parametrize("step", [(1.0, 2.0), (float("nan"), 1.0), (float("inf"), 1.0), (1e300, 1.0)])
def test_a_step_without_a_margin_ends_the_record(step: tuple[float, float]) -> None:
    assert top_two_steps([1, 2, 3, 4, 1, 2], [2.0, 1.0, *step, 2.0, 1.0]) == (TopTwo((1, 2), (2.0, 1.0)),)
    with pytest.raises(ValueError, match="no pairs"):
        top_two_steps([1, 2, 3], [1.0, 0.5, 0.25])


# --- in a parity report ---------------------------------------------------------------------------


def result(text: str, margin: float, backend: str) -> OcrResult:
    top = tuple(TopTwo((ord(letter), 0), (7.5, 7.5 - margin)) for letter in text)
    return replace(make_result(text, backend, dtype="bfloat16"), top_two=top)  # type: ignore[arg-type]


def test_one_sides_logits_are_enough_for_margins() -> None:
    plain = make_result("abXd", "vendor", dtype="bfloat16")
    found = compare_results(result("abcd", 3.0, "eager"), plain).first_divergence
    assert found is not None and found.margins is not None
    assert (found.margins.b, found.margins.tie, found.margins.ulps) == (None, False, 96)
    nothing = compare_results(make_result("abcd"), plain).first_divergence
    assert nothing is not None and nothing.margins is None
