"""Repetition, order and names, against slow references."""

from __future__ import annotations

import itertools
import random
import time

import pytest

from dsocr_core.parity_records import BoxPair
from dsocr_core.review.keys import ReviewError, parse_key, review_key
from dsocr_core.review.order import inversions, longest_increasing, reading_order
from dsocr_core.review.repetition import find_loop


@pytest.mark.parametrize(
    ("unit", "count", "found"),
    [
        ("the same line again\n", 4, True),
        ("the same line again\n", 3, False),  # twice and once more may be a form
        ("no. ", 30, True),
        ("ab", 17, False),  # below 36 characters
        ("ab", 18, True),
        ("x", 40, True),
        (".", 400, False),  # a dot leader
        ("| --- ", 60, False),  # a rule
        ("<td></td>", 60, False),  # empty cells
        ("<td>0</td>", 60, True),
        ("ein Satz, der länger ist als die Grenze von achtzig Zeichen, mit Umlauten und 测试. ", 4, True),
    ],
)
def test_a_loop_is_found_where_it_begins_and_ends(unit: str, count: int, found: bool) -> None:
    chance = random.Random(5)
    before, after = ("".join(chance.choices("abcdefghij klmnop", k=300)) for _ in range(2))
    loop = find_loop(f"{before}#{unit * count}#{after}")
    assert (loop is not None) == found
    if loop is not None:
        assert loop.period == len(unit)
        assert loop.count in (count - 1, count)
        assert abs(loop.start - len(before) - 1) < len(unit)


def test_a_loop_is_found_as_a_slow_search_finds_it() -> None:
    chance = random.Random(0)
    for _ in range(40):
        unit = "".join(chance.choices("abc ", k=chance.randint(10, 40))) + "z"
        text = "".join(chance.choices("abcdefgh ", k=200)) + unit * chance.randint(5, 12)
        loop = find_loop(text)
        assert loop is not None
        best = max(
            (length * (1 + run // length), -length)
            for length in range(1, len(text) // 4 + 1)
            for run in [_longest_equal(text, length)]
            if run >= 3 * length
        )
        assert (loop.count * loop.period, -loop.period) == best


def _longest_equal(text: str, distance: int) -> int:
    longest = run = 0
    for a, b in zip(text, text[distance:], strict=False):
        run = run + 1 if a == b else 0
        longest = max(longest, run)
    return longest


def test_hostile_texts_take_no_time() -> None:
    start = time.process_time()
    for text in ("a" * 1_000_000, "ab" * 500_000, "".join(map(chr, range(32, 50_000))) * 3, "\ud800" * 1000):
        find_loop(text)
    assert time.process_time() - start < 3


def test_order_against_every_permutation() -> None:
    for values in itertools.permutations(range(6)):
        pairs = itertools.combinations(values, 2)
        assert inversions(values) == sum(a > b for a, b in pairs)
        places = longest_increasing(values)
        chain = [values[place] for place in places]
        assert chain == sorted(chain) and places == sorted(places)
        longest = max(
            size for size in range(1, 7) for part in itertools.combinations(values, size)
            if list(part) == sorted(part)
        )  # fmt: skip
        assert len(chain) == longest


def test_no_pairs_have_no_order() -> None:
    lone = BoxPair("only_a", None, None, None, None)
    assert reading_order([lone]).normalised == 0
    assert longest_increasing([]) == []


def test_keys_lead_back() -> None:
    for parts in (
        ("a", None, None, None), ("a.b", "c..d", None, None), ("a", "b", "eager", "vendor"),
        ("a", "a", "vendor", "eager"), ("a", "b", None, "vendor"),
    ):  # fmt: skip
        assert parse_key(review_key(*parts)) == parts
    assert review_key("a", "a") == "a"


@pytest.mark.parametrize("key", ["", "~", "a~b~c", "../x", "a:", "a b", "a~", "x" * 300, "a:b:c"])
def test_other_keys_are_refused(key: str) -> None:
    with pytest.raises(ReviewError, match="names no review"):
        parse_key(key)
