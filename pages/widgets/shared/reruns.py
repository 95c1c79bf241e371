"""Running a fragment again, also where a click reaches its button in a run of the whole page."""

from __future__ import annotations

from contextlib import suppress

import streamlit as st
from streamlit.errors import StreamlitInvalidLayoutContextError


def rerun_fragment() -> None:
    """Run the current fragment again; the whole page, where the page is what runs.

    A click in a fragment runs the fragment alone, unless the page was about to run anyway: then both are one
    run, in which Streamlit refuses to run a fragment again.
    """
    with suppress(StreamlitInvalidLayoutContextError):
        st.rerun(scope="fragment")
    st.rerun()
