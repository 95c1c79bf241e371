"""Repetition loops, against a slow reference."""

from __future__ import annotations

import random
import time

import pytest

from dsocr_core.reading.loops import find_loop


@pytest.mark.parametrize(
    ("unit", "count", "found"),
    [
        ("the same line again\n", 4, True),
        ("the same line again, as long as a line is\n", 3, False),  # twice and once more may be a form
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


def test_hostile_texts_take_no_time() -> None:
    start = time.process_time()
    for text in ("a" * 1_000_000, "ab" * 500_000, "".join(map(chr, range(32, 50_000))) * 3, "\ud800" * 1000):
        find_loop(text)
    assert time.process_time() - start < 3


@pytest.mark.parametrize(
    ("text", "turns"),
    [
        ("</br>\n" * 300, 300), ("\t" * 3000, 3000), ("{," * 1000, 1000), ("<td></td>" * 700, 700),
        ("| " * 700, 700), ("Title" + " " * 3000, 3000), ("\\\\ " * 300, 300),
    ],
)  # fmt: skip
def test_loops_of_signs_are_found(text: str, turns: int) -> None:
    loop = find_loop(f"A page begins here.\n{text}")
    assert loop is not None and turns - 2 <= loop.count <= turns


@pytest.mark.parametrize(
    "text",
    [
        "." * 400, "Chapter one " + ". " * 200 + "7\n", ("_" * 80 + "\n") * 30, "-" * 300,
        "<tr>" + "<td></td>" * 12 + "</tr>", ("<tr>" + "<td></td>" * 12 + "</tr>") * 40, "|---" * 20,
        "".join(f"<tr><td>{n}</td><td>{n * n}</td><td>Yes</td></tr>" for n in range(60)),
        "".join(f"<tr><td>Nights in the hotel</td><td>{n * 37 % 101}.50</td></tr>" for n in range(60)),
        "".join(f"{n} + {n + 3} = ____\n" for n in range(60)),
        "".join(f"<|ref|>text<|/ref|><|det|>[[{n}, 2, 3, 4]]<|/det|>\nNo\n\n" for n in range(30)),
    ],
)  # fmt: skip
def test_leaders_rules_and_tables_of_documents_are_no_loop(text: str) -> None:
    assert find_loop(text) is None
