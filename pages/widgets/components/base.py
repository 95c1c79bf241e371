"""Our browser components: HTML, CSS and JavaScript of a widget's own folder, nothing from a network."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st


@cache
def component(folder: Path, scripts: tuple[str, ...] = ()) -> Any:
    """The component in `folder`, whose files carry the folder's name. Registered once a process.

    `scripts` are its JavaScript files where there are several; they share one module scope.
    """
    html, css = ((folder / f"{folder.name}.{kind}").read_text("utf-8") for kind in ("html", "css"))
    js = "\n".join((folder / name).read_text("utf-8") for name in scripts or (f"{folder.name}.js",))
    return st.components.v2.component(f"dsocr_{folder.name}", html=html, css=css, js=js)
