"""Text, order and TEDS of small pages, worked out by hand beside each case."""

from __future__ import annotations

import pytest

from dsocr_core.accuracy.ground_truth import TrueBlock, TruePage
from dsocr_core.accuracy.scores import PageScore, score_page, total

HTML = "<table><tr><td>a</td><td>b</td></tr><tr><td>1</td><td>2</td></tr></table>"


def page(*blocks: tuple[str, str], tables: tuple[str, ...] = ()) -> TruePage:
    """A page whose blocks, (category, text), are in reading order from 1."""
    true = [TrueBlock(category, text, number) for number, (category, text) in enumerate(blocks, 1)]
    found = [TrueBlock("table", html, number) for number, html in enumerate(tables, len(true) + 1)]
    return TruePage("page.jpg", tuple(true), tuple(found))


def texts(*words: str) -> TruePage:
    return page(*(("text_block", each) for each in words))


@pytest.mark.parametrize(
    ("true", "written", "text_edit", "order_edit"),
    [
        # 1. Letters and digits are compared, nothing else.
        pytest.param(texts("Hello, world 12!"), "# Hello world: 12", 0.0, 0.0, id="equal"),
        # 2. One of five letters.
        pytest.param(texts("abcde"), "abcdX", 1 / 5, 0.0, id="a letter"),
        # 3. "beta" has no answer: 0 of 5 and 4 of 4 letters. Order 1, 2 against 1: one of two.
        pytest.param(texts("alpha", "beta"), "alpha", 4 / 9, 1 / 2, id="a block is missing"),
        # 4. Each finds its own. Order 1, 2 against 2, 1: both places differ.
        pytest.param(
            texts("one red apple", "two blue plums"), "two blue plums\n\none red apple", 0.0, 1.0,
            id="swapped",
        ),
        # 5. Two paragraphs that were one are read as one.
        pytest.param(
            texts("the quick brown fox jumps over"), "the quick brown\n\nfox jumps over", 0.0, 0.0,
            id="split",
        ),
        # 6. One paragraph that was two answers both, in its order.
        pytest.param(
            texts("alphabet soup is here", "numbers follow now"),
            "alphabet soup is here numbers follow now", 0.0, 0.0, id="joined",
        ),
        # 7. A header may be written or not.
        pytest.param(
            page(("header", "Page 3 of 9"), ("text_block", "hello world")), "hello world", 0.0, 0.0,
            id="header",
        ),
        pytest.param(
            page(("header", "Page 3 of 9"), ("text_block", "hello world")),
            "Page 3 of 9\n\nhello world", 0.0, 0.0, id="header written",
        ),
        # All that is like a header is put aside, so that nothing is left to answer the text.
        pytest.param(
            page(("header", "Journal"), ("text_block", "wxyz")), "Journal\n\nJournal", 1.0, 1.0, id="headers",
        ),
        # 8. What is written beside the truth costs nothing.
        pytest.param(
            texts("hello world"), "hello world\n\nan addition that nobody asked for", 0.0, 0.0, id="more",
        ),
        # 9. A formula that was written as words is judged as words: "abc" of "a+b=c". 0 of 14 + 3.
        pytest.param(
            page(("text_block", "words of a page"), ("equation_isolated", "$$a+b=c$$")),
            "words of a page\n\na+b=c", 0.0, 0.0, id="formula as words",
        ),
        # 10. Nothing written: every letter, and every place of the order.
        pytest.param(texts("alpha", "beta"), "", 1.0, 1.0, id="nothing"),
        # 11. A page without texts has nothing to count.
        pytest.param(page(tables=(HTML,)), HTML, None, None, id="no text"),
    ],
)  # fmt: skip
def test_texts_and_their_order(
    true: TruePage, written: str, text_edit: float | None, order_edit: float | None
) -> None:
    score = score_page(true, written)
    assert score.text_edit == pytest.approx(text_edit)
    assert score.order_edit == pytest.approx(order_edit)


