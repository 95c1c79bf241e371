"""Intervals against a plain bootstrap and against truth; change points against all segmentations."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest

from dsocr_core.history.statistics import (
    FEWEST_PAGES,
    _counted_medians,
    _draws,
    _segment,
    change_points,
    compare_stages,
    ratio_of_medians,
    verdict,
)


def made_up(seed: int, n: int, ratio: float, noise: float = 0.1) -> tuple[np.ndarray, np.ndarray]:
    """Times of pages that differ much from each other and alike in both runs."""
    random = np.random.default_rng(seed)
    a = random.lognormal(3, 0.8, n)
    return a, a * ratio * random.lognormal(0, noise, n)


def test_a_ratio_by_hand() -> None:
    found = ratio_of_medians([10, 20, 30, 40, 50], [5, 10, 15, 20, 25])
    assert (found.n, found.median_a, found.median_b, found.ratio) == (5, 30.0, 15.0, 0.5)
    # Every page is twice as fast, so every resample says so.
    assert (found.low, found.high, found.verdict) == (0.5, 0.5, "faster")


@pytest.mark.parametrize("n", [7, 8])
def test_medians_by_counting_are_medians(n: int) -> None:
    values = np.random.default_rng(n).normal(size=n)
    counts = _draws(n, 200, 5)
    assert (counts.sum(axis=1) == n).all()
    plain = [np.median(np.repeat(values, row)) for row in counts]
    np.testing.assert_allclose(_counted_medians(values, counts), plain)


def test_the_interval_is_that_of_a_plain_bootstrap() -> None:
    a, b = made_up(1, 40, 1.1)
    random = np.random.default_rng(99)
    ratios = []
    for _ in range(20_000):
        drawn = random.integers(0, 40, 40)
        ratios.append(np.median(b[drawn]) / np.median(a[drawn]))
    found = ratio_of_medians(a, b, resamples=20_000)
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(ratios, [0.025, 0.975])), rel=0.02)


@pytest.mark.parametrize("alike", [True, False])
def test_the_interval_holds_the_truth_at_least_as_often_as_it_says(alike: bool) -> None:
    """Of pages alike in both runs it is on the safe side: bootstrapped medians jump from page to page."""
    held = 0
    for seed in range(300):
        a, b = made_up(seed, 50, 1.3)
        if not alike:
            b = made_up(seed + 1000, 50, 1.3)[1]
        found = ratio_of_medians(a, b, resamples=500)
        held += found.low <= 1.3 <= found.high
    assert held / 300 >= 0.93
    if not alike:
        assert held / 300 <= 0.985


def test_equal_runs_are_seldom_called_different() -> None:
    verdicts = [ratio_of_medians(*made_up(seed, 30, 1.0), resamples=500).verdict for seed in range(200)]
    assert verdicts.count("within") + verdicts.count("inconclusive") >= 190


def test_real_differences_are_called() -> None:
    assert ratio_of_medians(*made_up(3, 200, 0.8)).verdict == "faster"
    assert ratio_of_medians(*made_up(3, 200, 1.25)).verdict == "slower"


def test_the_same_question_has_the_same_answer() -> None:
    a, b = made_up(4, 60, 1.1)
    assert ratio_of_medians(a, b) == ratio_of_medians(a, b)
    assert ratio_of_medians(a, b, seed=1) != ratio_of_medians(a, b, seed=2)


@pytest.mark.parametrize(
    "low, high, expected",
    [
        (0.5, 0.97, "faster"), (0.5, 0.985, "inconclusive"), (0.9, 1.1, "inconclusive"),
        (1.01, 1.2, "inconclusive"), (1.03, 1.2, "slower"), (1.001, 1.019, "within"),
        (0.99, 1.021, "inconclusive"), (math.nan, math.nan, "inconclusive"),
    ],
)  # fmt: skip
def test_the_whole_interval_has_to_leave_the_band(low: float, high: float, expected: str) -> None:
    assert verdict(low, high) == expected


def test_few_pages_prove_nothing() -> None:
    found = ratio_of_medians([1.0] * (FEWEST_PAGES - 1), [9.0] * (FEWEST_PAGES - 1))
    assert found.verdict == "inconclusive" and math.isnan(found.low) and found.ratio == 9.0
    assert ratio_of_medians([0.0] * 9, [1.0] * 9).verdict == "inconclusive"


@pytest.mark.parametrize("a, b", [([], []), ([1.0], [1.0, 2.0]), ([math.nan], [1.0]), ([1.0], [math.inf])])
def test_what_is_no_pairs_is_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError):
        ratio_of_medians(a, b)


def test_every_stage_of_two_runs() -> None:
    rows = [("sam", a, b) for a, b in zip(*made_up(6, 30, 0.7), strict=True)]
    rows += [("decode", a, a) for a, _ in zip(*made_up(7, 30, 1.0), strict=True)]
    frame = pd.DataFrame(rows, columns=["stage", "a_ms", "b_ms"])
    found = compare_stages(frame).set_index("stage")
    assert found["verdict"].to_dict() == {"decode": "within", "sam": "faster"}
    assert found.loc["decode", ["low", "ratio", "high"]].tolist() == [1.0, 1.0, 1.0]
    assert compare_stages(frame.iloc[:0]).columns.tolist()[:2] == ["stage", "n"]


# --- change points ------------------------------------------------------------------------------


def cost(x: np.ndarray, starts: tuple[int, ...], price: float) -> float:
    parts = np.split(x, starts)
    return sum(((part - part.mean()) ** 2).sum() for part in parts) + price * len(starts)


@pytest.mark.parametrize("seed", range(20))
def test_no_other_segmentation_is_better(seed: int) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=11) + np.repeat([0.0, 2.0, -1.0], [4, 3, 4]) * random.uniform(0, 2)
    price = 1.5
    legal = [
        starts
        for count in range(4)
        for starts in itertools.combinations(range(1, 11), count)
        if all(len(part) >= 2 for part in np.split(x, starts))
    ]
    best = min(legal, key=lambda starts: cost(x, starts, price))
    assert cost(x, tuple(_segment(x, price, 2)), price) == pytest.approx(cost(x, best, price))


def test_levels_are_found_where_they_begin() -> None:
    random = np.random.default_rng(1)
    levels = np.repeat([100.0, 80.0, 120.0], [20, 15, 25]) * random.lognormal(0, 0.03, 60)
    assert change_points(levels) == [20, 35]
    assert change_points(levels * 1000) == [20, 35]  # in whatever unit


def test_noise_alone_has_no_levels() -> None:
    found = [change_points(np.random.default_rng(seed).lognormal(3, 0.1, 40)) for seed in range(200)]
    assert sum(map(bool, found)) <= 10


@pytest.mark.parametrize("times", [0.1, 0.5, 1.5, 3.0, 100.0])
@pytest.mark.parametrize("place", [0, 1, 12, 28, 29])
def test_a_single_run_that_is_off_is_no_level(times: float, place: int) -> None:
    values = np.random.default_rng(2).lognormal(3, 0.05, 30)
    values[place] *= times
    assert change_points(values) == []


def test_two_runs_that_are_off_are_no_level_but_three_are() -> None:
    values = np.random.default_rng(2).lognormal(3, 0.05, 30)
    values[[12, 13]] *= 2
    assert change_points(values) == []
    values[14] *= 2
    assert change_points(values) == [12, 15]


def test_runs_that_are_off_hide_no_change_of_level() -> None:
    values = np.repeat([100.0, 130.0], 15) * np.random.default_rng(3).lognormal(0, 0.02, 30)
    values[[3, 14, 22]] *= [4.0, 0.2, 9.0]
    assert change_points(values) in ([14], [15])  # the run before the change is off itself


def test_gaps_keep_their_places() -> None:
    values = np.repeat([10.0, 20.0], 10)
    values[[2, 11]] = np.nan
    assert change_points(values) == [10]
    assert change_points([10.0] * 6 + [20.0] * 6) == [6]
