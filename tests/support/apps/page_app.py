"""A page of the app for the browser tests, started with its name and a folder.

Compare is on made-up pages and backends that differ and are slow; any other on the folder's history.
"""

import runpy
import sys
from pathlib import Path

import streamlit as st

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from dsocr_core.runs.history import History  # noqa: E402
from dsocr_core.settings import Settings  # noqa: E402
from pages.widgets.shared import resources, sources  # noqa: E402
from pages.widgets.shared.runner import Runner  # noqa: E402
from pages.widgets.streamlit_client import STYLE  # noqa: E402
from tests.support import fabricated_results as fabricated  # noqa: E402

name, folder = sys.argv[1], Path(sys.argv[2])


@st.cache_resource
def history() -> History:
    return History(folder)


@st.cache_resource
def runner() -> Runner:
    blocks = fabricated.make_samples(folder)
    blocks["many.png"] = fabricated.draw_page(folder / "many.png", 1500, 2400, 25, 40)
    pipeline = fabricated.FabricatedPipeline(blocks, 20.0, lambda name: name.startswith("letter"))
    for name in ("invoice.png", "letter_tall.png", "many.png"):
        pipeline.record(Settings(preset="small").request(folder / name, name))
    sources.SAMPLES = folder
    return Runner(lambda settings: pipeline)


if name == "compare":
    resources.runner = runner
    runner()
else:
    resources.history = history
st.set_page_config(page_title="made-up runs", layout="wide", initial_sidebar_state=300)
st.html(STYLE)
runpy.run_path(str(ROOT / "pages" / f"{name}.py"))