@pytest.mark.parametrize(
    ("written", "teds", "structure"),
    [
        # Nodes: 2 rows and 4 cells.
        pytest.param(HTML, 1.0, 1.0, id="equal"),
        pytest.param("Words.\n\n" + HTML.replace("<table>", '<table class="x">'), 1.0, 1.0, id="style"),
        pytest.param(HTML.replace("td>a</td", "th>a</th"), 1.0, 1.0, id="header cells are cells"),
        # One of two letters of a cell: 1/2 of 6 nodes.
        pytest.param(HTML.replace(">a<", ">ax<"), 1 - 0.5 / 6, 1.0, id="a letter"),
        # A row and its two cells are missing: 3 of 6.
        pytest.param(HTML.replace("<tr><td>1</td><td>2</td></tr>", ""), 0.5, 0.5, id="a row"),
        # A cell with another span is another cell: 1 of 6.
        pytest.param(HTML.replace("<td>a", '<td colspan="2">a'), 5 / 6, 5 / 6, id="a span"),
        # Three more cells make a tree of 9 and a row: 4 to insert, of 10 nodes.
        pytest.param(
            HTML.replace("</table>", "<tr><td>5</td><td>6</td><td>7</td></tr></table>"), 0.6, 0.6, id="more",
        ),
        # Elements in a cell count as nodes and not as branches: 3 tokens for 1, of 7 nodes.
        pytest.param(HTML.replace(">a<", "><b>a</b><"), 1 - (2 / 3) / 7, 1 - 0 / 7, id="bold"),
        pytest.param("| a | b |\n|---|---|\n| 1 | 2 |\n", 1.0, 1.0, id="Markdown"),
        # A cell with a colon is taken for a rule: 1 of 6.
        pytest.param("| a: | b |\n|---|---|\n| 1 | 2 |\n", 5 / 6, 5 / 6, id="Markdown with a colon"),
        pytest.param("\\begin{tabular}{cc} a & b \\\\ 1 & 2 \\end{tabular}", 0.0, 0.0, id="LaTeX"),
        pytest.param("a b 1 2", 0.0, 0.0, id="none"),
        # Nothing closes the second table: what follows it is lost, and the first is whole.
        pytest.param("| a | b |\n|---|---|\n| 1 | 2 |\n\n<table>\n<tr><td>a", 1.0, 1.0, id="cut after"),
        # The first takes the second along: a cell that nothing closed and its row are two nodes more, of 8.
        pytest.param(
            "<table>\n<tr>\n<td>x\n| a | b |\n|---|---|\n| 1 | 2 |\n", 1 - 2 / 8, 1 - 2 / 8, id="cut before",
        ),
    ],
)  # fmt: skip
def test_tables(written: str, teds: float, structure: float) -> None:
    score = score_page(page(tables=(HTML,)), written)
    assert (score.table_teds, score.table_structure) == (pytest.approx(teds), pytest.approx(structure))
    assert score.tables == 1


@pytest.mark.parametrize(
    ("latex", "written", "tables"),
    [
        # A true table without HTML answers nothing and is none.
        (None, HTML, 1),
        ("", HTML, 1),
        # Where LaTeX is written, those are matched whose LaTeX is known, and none is answered.
        (None, "\\begin{tabular}{l} a \\end{tabular}", 1),
        ("\\begin{tabular}{l} a \\end{tabular}", "\\begin{tabular}{l} a \\end{tabular}", 1),
        ("", "\\begin{tabular}{l} a \\end{tabular}", 0),
    ],
)
def test_a_true_table_counts_where_what_is_matched_is_known(
    latex: str | None, written: str, tables: int
) -> None:
    only_latex = TrueBlock("table", "", 1, "\\begin{tabular}{l} a \\end{tabular}")
    score = score_page(TruePage("page.jpg", (), (only_latex, TrueBlock("table", HTML, 2, latex))), written)
    assert score.tables == tables
    assert score.table_teds == ((1.0 if written == HTML else 0.0) if tables else None)


@pytest.mark.parametrize(
    ("written", "formula_edit", "text_edit"),
    [
        ("words\n\n$$a+b=c$$", 0.0, 0.0),
        # One of five signs; then none of them.
        ("words\n\n$$a+b=d$$", 1 / 5, 0.0),
        ("words", 1.0, 0.0),
        # As words it counts as a text: "abc" of "a+b=c", and is no formula any more.
        ("words\n\na+b=c", None, 0.0),
    ],
)
def test_displayed_formulas(written: str, formula_edit: float | None, text_edit: float) -> None:
    score = score_page(page(("text_block", "words"), ("equation_isolated", "$$a+b=c$$")), written)
    assert (score.formula_edit, score.text_edit) == (pytest.approx(formula_edit), pytest.approx(text_edit))


def test_cells_of_a_table_that_answers_none_are_texts() -> None:
    true = page(("text_block", "apples"), ("text_block", "pears"), tables=(HTML,))
    score = score_page(true, f"{HTML}\n\n<table><tr><td>apples</td><td>pears</td></tr></table>")
    assert (score.text_edit, score.table_teds) == (0.0, 1.0)


def test_tables_too_large_to_compare_are_said_and_not_scored() -> None:
    cells = "<tr>" + "<td>1</td>" * 50 + "</tr>"
    large = f"<table>{cells * 50}</table>"
    score = score_page(page(tables=(large,)), large)
    assert score.table_teds is None
    assert score.notes == ("tables of 2,550 and 2,550 nodes are too large to be compared",)


def test_a_page_that_costs_too_much_is_paired_block_by_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dsocr_core.accuracy.matching.Budget", lambda: _Spent())
    score = score_page(
        texts("alphabet soup is here", "numbers follow now"), f"numbers follow now\n\n{'q' * 20}"
    )
    # "numbers follow now" is answered, the other is paired with 20 other letters: 20 of 20 + 16.
    assert score.text_edit == pytest.approx(20 / 36)
    assert score.notes == ("too much text to match in full: each block is paired with one part at most",)


class _Spent:
    def spend(self, windows: int) -> None:
        from dsocr_core.accuracy.distances import OverBudget

        raise OverBudget


def test_means_are_over_the_pages_that_have_the_figure() -> None:
    whole = total([PageScore(0.2, 0.0, None, None, None, 0), PageScore(0.4, None, 0.5, 0.5, 1.0, 2)])
    assert (whole.pages, whole.text_edit, whole.order_edit) == (2, pytest.approx(0.3), 0.0)
    assert (whole.table_teds, whole.table_structure) == (0.5, 1.0)
