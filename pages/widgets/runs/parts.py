"""What the Runs page's tables are made of: the line over one with its menu, and the table."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from pages.widgets.shared.csv import csv_of
from pages.widgets.shared.messages import plain


def head(words: str, *, sql: Sequence[str] = (), **frames: pd.DataFrame) -> None:
    """The line over a table and its menu: the table as CSV, and the SQL that it comes from."""
    name, frame = next(iter(frames.items()))
    left, menu = st.columns([9, 1], vertical_alignment="center", wrap=False)
    left.caption(plain(words))
    with menu.popover("More", width="stretch", key=f"runs menu {name}"):
        st.download_button(
            "This table as CSV", lambda: csv_of(frame), f"{name}.csv", "text/csv", on_click="ignore",
            width="stretch", icon=":material/download:", key=f"runs csv {name}",
        )  # fmt: skip
        if sql:
            st.caption("The SQL, to run with `python -m dsocr_core history sql`:")
            st.code("\n;\n".join(sql), language="sql", wrap_lines=True)


def table(shown: pd.DataFrame, missing: str = "") -> None:
    """A table of texts."""
    st.dataframe(
        shown, hide_index=True, height="content" if len(shown) <= 20 else 640, placeholder=missing,
    )  # fmt: skip
