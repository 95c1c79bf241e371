"""Formulas found in linear time, equal to the benchmark's lazy regular expressions."""

from __future__ import annotations

import random
import re

from dsocr_core.accuracy.elements import Element, _Blanked, _formulas

_FORMULA = re.compile(r"\$\$(.*?)\$\$|\\\[(.*?)\\\]|\$(.*?)\$|\\\((.*?)\\\)", re.DOTALL)
_DOLLARS = re.compile(r"\$\$(.*?)\$\$|\$(.*?)\$|\\\((.*?)\\\)", re.DOTALL)
_PIECES = ("$", "$$", "\\[", "\\]", "\\(", "\\)", "a", " ", "\n", "\\")


def by_expressions(text: str) -> tuple[list[Element], str]:
    content, found = _Blanked(text), []
    for match in list(_FORMULA.finditer(text)):
        line = " ".join(match[0].strip().split("\n"))
        dollars = _DOLLARS.search(line)
        if dollars is None:
            content.take(*match.span())
            found.append(Element("formula", match.start(), line))
        elif dollars[1]:
            content.take(*match.span())
            found.append(Element("formula", match.start(), _DOLLARS.sub(r"\\[\1\\]", line)))
        else:
            found.append(Element("inline formula", match.start(), _DOLLARS.sub(r"\\[\2\3\\]", line)))
    return found, content.text


def test_formulas_are_those_of_the_expressions() -> None:
    choose = random.Random(1)
    for _ in range(5000):
        text = "".join(choose.choices(_PIECES, k=choose.randrange(1, 25)))
        content = _Blanked(text)
        assert (list(_formulas(content)), content.text) == by_expressions(text), repr(text)
