"""The FLOPs page on a made-up history. Started by the browser tests with its folder as argument."""

import runpy
import sys
from pathlib import Path

import streamlit as st

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from dsocr_core.history.recorder import RunRecorder  # noqa: E402
from dsocr_core.history.store import History  # noqa: E402
from dsocr_core.outputs.comparison import Comparison  # noqa: E402
from dsocr_core.records import SIDES  # noqa: E402
from dsocr_core.settings import Settings  # noqa: E402
from pages.widgets.shared import resources  # noqa: E402
from tests.support.fabricated_results import FabricatedPipeline, make_samples  # noqa: E402


@st.cache_resource
def history(folder: str) -> History:
    """A run of four pages with both sides."""
    samples = Path(folder) / "samples"
    pipeline = FabricatedPipeline(make_samples(samples))
    settings = Settings(preset="small", history=f"{folder}/history")
    with RunRecorder(settings) as recorder:
        for name in pipeline.blocks:
            request = settings.request(samples / name, name)
            a, b = (pipeline.result(side, request) for side in SIDES)
            recorder.add(name, Comparison(request, a, b))
    return History(settings.history)


resources.history = lambda: history(sys.argv[1])
st.set_page_config(page_title="made-up runs", layout="wide", initial_sidebar_state=300)
runpy.run_path(str(ROOT / "pages" / "flops.py"))
