"""The dashboard: page configuration and navigation, nothing else."""

import streamlit as st

st.set_page_config(
    page_title="DeepSeek-OCR dashboard", page_icon="pages/widgets/shared/icon.png", layout="wide",
    initial_sidebar_state=300,
)  # fmt: skip
st.navigation([
    st.Page("pages/compare.py", title="Compare", icon=":material/compare:", default=True),
    st.Page("pages/review.py", title="Review", icon=":material/fact_check:"),
    st.Page("pages/timing.py", title="Timing", icon=":material/timer:"),
    st.Page("pages/runs.py", title="Runs", icon=":material/history:"),
    st.Page("pages/flops.py", title="FLOPs and bounds", icon=":material/functions:"),
]).run()  # fmt: skip
