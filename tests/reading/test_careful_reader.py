"""The pairs of `careful_reader.txt`: on a page long enough for the character error rate to decide nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsocr_core.reading.parity import parity
from dsocr_core.reading.parity_records import ParityReport
from tests.support.results import make_result

FILE = Path(__file__).with_name("careful_reader.txt")
PROSE = " ".join(
    f"This sentence says a little more about the contract and about its parties {word}."
    for word in ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")
)
_CHARACTERS = {
    "<NBSP>": "\u00a0", "<NARROW>": "\u202f", "<THIN>": "\u2009", "<SHY>": "\u00ad", "<ZERO>": "\u200b",
    "<WIDE>": "\u3000", "<RLM>": "\u200f", "<TAB>": "\t", "<ACUTE>": "\u0301",
}  # fmt: skip


def pairs(section: str) -> list[tuple[str, str]]:
    lines = (
        FILE.read_text(encoding="utf-8").partition(f"== {section}\n")[2].partition("\n== ")[0].splitlines()
    )
    found = []
    for line in lines:
        if not line.startswith("# "):
            for name, character in _CHARACTERS.items():
                line = line.replace(name, character)
            a, _, b = line.replace("\\n", "\n").partition(" || ")
            found.append((a, b))
    return [pair for pair in found if any(pair)]


def judged(a: str, b: str, boxed: bool = False) -> ParityReport:
    mark = "<|ref|>text<|/ref|><|det|>[[10, 10, 900, 900]]<|/det|>\n" if boxed else ""
    prose = PROSE * (4 if "<table" in a + b else 1)
    return parity(*(make_result(f"{prose}\n\n{mark}{text}\n\n{'' if boxed else prose}") for text in (a, b)))


@pytest.mark.parametrize(("a", "b"), pairs("differs"))
def test_what_a_reader_calls_changed_differs(a: str, b: str) -> None:
    for report in (judged(a, b), judged(b, a), judged(a, b, boxed=True)):
        assert report.character_error_rate < 0.02, "it is not the rate that decides"
        assert report.verdict == "differs", report.reasons


@pytest.mark.parametrize(("a", "b"), pairs("words"))
def test_what_a_reader_calls_the_same_is_no_alarm(a: str, b: str) -> None:
    for report in (judged(a, b), judged(b, a), judged(a, b, boxed=True)):
        assert report.verdict == "within_tolerance", report.reasons


@pytest.mark.parametrize(("a", "b"), pairs("spelt"))
def test_spelling_alone_is_no_alarm_however_short_the_page(a: str, b: str) -> None:
    """Nor beside a word that did change."""
    for x, y in ((a, b), (b, a)):
        alone = parity(make_result(x), make_result(y))
        assert alone.verdict == "within_tolerance", alone.reasons
        assert any("spelling" in reason for reason in alone.reasons)
        assert judged(f"{x}\n\nThe end kame.", f"{y}\n\nThe end came.").verdict == "within_tolerance"
    boxed = judged(a, b, boxed=True)
    assert boxed.verdict == "within_tolerance", boxed.reasons
