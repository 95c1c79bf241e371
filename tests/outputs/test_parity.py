"""Parity reports of results made by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import Levenshtein

from dsocr_core.outputs import parity as parity_module
from dsocr_core.outputs.parity import character_error_rate, parity
from dsocr_core.parity_records import ParityReport
from tests.support.results import make_result


def page(*boxes: tuple[str, int, str]) -> str:
    """Text of blocks (label, top, text), each 500 wide and 50 high."""
    return "".join(
        f"<|ref|>{label}<|/ref|><|det|>[[100, {top}, 600, {top + 50}]]<|/det|>\n{text}\n"
        for label, top, text in boxes
    )


BLOCKS = (("title", 50, "Head"), ("text", 150, "One"), ("text", 250, "Two"), ("table", 350, "<td>3</td>"))


def compare(ours: str, vendor: str) -> ParityReport:
    return parity(make_result(ours), make_result(vendor, backend="vendor"))


def test_equal_results_pass() -> None:
    report = compare(page(*BLOCKS), page(*BLOCKS))
    assert report.verdict == "pass" and report.reasons == ()
    assert report.tokens_equal and report.first_divergence is None
    assert (report.boxes_a, report.boxes_b, report.boxes_matched) == (4, 4, 4)
    assert report.max_coordinate_difference_percent == 0 == report.mean_coordinate_difference_percent
    assert report.character_error_rate == 0
    assert report.input_parity


def test_without_boxes_the_text_decides() -> None:
    report = compare("plain text", "plain test")
    assert report.verdict == "fail"
    assert report.reasons == ("no boxes, and the texts differ by 10.0%: at most 2%",)
    assert compare("a" * 98, "a" * 100).verdict == "pass"
    assert compare("", "").verdict == "pass"


def test_no_boxes_measure_nothing() -> None:
    report = compare("plain text", "plain test")
    assert report.max_coordinate_difference_percent is None
    assert report.mean_coordinate_difference_percent is None
    assert report.character_error_rate == pytest.approx(0.1)
    assert report.first_divergence is not None and report.first_divergence.box_index is None


def test_one_box_more_or_less_passes_two_fail() -> None:
    assert compare(page(*BLOCKS), page(*BLOCKS[:3])).verdict == "pass"
    assert compare(page(*BLOCKS[:3]), page(*BLOCKS)).verdict == "pass"
    report = compare(page(*BLOCKS), page(*BLOCKS[:2]))
    assert report.verdict == "fail"
    assert report.reasons == ("4 boxes against 2: at most 1 may differ",)


def test_as_many_boxes_elsewhere_fail() -> None:
    moved = [(label, top + 500, text) for label, top, text in BLOCKS]
    report = compare(page(*BLOCKS), page(*moved))
    assert report.verdict == "fail" and report.boxes_matched == 0
    assert "8 boxes have no partner" in report.reasons[0]


def test_other_labels_count_as_other_boxes() -> None:
    one = [("text", *BLOCKS[0][1:]), *BLOCKS[1:]]
    assert compare(page(*one), page(*BLOCKS)).verdict == "pass"
    all_other = [("other", *block[1:]) for block in BLOCKS]
    report = compare(page(*all_other), page(*BLOCKS))
    assert report.verdict == "fail" and "4 another label" in report.reasons[0]


@pytest.mark.parametrize(("shift", "verdict"), [(19, "pass"), (20, "fail")])
def test_a_box_may_move_by_two_percent_of_the_side(shift: int, verdict: str) -> None:
    """2 percent of 999 are 19.98."""
    moved = [BLOCKS[0], ("text", BLOCKS[1][1] + shift, "One"), *BLOCKS[2:]]
    report = compare(page(*moved), page(*BLOCKS))
    assert report.verdict == verdict
    assert report.max_coordinate_difference_percent == pytest.approx(100 * shift / 999)
    # Top and bottom of one of four boxes are off.
    assert report.mean_coordinate_difference_percent == pytest.approx(100 * shift / 999 * 2 / 16)
    assert len(report.reasons) == (verdict == "fail")


def test_first_divergence_by_hand() -> None:
    ours, vendor = page(*BLOCKS), page(*BLOCKS).replace("Two", "Tvo")
    report = compare(ours, vendor)
    assert not report.tokens_equal
    divergence = report.first_divergence
    assert divergence is not None
    assert divergence.index == ours.index("Two") + 1
    assert (divergence.text_a, divergence.text_b) == ("w", "v")
    assert divergence.context.endswith("<|/det|>\nT")
    assert divergence.box_index == 2


def test_divergence_at_an_end() -> None:
    divergence = compare("abc", "abcd").first_divergence
    assert divergence is not None
    assert (divergence.index, divergence.text_a, divergence.text_b) == (3, "(ended)", "d")
    divergence = compare("abc", "").first_divergence
    assert divergence is not None and divergence.text_b == "(ended)" and divergence.context == ""


def test_divergence_without_token_texts() -> None:
    ours, vendor = page(*BLOCKS), page(*BLOCKS).replace("Two", "Tvo")
    a = replace(make_result(ours), token_texts=())
    report = parity(a, replace(make_result(vendor, backend="vendor"), token_texts=()))
    assert report.first_divergence is not None
    assert report.first_divergence.text_a == f"#{ord('w')}"
    assert report.first_divergence.box_index == 2


def test_divergence_after_characters_split_over_tokens() -> None:
    """Each of a character's tokens shows as U+FFFD, so their texts are longer than the text itself."""
    head = "<|ref|>a<|/ref|><|det|>[[0, 0, 9, 9]]<|/det|>" + "漢" * 40
    tail = "<|ref|>b<|/ref|><|det|>[[90, 90, 99, 99]]<|/det|>"
    texts = (*head[:45], *["\ufffd"] * 120)
    ours = make_result(head + "x" + tail, token_ids=(*range(165), 7))
    vendor = make_result(head + "y" + tail, backend="vendor", token_ids=(*range(165), 8))
    report = parity(replace(ours, token_texts=(*texts, "x")), vendor)
    assert report.first_divergence is not None and report.first_divergence.box_index == 0


