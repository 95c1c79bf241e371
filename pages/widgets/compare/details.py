"""The tabs under the viewer: Text, Boxes, Tokens, Layers, Inputs, Timings, Files; and the commands."""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING

import streamlit as st

from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.base.specs.kinds import EagerSpec, FastSpec
from dsocr_core.reading.records import SIDES, OcrRequest
from dsocr_core.runs.commands import command_line
from dsocr_core.settings import Settings
from pages.widgets.compare import downloads
from pages.widgets.compare.address import key
from pages.widgets.pair import tabs, text
from pages.widgets.pair.shown import Shown
from pages.widgets.shared import figure, layers_tab

if TYPE_CHECKING:
    from dsocr_core.reading.parity import Comparison

_TIMINGS = "One run of each backend (n = 1); the first after a start is slower. Vision lies inside prefill."


def draw(shown: Shown, settings: Settings) -> None:
    """Draw the tabs; only the open one is computed."""
    drawers = {
        "Text": lambda: text.draw(shown),
        "Boxes": lambda: tabs.draw_boxes(shown),
        "Tokens": lambda: tabs.draw_tokens(shown),
        "Layers": lambda: layers_tab.draw(settings, shown.comparison),
        "Inputs": lambda: tabs.draw_inputs(shown),
        "Timings": lambda: tabs.draw_timings(shown, _TIMINGS),
        "Files": lambda: _files(shown),
    }
    figure.tabs(drawers, key("tab"))


# --- commands -------------------------------------------------------------------------------------


def commands(settings: Settings, comparison: Comparison) -> None:
    """Draw the command lines that read the page again, and that find why the texts differ."""
    again = reproduce_command(comparison.request, settings)
    with st.popover("Commands", width="content", key="commands"):
        st.caption("Read this page again:")
        st.code(again, language="bash", wrap_lines=True)
        if may_be_explained(settings, comparison):
            st.caption("Find why the texts differ, by trying other settings on A:")
            st.code(f"{again} --why 1", language="bash", wrap_lines=True)


def may_be_explained(settings: Settings, comparison: Comparison) -> bool:
    """Tell whether the texts differ and A is an engine of ours, on which causes can be tried."""
    a, b = comparison.a, comparison.b
    different = a is not None and b is not None and a.text_raw != b.text_raw
    return different and isinstance(settings.spec("a"), EagerSpec | FastSpec)


def reproduce_command(request: OcrRequest, settings: Settings) -> str:
    """The command line that reads this page again under these settings."""
    images = [
        str(image.relative_to(PROJECT_ROOT) if image.is_relative_to(PROJECT_ROOT) else image)
        for image in request.images
    ]
    more = ["--pages-together"] if request.together else []
    chosen = ((settings.a, settings.b)[place] for place, _ in enumerate(SIDES))
    named = (choice["spec"] if isinstance(choice, dict) else choice for choice in chosen)
    if any(name in settings.backends for name in named):
        more.append(f"--config={os.environ.get('DSOCR_CONFIG', 'FILE')}")
    return command_line("compare", asdict(settings), images, *more)


# --- Files ----------------------------------------------------------------------------------------


def _files(shown: Shown) -> None:
    comparison = shown.comparison
    st.caption(
        "For each side its text, the page with its boxes, `info.json` and the `images/` it cut out; "
        "for both `parity.json`, `boxes.csv` and `timings.csv`."
    )
    stem = comparison.request.name.rsplit(".", 1)[0] or "page"
    st.download_button(
        "Download all (zip)", lambda: downloads.archive(comparison, shown.rows),
        f"{stem}-{comparison.request.preset}.zip", "application/zip", on_click="ignore",
        icon=":material/download:", key="download all",
    )  # fmt: skip
