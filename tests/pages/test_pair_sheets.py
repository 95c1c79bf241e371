"""The pages of one prompt in the widgets of a pair: texts, rows and marks of each."""

from __future__ import annotations

import shlex

import pytest

from dsocr_core.reading.comparison import Comparison
from dsocr_core.settings import Settings
from pages.widgets.compare import cause_tab, details
from pages.widgets.pair import sheets
from pages.widgets.pair.shown import rows_of
from pages.widgets.pair.text import segments
from tests.support.results import make_result, of_pages

BLOCK = "<|det|>text [0, 0, 99, {}]<|/det|>"
TEXT = f"Head<PAGE>{BLOCK.format(1)}one<PAGE>{BLOCK.format(2)}two{BLOCK.format(3)}more"


def read(text: str, backend: str = "eager"):
    return of_pages(make_result(text, backend), (640, 480), (640, 480))


def test_texts_of_pages_and_what_stands_before_the_first() -> None:
    result = read(TEXT)
    assert [sheets.text_of(result, n)[0].replace(BLOCK.format(1), "|") for n in (0, 2)] == ["Head|one", ""]
    text, spans = sheets.text_of(result, 0)
    assert [text[span.start : span.end] for span in spans] == [BLOCK.format(1)]
    assert [(each.text, each.box) for each in segments(result, 1)] == [("", None), ("two", 1), ("more", 2)]
    assert [each.text for each in segments(result)] == ["Head", "one"]


@pytest.mark.parametrize(
    ("other", "marked"),
    [(TEXT, set()), (TEXT.replace("two", "2"), {1}), (TEXT.replace("99, 2]", "90, 2]"), {1})],
)
def test_rows_are_those_of_the_page_and_pages_that_differ_are_marked(other: str, marked: set[int]) -> None:
    pair = Comparison(read(TEXT).request, read(TEXT), read(other, "vendor"))
    assert [[row.a.index for row in rows_of(pair, n) if row.a] for n in range(3)] == [[0], [1, 2], []]
    assert sheets.differing(pair) == marked
    alone = Comparison(pair.request, read(TEXT))
    assert [len(rows_of(alone, n)) for n in range(3)] == [1, 2, 0] and sheets.differing(alone) == set()


def test_the_command_that_reads_it_again_names_all_pages_and_causes_are_not_searched() -> None:
    pair = Comparison(read(TEXT).request, read(TEXT), read(TEXT.replace("two", "2"), "vendor"))
    words = shlex.split(details.reproduce_command(pair.request, Settings()))
    assert words[3:7] == ["compare", "page.png", "page-2.png", "page-3.png"]
    assert "--pages-together" in words and "<image>Multi page parsing." in words
    assert "one page a prompt" in cause_tab.why_not(Settings(), pair)
