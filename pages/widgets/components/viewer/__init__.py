"""The page viewer: two panes with boxes, one view and one selection."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dsocr_core.reading.records import SIDES, Side
from pages.widgets.components.base import mount

_HERE = Path(__file__).parent
# In this order: they share one module scope in the browser.
_SCRIPTS = ("geometry.js", "words.js", "drawing.js", "texts.js", "panes.js", "main.js")

MODES = ("texts", "2-up", "swipe")
RUNS: dict[str, tuple[Side, ...]] = {"a": ("a",), "b": ("b",), "both": SIDES}
"""Sides to run by the action of a notice's button."""


def show_viewer(
    key: str,
    data: dict[str, Any],
    on_selected: Callable[[], None],
    on_mode: Callable[[], None],
    on_actions: Callable[[], None] = lambda: None,
) -> tuple[Side, ...]:
    """Mount the viewer. States `selected` and `mode` go to the callbacks, read from session state.

    `data`: image {id, url, width, height}, position {index, count}, names {a, b: what stands over the
    panes}, sides {a, b: {summary, message, action ("a", "b", "both" or ""), action_words}}, pairs
    (`pair.viewer.pair_values`), loose (`pair.viewer.loose_rows`), colours {label: "#rrggbb"}, mode, selected,
    divergence {a: index of the pair in which the tokens diverge, words} or None.

    Pages are turned by actions, which no rerun loses: the state `actions` lists those {n, act, subject} with
    n above `taken`; subject is what was shown. A page gives turns {taken, subject}; one with keys of its own
    gives around {taken, subject, keys, fields, cookie}: keys of {key, does, act or field}, `fields` a
    selector of what Enter and Escape leave. Returns the sides to run, which the user asked for just now.
    """
    result = mount(
        _HERE,
        key,
        data,
        _SCRIPTS,
        on_selected_change=on_selected,
        on_mode_change=on_mode,
        on_actions_change=on_actions,
        on_run_change=lambda: None,
    )
    return RUNS.get(result.run, ()) if isinstance(result.run, str) else ()
