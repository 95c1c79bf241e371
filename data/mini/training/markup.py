"""Answers that the model is to write for a page, and their way back into boxes and text."""

import re
from enum import StrEnum

from data.mini.training.page import Block

LAST_BIN = 999

BLOCK = re.compile(
    r"<\|ref\|>([^<]*)<\|/ref\|><\|det\|>\[\[(\d{1,3}), (\d{1,3}), (\d{1,3}), (\d{1,3})\]\]<\|/det\|>\n?"
)


class Prompt(StrEnum):
    """The two prompts it is trained for: markdown with boxes, and the plain text alone."""

    GROUNDING = "<image>\n<|grounding|>Convert the document to markdown."
    FREE_OCR = "<image>\nFree OCR."


def bins(block: Block, width: int, height: int) -> tuple[int, int, int, int]:
    """The block's box in bins 0..999 of the page."""

    def bin_of(pixel: int, side: int) -> int:
        return min(LAST_BIN, max(0, int(pixel / side * LAST_BIN)))

    x1, y1, x2, y2 = block.box
    return bin_of(x1, width), bin_of(y1, height), bin_of(x2, width), bin_of(y2, height)


def page_markup(blocks: tuple[Block, ...], width: int, height: int) -> str:
    """Markdown with grounding, as the published model writes it; blocks are separated by an empty line."""
    parts = []
    for block in blocks:
        box = ", ".join(map(str, bins(block, width, height)))
        body = f"# {block.text}" if block.label == "title" else block.text
        parts.append(f"<|ref|>{block.label}<|/ref|><|det|>[[{box}]]<|/det|>\n{body}".rstrip("\n"))
    return "\n\n".join(parts)


def page_text(blocks: tuple[Block, ...]) -> str:
    """The words alone: no boxes, no heading marks; tables stay as they are, pictures leave nothing."""
    return "\n\n".join(block.text for block in blocks if block.text)


def answer(prompt: Prompt, blocks: tuple[Block, ...], width: int, height: int) -> str:
    """Make what the model is to write under `prompt` for a page of `width` x `height` px."""
    return page_markup(blocks, width, height) if prompt is Prompt.GROUNDING else page_text(blocks)


def parse_markup(markup: str) -> tuple[list[tuple[str, tuple[int, ...]]], str]:
    """(label, box in bins) of every well-formed block, and the text that is left without them."""
    boxes = [(found[0], tuple(map(int, found[1:]))) for found in BLOCK.findall(markup)]
    return boxes, BLOCK.sub("", markup).strip()
