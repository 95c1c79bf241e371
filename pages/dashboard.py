"""The dashboard's script, run at every visit and click: page configuration and navigation, nothing else."""

import time
from pathlib import Path

import streamlit as st

from pages.widgets import streamlit_mends

HERE = Path(__file__).parent
streamlit_mends.finish_callbacks()
streamlit_mends.ignore_pages_left()
st.set_page_config(
    page_icon=str(HERE / "widgets" / "shared" / "icon.png"), layout="wide", initial_sidebar_state=300
)  # before everything: the browser lays the page out once
page = st.navigation([
    st.Page("compare.py", title="Compare", icon=":material/compare:", default=True),
    st.Page("review.py", title="Review", icon=":material/fact_check:"),
    st.Page("timing.py", title="Timing", icon=":material/timer:"),
    st.Page("runs.py", title="Runs", icon=":material/history:"),
    st.Page("flops.py", title="FLOPs and bounds", icon=":material/functions:"),
])  # fmt: skip
st.set_page_config(page_title=f"{page.title} · DeepSeek-OCR dashboard")
page.run()
st.session_state["drawn at"] = time.monotonic()  # for `shown_runs.watch`
