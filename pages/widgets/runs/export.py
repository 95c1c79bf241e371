"""Chosen runs as one file to download."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import streamlit as st

from dsocr_core.base.temporary import Temporary
from dsocr_core.base.words import plural
from dsocr_core.runs.exporters import Form, export_runs
from dsocr_core.runs.store import History

_FORMS: dict[Form, str] = {
    "zip": "Zip that imports elsewhere",
    "parquet": "Parquet tables",
    "csv": "CSV tables",
}


def exported(history: History, run_ids: Sequence[str], form: Form) -> bytes:
    """The runs as an archive: as they are, or their tables. Raises DsocrError."""
    with Temporary("export") as name:
        target = Path(name) / "runs"
        export_runs(history, run_ids, target, form)
        if form == "zip":
            return target.read_bytes()
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(target.iterdir()):
                archive.write(file, file.name)
        return buffer.getvalue()


def menu(history: History, run_ids: Sequence[str]) -> None:
    with st.popover("Export", icon=":material/download:", key="runs export"):
        st.caption(f"{plural(len(run_ids), 'run')}, made when you ask for them")
        for form, words in _FORMS.items():
            st.download_button(
                words, partial(exported, history, run_ids, form), f"runs-{form}.zip",
                "application/zip", on_click="ignore", width="stretch", key=f"runs export {form}",
            )  # fmt: skip
