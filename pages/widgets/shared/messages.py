"""Errors on the page: one line of plain text, whatever file names or model text are in it."""

from __future__ import annotations

import re

import streamlit as st

from dsocr_core.base.errors import DsocrError, unforeseen
from dsocr_core.base.sanitise import visible

_JOINER = "\N{WORD JOINER}"
_ADDRESS = re.compile(r"https?(?=://)|www(?=\.)|[-.\w+](?=@)", re.IGNORECASE)
"""Start of an address of the web or of mail: the browser makes a link of it once the backslashes are
gone, unless an invisible character stands there."""


def plain(text: str) -> str:
    """`text` for a Streamlit label or message, which would read it as Markdown: no images, links, colours."""
    apart = _ADDRESS.sub(lambda found: found[0] + _JOINER, " ".join(visible(text).split()))
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", apart)


def show_error(error: object) -> None:
    st.error(plain(str(error)), icon=":material/error:")


def show_script_error(error: Exception) -> bool:
    """An error of a script, callback or fragment: a sentence, with a number where nobody foresaw it.

    The server's `on_script_error`; the log has names of files and lines of the program.
    """
    show_error(str(error) if isinstance(error, DsocrError) else unforeseen(error, "the app"))
    return True
