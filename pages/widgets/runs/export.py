"""Chosen runs as one zip to download, which imports elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import streamlit as st

from dsocr_core.base.temporary import Temporary
from dsocr_core.runs.export import export_runs
from dsocr_core.runs.history import History


def exported(history: History, run_ids: Sequence[str]) -> bytes:
    """The runs as a zip. Raises DsocrError."""
    with Temporary("export") as name:
        target = Path(name) / "runs.zip"
        export_runs(history, run_ids, target)
        return target.read_bytes()


def button(history: History, run_ids: Sequence[str]) -> None:
    """A download of the runs; the zip is made when it is asked for."""
    st.download_button(
        "Export", partial(exported, history, run_ids), "runs.zip", "application/zip", on_click="ignore",
        icon=":material/download:", key="runs export", help="A zip that imports elsewhere.",
    )  # fmt: skip
