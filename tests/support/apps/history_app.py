"""A page on a history. Started by the browser tests: the page's name, the history's folder."""

import runpy
import sys
from pathlib import Path

import streamlit as st

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from dsocr_core.runs.history import History  # noqa: E402
from pages.widgets.shared import resources  # noqa: E402
from pages.widgets.streamlit_mends import STYLE  # noqa: E402


@st.cache_resource
def history(folder: str) -> History:
    return History(folder)


resources.history = lambda: history(sys.argv[2])
st.set_page_config(page_title="made-up runs", layout="wide", initial_sidebar_state=300)
st.html(STYLE)
runpy.run_path(str(ROOT / "pages" / f"{sys.argv[1]}.py"))
