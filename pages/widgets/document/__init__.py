"""The safe way to show model text: a component that writes plain blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from pages.widgets.component import component
from pages.widgets.document.blocks import Block, Change

Column = tuple[str, Sequence[Block]]


_HERE = Path(__file__).parent


def show_columns(
    key: str, columns: Sequence[Column], selected: int | None, on_select: Callable[[], None]
) -> None:
    """Columns of blocks side by side. A click on a block of a box reports its pair as state `selected`."""
    data = [{"title": title, "blocks": [asdict(block) for block in blocks]} for title, blocks in columns]
    component(_HERE)(key=key, data={"columns": data, "selected": selected}, on_selected_change=on_select)


def show_difference(key: str, runs: list[tuple[str, Change]]) -> None:
    """One text with what only ours has struck through and what only the vendor has underlined."""
    block = {"kind": "runs", "runs": runs, "box": None}
    columns = [{"title": "ours only is struck through, vendor only is underlined", "blocks": [block]}]
    component(_HERE)(key=key, data={"columns": columns, "selected": None}, on_selected_change=lambda: None)
