"""The tabs under the viewer: Text, Boxes, Tokens, Why, Layers, Inputs, Timings, Files."""

from __future__ import annotations

import os
import shlex

import pandas as pd
import streamlit as st

from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.models.deepseek_ocr import PROMPTS
from dsocr_core.reading.records import VENDOR, OcrRequest
from dsocr_core.settings import Settings
from pages.widgets.compare import cause_tab, downloads
from pages.widgets.compare.address import key
from pages.widgets.pair import tabs, text
from pages.widgets.pair.shown import Shown
from pages.widgets.shared import figure, layers_tab, resources, table

_TIMINGS = "One run of each backend (n = 1); the first after a start is slower. Vision lies inside prefill."


def draw(shown: Shown, settings: Settings, picture: resources.Picture) -> None:
    """Draw the tabs; only the open one is computed."""
    comparison = shown.comparison
    drawers = {
        "Text": lambda: text.draw(shown),
        "Boxes": lambda: tabs.draw_boxes(shown),
        "Tokens": lambda: tabs.draw_tokens(shown),
        "Why": lambda: cause_tab.draw(
            settings, comparison, reproduce_command(comparison.request, settings, "why")
        ),
        "Layers": lambda: layers_tab.draw(settings, comparison),
        "Inputs": lambda: tabs.draw_inputs(shown, picture),
        "Timings": lambda: tabs.draw_timings(
            shown, _TIMINGS, reproduce_command(comparison.request, settings)
        ),
        "Files": lambda: _files(shown),
    }
    figure.tabs(drawers, key("tab"))


def reproduce_command(request: OcrRequest, settings: Settings, command: str = "compare") -> str:
    """The command line that runs this page again under these settings, or asks `why` it differs."""
    name = next((name for name, words in PROMPTS.items() if words == request.prompt), request.prompt)
    images = [
        str(image.relative_to(PROJECT_ROOT) if image.is_relative_to(PROJECT_ROOT) else image)
        for image in request.images
    ]
    limit = "inf" if request.max_new_tokens is None else str(request.max_new_tokens)
    words = ["python", "-m", "dsocr_core", command, *images, "--preset", request.preset, "--prompt", name,
             "--infer.max-new-tokens", limit]  # fmt: skip
    if request.together:
        words.append("--pages-together")
    for mode in ("eval_mode", "test_compress"):
        if getattr(request, mode):
            words += [f"--infer.{mode.replace('_', '-')}", "true"]
    words += ["--attention", settings.for_comparison().own_attention]
    sides = {"a": settings.a or settings.engine, "b": settings.b or VENDOR}
    own = {side: {"spec": choice} if isinstance(choice, str) else choice for side, choice in sides.items()}
    if any(choice["spec"] in settings.backends for choice in own.values()):
        words += ["--config", os.environ.get("DSOCR_CONFIG", "FILE")]
    if settings.a is not None or settings.b is not None or command == "why":
        for side, choice in own.items():
            words += [f"--{side}", str(choice["spec"])]
            for name, value in choice.items():
                words += [f"--{side}.{name}", str(value)] if name != "spec" else []
    if settings.engine != Settings.engine and command != "why":
        words += ["--engine", settings.engine]
    if settings.dtype != "auto":
        words += ["--dtype", settings.dtype]
    if not settings.is_embedded:
        words += ["--checkpoint", settings.checkpoint]
    return shlex.join(words)


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
    table.draw(pd.DataFrame({"file": downloads.listing(comparison)}), most=tabs.FEW, width=420)
