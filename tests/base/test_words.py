"""Numbers, amounts and times in words."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr_core.base.words import (
    NOT_MEASURED,
    amount,
    duration,
    moment,
    percent,
    plural,
    scale_of,
    signed,
    significant,
    speed_ratio,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (1.234, "1.23"), (12.34, "12.3"), (123.4, "123"), (1234.5, "1,234"), (0.1234, "0.123"),
     (0.01234, "0.0123"), (0.001234, "0.00123"), (0.0001234, "0.000123"), (-2.5, "-2.50"), (9.999, "10.0")],
)  # fmt: skip
def test_three_significant_digits(value: float, text: str) -> None:
    assert significant(value) == text


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_a_number_keeps_its_value_to_three_digits(value: float) -> None:
    assert math.isclose(float(significant(value).replace(",", "")), value, rel_tol=0.0051)
    assert "e" not in significant(value)


@pytest.mark.parametrize(
    ("ms", "text"),
    [(None, NOT_MEASURED), (0.42, "0.420 ms"), (999.4, "999 ms"), (999.6, "1.00 s"), (1180, "1.18 s"),
     (75_000, "75.0 s"), (100_000, "1 min 40 s"), (3_725_000, "1 h 02 min")],
)  # fmt: skip
def test_durations_change_unit_at_a_second_and_at_minutes(ms: float | None, text: str) -> None:
    assert duration(ms) == text


def test_a_missing_measurement_is_never_zero() -> None:
    assert duration(None) == percent(None) == speed_ratio(None, 3) == speed_ratio(3, None) == NOT_MEASURED


@pytest.mark.parametrize(
    ("ms", "other", "text"),
    [(1000, 1310, "1.31x faster"), (1310, 1000, "1.31x slower"), (1000, 1004, "as fast")],
)
def test_ratios_say_faster_or_slower(ms: float, other: float, text: str) -> None:
    assert speed_ratio(ms, other) == text


def test_counts_moments_and_plurals_are_written_out() -> None:
    assert plural(1, "box", "boxes") == "1 box"
    assert plural(1200, "box", "boxes") == "1,200 boxes"
    assert moment("2026-11-21T10:31:00+00:00") == "2026-11-21 10:31 UTC"
    assert moment("2026-11-21T11:31:00+01:00") == "2026-11-21 10:31 UTC"
    assert moment("yesterday") == "yesterday"


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [(976_909_172_736, "FLOP", "977 GFLOP"), (999.6e9, "B", "1.00 TB"), (999.4e9, "B", "999 GB"),
     (12, "B", "12.0 B"), (1.2e15, "FLOP/s", "1.20 PFLOP/s"), (0.5, "FLOP/B", "0.500 FLOP/B"),
     (1.25e-3, "s", "1.25 ms"), (3e-7, "s", "0.300 µs"), (0.99949, "s", "999 ms"), (0.9996, "s", "1.00 s"),
     (120, "s", "120 s"), (0, "s", "0 s"), (7e9, "", "7.00 G"), (None, "s", "not measured"),
     (math.nan, "B", "not measured")],
)  # fmt: skip
def test_amounts_have_a_unit_and_three_digits(value: float | None, unit: str, words: str) -> None:
    assert amount(value, unit) == words


def test_differences_have_a_sign_and_an_exact_zero_has_none() -> None:
    assert signed(5e9, "FLOP") == "+5.00 GFLOP"
    assert signed(-5e9, "FLOP") == "−5.00 GFLOP"
    assert signed(0, "FLOP") == "0 FLOP"
    assert percent(-2.5) == "−2.50 %"
    assert percent(math.nan, "–") == "–"
    assert scale_of(0, "s") == (1e-6, "µs")
