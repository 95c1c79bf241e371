"""The Compare page with a fault planted in our engine: one weight of CLIP's block 1 is not the checkpoint's.

Started by the browser tests.
"""

import runpy
import sys
from pathlib import Path

import streamlit as st

ROOT = Path(__file__).resolve().parents[3]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

import dsocr_core.trace.run as run  # noqa: E402

right = run.shared_checkpoint


def with_a_fault(*arguments):  # type: ignore[no-untyped-def]
    checkpoint = right(*arguments)
    weight = checkpoint.model.clip.transformer.layers[1].mlp.fc2.weight
    if not hasattr(checkpoint.model, "has_a_fault"):
        checkpoint.model.has_a_fault = True
        weight[5, 6] += 0.5
    return checkpoint


if run.shared_checkpoint.__name__ != "with_a_fault":
    run.shared_checkpoint = with_a_fault
st.set_page_config(page_title="a planted fault", layout="wide", initial_sidebar_state=300)
runpy.run_path(str(ROOT / "pages" / "compare.py"))
