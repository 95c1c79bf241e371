"""The pages of one prompt in the widgets of a pair: texts and rows of each."""

from __future__ import annotations

from dsocr_core.reading.parity import Comparison
from pages.widgets.pair import sheets
from pages.widgets.pair.shown import rows_of
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


def test_rows_are_those_of_the_page() -> None:
    pair = Comparison(read(TEXT).request, read(TEXT), read(TEXT.replace("two", "2"), "vendor"))
    assert [[row.a.index for row in rows_of(pair, n) if row.a] for n in range(3)] == [[0], [1, 2], []]
    alone = Comparison(pair.request, read(TEXT))
    assert [len(rows_of(alone, n)) for n in range(3)] == [1, 2, 0]