def test_same_text_in_other_tokens() -> None:
    report = parity(make_result("ab", token_ids=(1, 2)), make_result("ab", backend="vendor", token_ids=(3,)))
    assert not report.tokens_equal and report.character_error_rate == 0
    assert report.first_divergence is not None and report.first_divergence.index == 0


@pytest.mark.parametrize(
    ("ours", "vendor", "expected"),
    [
        ("", "", 0.0),
        ("abc", "abc", 0.0),
        ("", "abcd", 1.0),
        ("abxd", "abcd", 0.25),
        ("ab", "", 2.0),
        ("abcdef", "ab", 2.0),
    ],
)
def test_character_error_rate_by_hand(ours: str, vendor: str, expected: float) -> None:
    assert character_error_rate(ours, vendor) == expected


@given(st.text(max_size=30), st.text(max_size=30))
def test_character_error_rate_against_the_textbook(ours: str, vendor: str) -> None:
    row = list(range(len(vendor) + 1))
    for i, a in enumerate(ours, start=1):
        previous, row[0] = row[0], i
        for j, b in enumerate(vendor, start=1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    assert character_error_rate(ours, vendor) == pytest.approx(row[-1] / max(1, len(vendor)))


def test_end_markers_are_no_errors() -> None:
    assert compare("text<｜end▁of▁sentence｜>", "text").character_error_rate == 0


@pytest.mark.parametrize(
    ("change", "decides"),
    [
        ({"prompt_ids": (0, 5, 5, 5, 8)}, True),
        ({"image_mask": ((2, 3),)}, True),
        ({"image_mask": ((1, 2),)}, True),
        ({"grid": (2, 1)}, True),
        ({"global_shape": (1, 3, 512, 512)}, True),
        ({"global_sha256": "ab"}, True),
        ({"tiles_shape": (2, 3, 640, 640)}, True),
        ({"tiles_sha256": "ab"}, True),
        ({"no_repeat_ngram_size": 35}, True),
        ({"dtype": "bfloat16"}, True),
        ({"rotary_dtype": "bfloat16"}, True),
        ({"attention": "sdpa"}, False),
        ({"max_new_tokens": 5}, False),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_every_input_is_compared(change: dict, decides: bool) -> None:
    report = parity(make_result(**change), make_result(backend="vendor"))
    assert report.input_parity is not decides
    unequal = [line for line in report.inputs if not line.equal]
    assert unequal and any(line.decides for line in unequal) == decides
    for line in unequal:
        assert line.a != line.b, "a difference must be visible"


def test_long_texts_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def counted(a: str, b: str) -> int:
        compared.append(max(len(a), len(b)))
        return Levenshtein.distance(a, b)

    monkeypatch.setattr(parity_module, "Levenshtein", SimpleNamespace(distance=counted))
    report = compare("ab" * 500_000, "ba" * 500_000 + "c" * 1000)
    assert compared and max(compared) <= 100_000
    assert 0 < report.character_error_rate < 0.01


@given(st.text(alphabet="<|ref/det>[]0123456789, \n", max_size=80), st.text(max_size=40))
def test_never_raises_on_text(ours: str, vendor: str) -> None:
    report = compare(ours, vendor)
    assert report.tokens_equal == (ours == vendor)
    assert (report.first_divergence is None) == report.tokens_equal
