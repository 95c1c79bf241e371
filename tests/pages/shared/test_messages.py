"""Texts of strangers on a page stay text."""

from __future__ import annotations

import re

import pytest

from pages.widgets.shared.messages import plain

# What the browser looks for in the text that is left when the backslashes are gone.
_LINKS = re.compile(r"https?://\S|www\.\S|[-.\w+]+@[-\w]+\.\w", re.IGNORECASE)


@pytest.mark.parametrize(
    "text", ["see http://a.example/x", "HTTPS://b.example", "(www.c.example)", "to a.b+c@mail.example"]
)
def test_an_address_in_an_error_is_no_link(text: str) -> None:
    assert _LINKS.search(text)
    left = plain(text).replace("\\", "")
    assert not _LINKS.search(left) and left.replace("\N{WORD JOINER}", "") == text


def test_nothing_of_it_is_markdown_or_steers() -> None:
    assert plain("**b** [x](y)\n:red[z] \x1b") == r"\*\*b\*\* \[x\]\(y\) \:red\[z\] \\x1b"
