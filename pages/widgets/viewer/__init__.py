"""The page viewer: two panes with boxes, one view and one selection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dsocr_core.records import Road
from pages.widgets.component import component

_HERE = Path(__file__).parent
# In this order: they share one module scope in the browser.
_SCRIPTS = ("geometry.js", "drawing.js", "texts.js", "panes.js", "main.js")


ASKED: dict[str, tuple[Road, ...]] = {"ours": ("ours",), "vendor": ("vendor",), "both": ("ours", "vendor")}


def show_viewer(
    key: str, data: dict[str, Any], on_selected: Callable[[], None], on_mode: Callable[[], None]
) -> tuple[int, tuple[Road, ...]]:
    """Mount the viewer. States `selected` and `mode` go to the callbacks, read from session state.

    `data`: image {id, url, width, height}, position {index, count}, roads {ours, vendor: {summary,
    message, action ("ours", "vendor", "both" or "")}}, pairs (`payload.pair_values`),
    colours {label: "#rrggbb"}, mode, selected.
    Returns (pages to move by, roads to run), what the user asked for just now.
    """
    result = component(_HERE, _SCRIPTS)(
        key=key,
        data=data,
        on_selected_change=on_selected,
        on_mode_change=on_mode,
        on_page_change=lambda: None,
        on_run_change=lambda: None,
    )
    step = result.page if result.page in (1, -1) else 0
    return step, ASKED.get(result.run, ()) if isinstance(result.run, str) else ()
