"""Model text as plain blocks: no markup of it survives as markup."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsocr_core.reading.text_blocks import Block, parse_blocks, text_difference


def kinds(text: str) -> list[str]:
    return [block.kind for block in parse_blocks(text)]


def test_headings_paragraphs_items_and_code() -> None:
    text = "# Title\n\nfirst line\nsecond line\n\n- one\n2) two\n```python\nx < 1\n```\n## Sub"
    assert parse_blocks(text, box=3) == [
        Block("heading", "Title", level=1, box=3),
        Block("paragraph", "first line\nsecond line", box=3),
        Block("item", "one", box=3),
        Block("item", "two", box=3),
        Block("code", "x < 1", box=3),
        Block("heading", "Sub", level=2, box=3),
    ]


def test_a_table_becomes_rows_of_equal_width() -> None:
    rows = "<tr><th>a</th><td>b &lt;i&gt;</td></tr><tr><td colspan='2'>wide</td></tr><tr><td>c</td></tr>"
    text = f"before\n<table>{rows}</table>after"
    before, table, after = parse_blocks(text)
    assert (before.text, after.text) == ("before", "after")
    assert table.rows == (("a", "b <i>"), ("wide", ""), ("c", ""))


def test_an_unclosed_table_is_read_to_the_end() -> None:
    (table,) = parse_blocks("<table><tr><td>1<td>2")
    assert table.rows == (("1", "2"),)


def test_a_table_without_cells_is_text() -> None:
    assert parse_blocks("<table>nothing</table>") == [Block("paragraph", "nothing")]


@pytest.mark.parametrize("span", ["99999999", "-3", "x", "²", "0", ""])
def test_absurd_spans_do_not_blow_up_a_table(span: str) -> None:
    (table,) = parse_blocks(f"<table><tr><td colspan='{span}'>1</td></tr></table>")
    assert table.rows[0][0] == "1"
    assert len(table.rows[0]) <= 50


def test_formulas_keep_their_source() -> None:
    assert parse_blocks(r"\[ a < b \]") == [Block("formula", "a < b")]
    assert [block.text for block in parse_blocks("\\[\nx^2\n\\]\nafter")] == ["x^2", "after"]


def test_images_and_links_lose_their_addresses() -> None:
    text = "![plot](https://example.org/track.png)\n\nsee [the site](javascript:alert(1)) and ![x](http://a/b.png)"
    image, paragraph = parse_blocks(text)
    assert (image.kind, image.text) == ("image", "plot")
    assert paragraph.text.startswith("see the site")
    assert "http" not in paragraph.text
    assert "javascript" not in paragraph.text


def test_html_stays_text() -> None:
    (block,) = parse_blocks("<script>alert(1)</script>")
    assert block == Block("paragraph", "<script>alert(1)</script>")


def test_unclosed_fences_keep_their_text() -> None:
    assert parse_blocks("```\nabc") == [Block("code", "abc")]


@given(st.text(alphabet="<table>/rd|#-$\\[]`*!()x \n", max_size=300))
def test_any_text_is_taken(text: str) -> None:
    for block in parse_blocks(text):
        assert block.kind in ("heading", "paragraph", "item", "table", "formula", "code", "image")


@pytest.mark.parametrize("piece", ["<table>", "**a", "![", "[x](", "<table><tr><td>", "# ", "$$", "<td "])
def test_hostile_repetition_takes_linear_time(piece: str) -> None:
    began = time.process_time()
    parse_blocks(piece * 20_000)
    assert time.process_time() - began < 3


@given(st.text(max_size=80), st.text(max_size=80))
def test_a_difference_gives_both_texts_back(a: str, b: str) -> None:
    left, right = text_difference(a, b)
    assert "".join(text for text, _ in left) == a
    assert "".join(text for text, _ in right) == b


@pytest.mark.parametrize(
    ("a", "b", "left", "right"),
    [
        ("same words", "same words", [("same words", "same")], [("same words", "same")]),
        ("340 g", "340 a,", [("340 ", "same"), ("g", "letter")], [("340 ", "same"), ("a,", "letter")]),
        ("by 1,234.00 now", "by 7,234.00 now",
         [("by ", "same"), ("1", "letter"), (",234.00", "word"), (" now", "same")],
         [("by ", "same"), ("7", "letter"), (",234.00", "word"), (" now", "same")]),
        ("", "more", [], [("more", "letter")]),
        ("二月四日", "二月五日", [("二月", "same"), ("四", "letter"), ("日", "same")],
         [("二月", "same"), ("五", "letter"), ("日", "same")]),
    ],
)  # fmt: skip
def test_a_difference_is_one_of_words_then_of_their_letters(a: str, b: str, left: list, right: list) -> None:
    assert text_difference(a, b) == (left, right)
