"""Labels of sides and backends."""

from __future__ import annotations

import pytest

from dsocr_core.reading.parity_records import VERDICTS as CORE
from dsocr_core.reading.parity_records import Verdict
from dsocr_core.settings import Settings
from pages.widgets.shared.labels import backend_words, first_of_ours, side_label, side_labels, side_letter
from pages.widgets.shared.strip import NO_EVIDENCE, VERDICTS, verdict_words


def test_a_side_is_its_letter_and_its_backend() -> None:
    assert side_labels(Settings()) == {"a": "A: eager, ours", "b": "B: vendor, published code"}
    assert side_labels(Settings(engine="fast"))["a"] == "A: fast, ours"
    assert side_label("b", "eager") == "B: eager, ours"
    assert [side_letter(side) for side in side_labels(Settings())] == ["A", "B"]


def test_a_foreign_backend_goes_by_its_name_in_one_short_line() -> None:
    assert backend_words("vllm") == "vllm"
    assert backend_words("x" * 400 + "\n") == backend_words("x" * 400)
    assert len(backend_words("x" * 400)) == 40


def test_one_of_our_engines_is_shown_first() -> None:
    assert first_of_ours(["vendor", "fast", "eager"]) == "fast"
    assert first_of_ours(["vendor"]) == "vendor"


@pytest.mark.parametrize(
    ("verdict", "word", "tone"),
    [
        ("identical", "IDENTICAL", "identical"),
        ("within_tolerance", "WITHIN TOLERANCE", "within"),
        ("differs", "DIFFERS", "differs"),
        ("not_comparable", "NOT COMPARABLE", "none"),
        (None, "NO EVIDENCE", "none"),
    ],
)
def test_every_verdict_has_its_word_and_colour(verdict: Verdict | None, word: str, tone: str) -> None:
    found = verdict_words(verdict)
    assert (found.word, found.tone) == (word, tone)
    assert found.icon


def test_green_is_for_identical_alone_and_no_two_signs_are_equal() -> None:
    assert tuple(VERDICTS) == CORE
    every = [*VERDICTS.values(), NO_EVIDENCE]
    assert [words.word for words in every if words.tone == "identical"] == ["IDENTICAL"]
    assert len({words.icon for words in every}) == len(every)
