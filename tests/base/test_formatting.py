"""Numbers, amounts and times in words."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr_core.base.formatting import (
    NOT_MEASURED,
    amount,
    duration,
    percent,
    significant,
    speed_ratio,
)


@given(st.floats(min_value=1e-3, max_value=1e6))
def test_a_number_keeps_its_value_to_three_digits(value: float) -> None:
    assert math.isclose(float(significant(value).replace(",", "")), value, rel_tol=0.0051)
    assert "e" not in significant(value)


@pytest.mark.parametrize(
    ("ms", "text"),
    [(None, NOT_MEASURED), (math.nan, NOT_MEASURED), (0.42, "0.420 ms"), (999.4, "999 ms"),
     (999.6, "1.00 s"), (1180, "1.18 s"), (75_000, "75.0 s"), (100_000, "1 min 40 s"),
     (3_725_000, "1 h 02 min")],
)  # fmt: skip
def test_durations_change_unit_at_a_second_and_at_minutes(ms: float | None, text: str) -> None:
    assert duration(ms) == text
    assert percent(None) == speed_ratio(None, 3) == speed_ratio(3, None) == NOT_MEASURED  # never zero
    assert speed_ratio(math.nan, 3) == speed_ratio(3, math.nan) == significant(math.nan) == NOT_MEASURED


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
