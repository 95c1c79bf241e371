"""The ways from page to page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st


def taken_request(page: str) -> dict[str, Any] | None:
    """Take what another page asked this one to show, once; None when nothing."""
    request: dict[str, Any] | None = st.session_state.pop(f"{page} request", None)
    return request


def to_compare(sample: str = "", path: str = "", **settings: str) -> None:
    """Open Compare; on a sample, or the file at a path, read under these settings, when they are given."""
    if sample or path:
        st.session_state["compare request"] = {"page": sample, "path": path, "settings": settings}
    st.switch_page("compare.py")


def to_timing(run_ids: Sequence[str]) -> None:
    """Open Timing with these runs side by side; two of them are A and B of its comparison, too."""
    st.session_state["timing request"] = {"runs": list(run_ids)}
    st.switch_page("timing.py")


def to_flops(run_id: str) -> None:
    """Open FLOPs on a page of a run."""
    st.session_state["flops request"] = {"run": run_id}
    st.switch_page("flops.py")


def to_review(key: str) -> None:
    """Open Review at the beginning of a review."""
    st.session_state["review request"] = {"review": key}
    st.switch_page("review.py")


def to_import() -> None:
    """Open Runs where runs of elsewhere are imported."""
    st.session_state["runs request"] = {"view": "Import"}
    st.switch_page("runs.py")
