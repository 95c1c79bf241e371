"""What the pages ask of the core about files and results, in the pages' own terms."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dsocr_core.errors import DsocrError
from dsocr_core.inputs import documents
from dsocr_core.markup import block_text
from dsocr_core.outputs import artifacts, postprocess, render
from dsocr_core.records import OcrResult

if TYPE_CHECKING:
    from PIL import Image


def changed_ns(path: Path) -> int:
    """When the file last changed. Raises DsocrError when it is not there."""
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise DsocrError(f"{path.name}: cannot be read ({error.strerror})") from error


def load_page(path: Path, max_pixels: int = documents.DEFAULT_MAX_PIXELS) -> Image.Image:
    """The page upright and RGB, as every backend reads it. Raises DsocrError."""
    return documents.load_image(path, max_pixels)


def label_colour(label: str) -> str:
    """The label's one colour as #rrggbb."""
    return "#{:02x}{:02x}{:02x}".format(*render.label_colour(label))


@dataclass(frozen=True)
class Segment:
    """A piece of the text: what follows a block. `box` is the index of its first box, None if it has none."""

    text: str
    label: str = ""
    box: int | None = None


def segments(result: OcrResult) -> list[Segment]:
    """The text in pieces: what stands before the first block, then what follows each."""
    text = postprocess.clean_text(result.text_raw)
    spans = result.blocks
    before = postprocess.leading_space(result.text_raw)
    pieces = [Segment(text[: spans[0].start - before] if spans else text)]
    count = 0
    for span in spans:
        words = block_text(span) or ("![picture]()" if span.label == postprocess.IMAGE_LABEL else "")
        pieces.append(Segment(words, span.label, count if span.boxes else None))
        count += len(span.boxes)
    return pieces


def malformed(result: OcrResult) -> list[tuple[str, str]]:
    """What began like a span but could not be read: (label, reason)."""
    return [(span.label[:80], span.malformed) for span in result.blocks if span.malformed is not None]


def plain_text(result: OcrResult) -> str:
    """The text without its markup, as in `result.mmd`."""
    return postprocess.result_mmd(result.text_raw, result.blocks)


def write_files(result: OcrResult, folder: Path) -> None:
    """Write the files of one result into `folder`. Raises DsocrError."""
    try:
        artifacts.write_page(result, load_page(result.request.image), folder)
    except OSError as error:
        raise DsocrError(f"{folder}: the files could not be written ({error.strerror or error})") from error
