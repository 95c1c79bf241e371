"""The text rule: spelling of markup is no difference; every other change is one, line ends of lists too."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr_core.reading.parity import compare_results
from dsocr_core.reading.parity_records import Tolerance
from dsocr_core.reading.text_diff import TEXT_LIMIT, Change, text_changes, text_difference
from tests.support.results import make_result

FILE = Path(__file__).with_name("careful_reader.txt")
_CHARACTERS = {
    "<NBSP>": "\u00a0", "<NARROW>": "\u202f", "<THIN>": "\u2009", "<SHY>": "\u00ad", "<ZERO>": "\u200b",
    "<WIDE>": "\u3000", "<RLM>": "\u200f", "<TAB>": "\t", "<ACUTE>": "\u0301",
}  # fmt: skip
_FALSE_ALARMS = 24
"""Pairs of the file that are another spelling and are called a difference: numbers grouped another way, LaTeX
environments and fractions, bold and underlined lines as headings, nested lists of HTML."""


def pairs(section: str) -> list[tuple[str, str]]:
    """The pairs of a section of the file, A and B."""
    text = FILE.read_text(encoding="utf-8").partition(f"== {section}\n")[2].partition("\n== ")[0]
    found = []
    for line in text.splitlines():
        if line and not line.startswith("# "):
            for name, character in _CHARACTERS.items():
                line = line.replace(name, character)
            a, _, b = line.replace("\\n", "\n").partition(" || ")
            found.append((a, b))
    return found


def verdict(a: str, b: str, rate: float = 0.0) -> str:
    return compare_results(make_result(a), make_result(b), Tolerance(character_error_rate=rate)).verdict


def test_what_a_reader_calls_changed_differs() -> None:
    assert len(pairs("differs")) == 317
    for a, b in pairs("differs"):
        for x, y in ((a, b), (b, a)):
            assert text_changes(x, y), (x, y)
            assert verdict(x, y) == "differs"
    in_box = "<|ref|>text<|/ref|><|det|>[[10, 10, 900, 900]]<|/det|>\n"
    assert all(verdict(in_box + a, in_box + b) == "differs" for a, b in pairs("differs"))


def test_spelling_of_markup_is_within_tolerance() -> None:
    assert len(pairs("spelt")) == 236
    alarms = [(a, b) for a, b in pairs("spelt") if text_changes(a, b) or text_changes(b, a)]
    assert len(alarms) <= _FALSE_ALARMS, alarms
    for a, b in pairs("spelt"):
        if (a, b) not in alarms:
            report = compare_results(make_result(a), make_result(b))
            assert report.verdict == "within_tolerance"
            assert [item.kind for item in report.differences] == ["spelling"]


LINE_ENDS = [
    ("- offers\n- support\n- training", "- offers- support- training"),
    ("1. first step\n2. second step\n3. third", "1. first step2. second step3. third"),
    ("# Title\n\nOne.\n\nTwo.", "# Title One. Two."),
    ("## A\n## B", "## A B"),
    ("<ul><li>a</li><li>b</li></ul>", "a b"),
    ("- a\n  - b\n- c", "- a\n- b\n- c"),
]


TABLE = "<table><tr><td>2023</td><td>5</td></tr></table>"


@pytest.mark.parametrize(("a", "b"), [*LINE_ENDS, (TABLE, "2023 5")])
def test_a_list_or_table_run_together_is_a_difference_of_its_own_kind(a: str, b: str) -> None:
    kind = "rows or cells of a table" if a == TABLE else "line ends of lists or headings"
    for x, y in ((a, b), (b, a)):
        (difference,) = compare_results(make_result(x), make_result(y)).differences
        assert difference.sentence.startswith(f"{kind} differ: ")


def test_changes_with_digits_come_first_and_are_named() -> None:
    changes = text_changes("the bayer pays 21-30 euros", "the buyer pays 21:30 euros")
    assert [change.words for change in changes] == ["21-30 -> 21:30", "bayer -> buyer"]
    (reason,) = compare_results(make_result("pays 21-30"), make_result("pays 21:30")).reasons
    assert reason == "text differs: 21-30 -> 21:30"
    assert Change("", "").words == "(nothing) -> (nothing)"
    assert [change.words for change in text_changes("in May", "in may")] == ["May -> may"]


HOSTILE = (
    " ", "|", "$", "<a ", "# ", "{", r"\frac", "* ", "<sup>", "- ", "[a", ". ", "1 ", "\n", "<td colspan ",
)  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_hostile_texts_take_no_long_time(unit: str) -> None:
    """Each expression is linear: a text of the limit's length takes less than a second of the processor."""
    text = unit * (TEXT_LIMIT // len(unit))
    started = time.process_time()
    text_changes(text, text + "x")
    assert time.process_time() - started < 1.5


# --- both texts as runs ---------------------------------------------------------------------------


@given(st.text(max_size=80), st.text(max_size=80))
def test_runs_give_both_texts_back(a: str, b: str) -> None:
    assert ["".join(text for text, _ in side) for side in text_difference(a, b)] == [a, b]


@pytest.mark.parametrize(
    ("a", "b", "left", "right"),
    [
        ("340 g", "340 a,", [("340 ", "same"), ("g", "letter")], [("340 ", "same"), ("a,", "letter")]),
        ("by 1,234.00 now", "by 7,234.00 now",
         [("by ", "same"), ("1", "letter"), (",234.00 now", "same")],
         [("by ", "same"), ("7", "letter"), (",234.00 now", "same")]),
        ("", "more", [], [("more", "letter")]),
        ("二月四日", "二月五日", [("二月", "same"), ("四", "letter"), ("日", "same")],
         [("二月", "same"), ("五", "letter"), ("日", "same")]),
    ],
)  # fmt: skip
def test_a_difference_is_one_of_words_digits_and_signs(a: str, b: str, left: list, right: list) -> None:
    assert text_difference(a, b) == (left, right)
