"""The safe way to show model text: a component that writes plain blocks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from dsocr_core.reading.text_diff import Runs
from pages.widgets.components.base import mount

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Block:
    """One block of plain text; `box` is the index of the pair that it is about."""

    kind: Literal["paragraph", "item"]
    text: str
    box: int | None = None


Column = tuple[str, Sequence[Block]]


def show_columns(
    key: str, columns: Sequence[Column], selected: int | None, on_select: Callable[[], None]
) -> None:
    """Columns of blocks side by side. A click on a block of a box reports its pair as state `selected`."""
    data = [{"title": title, "blocks": [asdict(block) for block in blocks]} for title, blocks in columns]
    mount(_HERE, key, {"columns": data, "selected": selected}, on_selected_change=on_select)


@dataclass(frozen=True)
class Aligned:
    """One line of two texts side by side; `box` is the index of the pair whose texts they are.

    A side without a text there has None.
    """

    caption: str
    left: Runs | None
    right: Runs | None
    box: int | None = None


def show_aligned(
    key: str,
    titles: tuple[str, str],
    lines: Sequence[Aligned],
    selected: int | None,
    on_select: Callable[[], None],
) -> None:
    """Two texts, block beside block. A click on the line of a box reports its pair as state `selected`."""
    blocks = [
        {"kind": "aligned", "caption": line.caption, "cells": [line.left, line.right], "box": line.box}
        for line in lines
    ]
    column = {"title": "", "titles": titles, "blocks": blocks}
    mount(_HERE, key, {"columns": [column], "selected": selected}, on_selected_change=on_select)
