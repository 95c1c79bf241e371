"""Errors on the page: one line of plain text, whatever file names or model text are in it."""

from __future__ import annotations

import re

import streamlit as st


def plain(text: str) -> str:
    """`text` for a Streamlit label or message, which would read it as Markdown: no images, links, colours."""
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", " ".join(text.split()))


def show_error(error: object) -> None:
    st.error(plain(str(error)), icon=":material/error:")
