"""The permission to run the code of a foreign checkpoint: asked by folder, again when a file changes."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.sanitise import name_text
from dsocr_core.vendor.remote_code import RemoteCode, remote_code
from pages.widgets.shared.messages import plain, show_error


def draw(checkpoint: str, embedded: bool) -> list[str]:
    """Draw the switch of a foreign directory that has code. Returns the permissions given."""
    if embedded or checkpoint.startswith("random:") or not Path(checkpoint).is_dir():
        return []
    confirmed: set[str] = st.session_state.setdefault("trusted", set())
    directory = str(Path(checkpoint).resolve())
    try:
        code = remote_code(Path(directory))
    except DsocrError as error:
        show_error(error)
        return []
    on = st.toggle(
        f"Run the code in {plain(directory)}", key=f"trust {directory}", persist_state="session",
        help="The vendor backend runs the Python files of the checkpoint directory, with your rights.",
    )  # fmt: skip
    if not on:
        confirmed -= {permission for permission in confirmed if permission.startswith(f"{directory}@")}
    elif code.permission not in confirmed:  # never asked, or its files have changed since
        st.session_state["trust question"] = directory
        _confirm(code)
    return sorted(confirmed)


def _refuse() -> None:
    st.session_state[f"trust {st.session_state.get('trust question')}"] = False


@st.dialog("Run this checkpoint's code?", width="medium", on_dismiss=_refuse)
def _confirm(code: RemoteCode) -> None:
    if any(permission.startswith(f"{code.directory}@") for permission in st.session_state["trusted"]):
        st.warning("Its code has changed since you allowed it.")
    st.markdown("The vendor backend will run, with your rights, the Python files in")
    st.code(name_text(str(code.directory)), language=None, wrap_lines=True)
    lines = [f"{digest[:16]}  {name_text(name)}" for name, digest in sorted(code.files.items())]
    st.code("\n".join(lines) or "no files", language=None, height=min(32 + 20 * max(len(lines), 1), 232))
    st.markdown(
        "Do this only for a checkpoint you trust. You are asked again when one of these hashes (SHA-256) "
        "changes. Our engine never runs them."
    )
    yes, no = st.columns(2)
    if yes.button("Run its code", type="primary", width="stretch"):
        st.session_state["trusted"].add(code.permission)
        st.rerun()
    if no.button("Do not run it", width="stretch", on_click=_refuse):
        st.rerun()
