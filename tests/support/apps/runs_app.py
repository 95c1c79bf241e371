"""The Runs page on a made-up history.

Started by the browser tests with the history's folder as its argument.
"""

import runpy
import sys
from pathlib import Path

import streamlit as st

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from dsocr_core.runs.store import History  # noqa: E402
from pages.widgets.shared import resources  # noqa: E402
from tests.support import listed_runs as made_runs  # noqa: E402


@st.cache_resource
def stage(folder: str) -> History:
    return made_runs.make(Path(folder))


resources.history = lambda: stage(sys.argv[1])
st.set_page_config(page_title="made-up runs", layout="wide", initial_sidebar_state=300)
runpy.run_path(str(ROOT / "pages" / "runs.py"))
