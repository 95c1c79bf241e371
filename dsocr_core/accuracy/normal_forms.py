"""Normal forms of the benchmark, as which two texts, formulas or tables are compared."""

from __future__ import annotations

import functools
import html
import logging
import re
import unicodedata
from collections.abc import Callable
from typing import Any

_INLINE = re.compile(r"\$(.*?)\$|\\\((.*?)\\\)")
_DOLLARS = re.compile(r"\$(.*?)\$()")
_ESCAPED = re.compile(r"\\[\\_&%^]")
_NEEDS_LATEX = re.compile(r"[\\^_]")
_NO_WORD = re.compile(r"[^\w\u4e00-\u9fff]")
_LINE_MARKS = ("\\t", "\\n", "\t", "\n", "/t", "/n")
"""Left out of every text before it is compared: `and/to` becomes `ando`, on both sides."""

_BRACKETED = re.compile(r"\\\[(.+?)(?<!\\)\\\]")
_LAYOUT_COMMANDS = tuple(
    re.compile(rf"\\{command}.*?\}}")
    for command in (r"tag\{", r"hspace\{", r"begin\{", r"end\{", "arraycolsep")
)
_FORMULA_NOISE = (
    "\\mathbf", "\\mathrm", "\\mathnormal", "\\mathit", "\\mathbb", "\\mathcal", "\\mathscr",
    "\\mathfrak", "\\mathsf", "\\mathtt", "\\textbf", "\\text", "\\boldmath", "\\boldsymbol",
    "\\operatorname", "\\bm", "\\symbfit", "\\mathbfcal", "\\symbf", "\\scriptscriptstyle", "\\notag",
    "\\setlength", "\\coloneqq", "\\space", "\\thickspace", "\\thinspace", "\\medspace", "\\nobreakspace",
    "\\negmedspace", "\\quad", "\\qquad", "\\enspace", "\\substackw",
    " ", "$$", "\\left", "\\right", "\\displaystyle",
)  # fmt: skip
"""Commands that say how a formula is set and not what it says. Removed one after the other, so `\\symbfit`
goes whole and of `\\mathbfcal` the end stays: the order is part of the rule.
"""

_TABLE = re.compile(r"<table\b[^>]*>(.*)</table>", re.DOTALL | re.IGNORECASE)
_STYLES = tuple(re.compile(f'( {name}=".*?")') for name in ("style", "height", "width", "align", "class"))
_BODY_TAG = re.compile(r"</?tbody>")
_COLUMN_GROUP = re.compile(r"<colgroup>.*?</colgroup>")
_PLAIN_TAGS = re.compile(r"</?(?:sup|sub|span|div|p)>")


def text_form(text: str) -> str:
    """Letters, digits and ideographs of a text; formulas inside it as Unicode characters."""
    # Without what closes it each `\\(` would be followed to the end of the line.
    shown = (_INLINE if "\\)" in text else _DOLLARS).sub(_inline_words, text)
    for mark in _LINE_MARKS:
        shown = shown.replace(mark, "")
    return _NO_WORD.sub("", shown)


def _inline_words(found: re.Match[str]) -> str:
    """An inline formula as characters; one without commands, or that cannot be read, stays as it is."""
    content = _ESCAPED.sub("", found[1] if found[1] is not None else found[2])
    if not _NEEDS_LATEX.search(content):
        return found[0]
    words = latex_words(content + " " if content.endswith("\\") else content)
    return found[0] if words is None else words.strip()


def latex_words(latex: str) -> str | None:
    """LaTeX as Unicode text; None where it cannot be read."""
    try:
        return str(_converter()().latex_to_text(latex))
    except Exception:  # noqa: BLE001 - a parser of strangers' LaTeX, as lenient as the benchmark is
        return None


@functools.cache
def _converter() -> Callable[[], Any]:
    from pylatexenc.latex2text import LatexNodes2Text

    logging.getLogger("pylatexenc").setLevel(logging.CRITICAL)  # it reports each odd brace of a stranger
    made: Callable[[], Any] = LatexNodes2Text
    return made


def formula_form(latex: str) -> str:
    """A formula in lower case without delimiters, spacing, fonts and environments."""
    text = latex.strip().strip("$").strip("\n")
    if bracketed := _BRACKETED.search(text):
        text = bracketed[1].strip()
    for command in _LAYOUT_COMMANDS:
        text = command.sub("", text)
    text = text.strip(".")
    for noise in _FORMULA_NOISE:
        text = text.replace(noise, "")
    return text.lower()


def table_form(markup: str) -> str:
    """An HTML table as TEDS reads it: header cells as cells, no styles, NFKC; empty without a table."""
    if "<table" not in markup.replace(" ", ""):
        return ""
    from bs4 import BeautifulSoup

    soup = BeautifulSoup(markup, "html.parser")
    for header in soup.find_all("th"):
        header.name = "td"
    for wrapper in soup.find_all("thead"):
        wrapper.unwrap()
    for formula in soup.find_all("math"):
        formula.replace_with(f"${formula.get('alttext', '')}$")
    for wrapper in soup.find_all("span"):
        wrapper.unwrap()
    text = unicodedata.normalize("NFKC", html.unescape(str(soup)).replace("\n", "")).strip()
    rows = "".join(_TABLE.findall(text))
    for style in _STYLES:
        rows = style.sub("", rows)
    rows = re.sub(r"\s+", " ", _BODY_TAG.sub("", rows))
    whole = f'<html><body><table border="1" >{rows}</table></body></html>'
    return _COLUMN_GROUP.sub("", _PLAIN_TAGS.sub("", whole))
