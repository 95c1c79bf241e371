"""The Compare page on made-up pages and backends: they differ, are slow or break.

Started by the browser tests with the folder for the pages as its argument.
"""

import runpy
import sys
from pathlib import Path

import streamlit as st

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from dsocr_core.settings import Settings  # noqa: E402
from pages.widgets.shared import resources, sources  # noqa: E402
from pages.widgets.shared.runner import Runner  # noqa: E402
from pages.widgets.streamlit_mends import STYLE  # noqa: E402
from tests.support import fabricated_results as fabricated  # noqa: E402


@st.cache_resource
def stage(folder: str) -> Runner:
    samples = Path(folder)
    blocks = fabricated.make_samples(samples)
    blocks["many.png"] = fabricated.draw_page(samples / "many.png", 1500, 2400, 25, 40)
    pipeline = fabricated.FabricatedPipeline(blocks, pace=20.0, differ=lambda name: name.startswith("letter"))
    for name in ("invoice.png", "letter_tall.png", "many.png"):
        request = Settings(preset="small").request(samples / name, name)
        pipeline.record(request)
    sources.SAMPLES = samples
    return Runner(lambda settings: pipeline)


resources.runner = lambda: stage(sys.argv[1])
resources.runner()
st.set_page_config(page_title="made-up backends", layout="wide", initial_sidebar_state=300)
st.html(STYLE)
runpy.run_path(str(ROOT / "pages" / "compare.py"))
