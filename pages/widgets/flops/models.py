"""The models whose sizes the FLOPs page can take: the run's, the published, the embedded, those of a file."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from analytic_model.recorded import PUBLISHED
from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import EMBEDDED_CHECKPOINT
from pages.widgets.flops.address import PARAMETERS, key, text
from pages.widgets.shared import resources, sources

_WORDS = {
    "Run": "The run's own",
    "Published": "DeepSeek-OCR, as published",
    "Embedded": "The embedded checkpoint",
    "File": "A config.json",
}


def draw(name: str) -> None:
    """The choice of a model; `name` is its parameter of the address."""
    st.selectbox("Model", PARAMETERS[name].choices, key=key(name), format_func=_WORDS.__getitem__)
    if text(name) == "File":
        st.text_input("config.json or its folder", key=key("config"), placeholder="path/to/config.json")


def path_of(model: str) -> Path:
    """The chosen model's config.json, or the folder it lies in. Raises DsocrError."""
    if model == "Published":
        return PUBLISHED
    if model == "Embedded":
        return EMBEDDED_CHECKPOINT / "config.json"
    if not text("config").strip():
        raise DsocrError("no config.json yet: type its path, or that of its folder, on the left")
    return sources.typed_path(text("config"), resources.allowed_roots())
