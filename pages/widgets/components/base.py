"""Our browser components: HTML, CSS and JavaScript of a widget's own folder, nothing from a network."""

from __future__ import annotations

import json
import time
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import streamlit as st

_HERE = Path(__file__).parent
_SHARED = (_HERE / "rove.js", _HERE / "calls.js")


def mount(
    folder: Path, key: str, data: dict[str, Any], scripts: tuple[str, ...] = (), **on_change: Any
) -> Any:
    """Show `data`, JSON-ready values, in the component of `folder`. Returns what the browser reports.

    `scripts` are its JavaScript files where it has several. They define `show(component)`.
    """
    return _component(folder, scripts)(key=key, data={"since": _since(key, data), "shown": data}, **on_change)


@cache
def _component(folder: Path, scripts: tuple[str, ...]) -> Any:
    """The component in `folder`, whose files carry the folder's name. Registered once a process.

    All of its JavaScript is one module: what the files define they share.
    """
    html, css = ((folder / f"{folder.name}.{kind}").read_text("utf-8") for kind in ("html", "css"))
    files = [*(folder / name for name in scripts or (f"{folder.name}.js",)), *_SHARED]
    js = "\n".join(file.read_text("utf-8") for file in files)
    return st.components.v2.component(f"dsocr_{folder.name}", html=html, css=css, js=js)


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
