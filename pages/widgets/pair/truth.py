"""Truth of a sample: the text of each of its blocks, which tells who is right where A and B differ."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dsocr_core.reading.markup import Box
from dsocr_core.reading.text_diff import plain, squeezed
from pages.widgets.shared import sources


@dataclass(frozen=True)
class TrueBlock:
    """A block of the page; `box` is (x1, y1, x2, y2) in pixels."""

    box: tuple[int, int, int, int]
    text: str

    def says(self, text: str) -> bool:
        """Tell whether the block says this, whatever the blanks and the spelling of markup."""
        return _shown(text) == _shown(self.text)


_STRUCTURE = dict.fromkeys(range(0xE000, 0xE020))
"""Marks of headings, list items and cells in a plain text, which the page does not write."""


def _shown(text: str) -> str:
    return squeezed(plain(text).translate(_STRUCTURE))


Truth = tuple[TrueBlock, ...]


def truth_of(picture: Path | None) -> Truth:
    """The blocks of a page that is one of the samples; empty for any other page."""
    if picture is None or picture.parent.resolve() != sources.SAMPLES:
        return ()
    return _samples(sources.SAMPLES).get(picture.name, ())


@cache
def _samples(folder: Path) -> dict[str, Truth]:
    try:
        pages = json.loads((folder / "ground_truth.json").read_text("utf-8"))
    except OSError:  # without the samples nothing is known
        return {}
    return {
        name: tuple(TrueBlock(tuple(block["box"]), block["text"]) for block in page["blocks"])
        for name, page in pages.items()
    }


def block_at(truth: Truth, box: Box) -> TrueBlock | None:
    """The block that a box covers most of; None where it covers less than half of any."""
    best, share = None, 0.5
    for block in truth:
        x1, y1, x2, y2 = block.box
        across, down = min(x2, box.x2) - max(x1, box.x1), min(y2, box.y2) - max(y1, box.y1)
        covered = max(across, 0) * max(down, 0) / max((x2 - x1) * (y2 - y1), 1)
        if covered > share:
            best, share = block, covered
    return best
