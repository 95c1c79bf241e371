"""What texts, formulas and tables are compared as: small ones by hand."""

from __future__ import annotations

import pytest

from dsocr_core.accuracy.elements import elements
from dsocr_core.accuracy.markdown import benchmark_markdown
from dsocr_core.accuracy.normal_forms import formula_form, table_form, text_form


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("Hello, world!", "Helloworld"),
        ("中文，ab", "中文ab"),
        ("and/to and/no", "andoando"),  # as the benchmark removes /t and /n
        ("a $x^2$ b", "ax2b"),
        ("cost $5$ now", "cost5now"),
        ("\\(\\alpha_1\\)", "α_1"),
        ("snake_case", "snake_case"),
    ],
)
def test_texts(text: str, form: str) -> None:
    assert text_form(text) == form


@pytest.mark.parametrize(
    ("latex", "form"),
    [
        ("$$ E = mc^2 $$", "e=mc^2"),
        ("\\[ \\mathbf{x} + \\left( y \\right) \\tag{3} \\]", "{x}+(y)"),
        ("\\begin{aligned} a &= b \\end{aligned}.", "a&=b"),
        ("\\mathbfcal{A}", "cal{a}"),  # \mathbf goes first
    ],
)
def test_formulas(latex: str, form: str) -> None:
    assert formula_form(latex) == form


def test_a_table_loses_styles_headers_and_wrappers() -> None:
    markup = (
        '<table class="t"><thead><tr><th style="x">Ａ &amp; <span>B</span></th></tr></thead>'
        "<tbody><tr><td><sup>1</sup></td></tr></tbody></table>"
    )
    assert table_form(markup) == (
        '<html><body><table border="1" ><tr><td>A & B</td></tr><tr><td>1</td></tr></table></body></html>'
    )
    assert table_form("no table") == ""


def test_elements_of_a_page_in_their_order() -> None:
    markdown = (
        "![](images/0.jpg)\n\n# Title\n\nText with $x^2$ in it\n\n$$\na = b\n$$\n\n"
        "<table><tr><td>1</td></tr></table>\n\n```python\nx = 1```"
    )
    found = [(each.kind, each.content) for each in elements(markdown)]
    assert sorted(found) == [
        ("formula", "\\[ a = b \\]"),
        ("html table", "<table><tr><td>1</td></tr></table>"),
        ("inline formula", "\\[x^2\\]"),
        ("text", "# Title"),
        ("text", "Text with $x^2$ in it"),
        ("text", "```python\nx = 1"),  # the closing fence ends a line, and goes
    ]


def test_a_raw_text_is_cleaned_as_the_vendors_evaluation_script_does() -> None:
    raw = (
        "<|ref|>title<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\n# A\n\n\n\n"
        "<|ref|>image<|/ref|><|det|>[[1, 2, 3, 4]]<|/det|>\n<center>Fig. 1</center>\n"
        "\\[a = b \\quad (3)\\]<｜end▁of▁sentence｜>"
    )
    assert benchmark_markdown(raw) == "\n# A\n\nFig. 1\n\\[a = b\\]"
