"""Our browser components: HTML, CSS and JavaScript of a folder each, nothing from a network."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import streamlit as st

from dsocr_core.reading.records import SIDES, Side

_HERE = Path(__file__).parent
_SCRIPTS = {"viewer": ("geometry", "words", "drawing", "texts", "panes", "main")}
"""JavaScript of a component that has several files, in order: they share one module in the browser."""
MODES = ("texts", "2-up")
RUNS: dict[str, tuple[Side, ...]] = {"a": ("a",), "b": ("b",), "both": SIDES}
"""Sides to run by the action of a notice's button."""


def mount(name: str, key: str, data: dict[str, Any], **on_change: Any) -> Any:
    """Show `data`, JSON-ready values, in the component of that folder. Returns what the browser reports.

    Its scripts define `show(component)`.
    """
    return _component(name)(key=key, data={"since": _since(key, data), "shown": data}, **on_change)


@cache
def _component(name: str) -> Any:
    """The component in the folder of that name. Registered once a process."""
    folder = _HERE / name
    html, css = ((folder / f"{name}.{kind}").read_text("utf-8") for kind in ("html", "css"))
    files = [*(folder / f"{each}.js" for each in _SCRIPTS.get(name, (name,))), _HERE / "calls.js"]
    js = "\n".join(file.read_text("utf-8") for file in files)
    return st.components.v2.component(f"dsocr_{name}", html=html, css=css, js=js)


def _since(key: str, data: dict[str, Any]) -> int:
    """Say when these became the data of `key` in this session, in ms since 1970: for newer data always later.

    A time, so that data of a new session are newer than those of the one before.
    """
    digest = blake2b(json.dumps(data).encode(), digest_size=16).digest()
    known: dict[str, tuple[bytes, int]] = st.session_state.setdefault("component data", {})
    shown, since = known.get(key, (b"", 0))
    if shown != digest:
        since = max(time.time_ns() // 1_000_000, since + 1)
        known[key] = digest, since
    return since


def watch_page(key: str) -> None:
    """Mend a page in the browser: Tab out of a table, and words typed while it is redrawn; draws nothing."""
    mount("page", key, {})


def show_gallery(
    key: str, label: str, items: Sequence[dict[str, Any]], on_pick: Callable[[str], None]
) -> None:
    """Mount a grid of pages to pick one from; a callback takes the key of the page that was picked.

    An item has key, name, title, words, tone and sign (of `shared.labels`), readings (of A and B, or
    nothing), verdict (a reviewer's word or ""), url ("" while it is not made).
    """

    def take() -> None:
        picked = st.session_state[key].get("picked")
        if isinstance(picked, dict) and isinstance(name := picked.get("key"), str):
            on_pick(name)

    mount("gallery", key, {"label": label, "items": list(items)}, on_picked_change=take)


def show_viewer(
    key: str, data: dict[str, Any], on_selected: Callable[[], None], on_mode: Callable[[], None]
) -> tuple[Side, ...]:
    """Mount the page viewer. States `selected` and `mode` go to the callbacks, read from session state.

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
        "viewer", key, data, on_selected_change=on_selected, on_mode_change=on_mode,
        on_actions_change=lambda: None, on_run_change=lambda: None,
    )  # fmt: skip
    return RUNS.get(result.run, ()) if isinstance(result.run, str) else ()
