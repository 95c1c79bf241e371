"""Accuracy where there is ground truth: box F1, character error rate, reading order, for both sides."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from rapidfuzz.distance import Levenshtein

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.paths import PROJECT_ROOT
from dsocr_core.base.untrusted import Refused, parse_value, read_bytes
from dsocr_core.base.visible import name_text
from dsocr_core.reading.markup import SCALE, block_text, parse
from dsocr_core.reading.parity import is_plain
from dsocr_core.reading.postprocess import clean_text
from dsocr_core.reading.records import OcrResult
from dsocr_core.reading.scores import matched
from dsocr_core.review.page import PageReview

SAMPLE_TRUTH = PROJECT_ROOT / "data" / "samples" / "ground_truth.json"
FILE_LIMIT = 64 * 1024 * 1024
PAGE_LIMIT, BLOCK_LIMIT, TEXT_LIMIT = 100_000, 2000, 100_000
"""Pages of a file, blocks of a page, characters of a page's text that are measured."""

OMNIDOCBENCH_LABELS = {
    "title": "title",
    "text_block": "text",
    "reference": "text",
    "list_group": "text",
    "figure": "image",
    "figure_caption": "image_caption",
    "figure_footnote": "image_caption",
    "table": "table",
    "table_caption": "table_caption",
    "table_footnote": "table_footnote",
    "equation_isolated": "equation",
    "code_txt": "text",
}
"""Their categories as labels of the model; others (headers, footers, page numbers, masks) are not scored."""


class TruthError(DsocrError):
    """A file of true answers that cannot be read; names it and the cause."""


@dataclass(frozen=True)
class TrueBlock:
    """One block of the true answer; corners in pixels of the EXIF-corrected page."""

    label: str
    box: tuple[float, float, float, float]
    text: str


@dataclass(frozen=True)
class TruePage:
    """A page's true answer, its blocks in reading order."""

    width: int
    height: int
    blocks: tuple[TrueBlock, ...]


Truth = dict[str, TruePage]
"""By file name of the page."""


@dataclass(frozen=True)
class Accuracy:
    """One side of a page against the truth; None where there is nothing to count."""

    box_f1: float | None
    """At IoU 0.75 and equal label, 0..1."""
    character_error_rate: float | None
    """Levenshtein distance per true character, markup left out."""
    order_distance: float | None
    """Edit distance of the found blocks' order per found block, 0..1."""


# --- reading the truth --------------------------------------------------------------------------


def sample_truth() -> Truth:
    """The samples' own ground truth."""
    return read_truth(SAMPLE_TRUTH)


def read_truth(path: Path) -> Truth:
    """A JSON file as `data/samples/ground_truth.json` or in OmniDocBench's form, 64 MiB at most.

    Raises TruthError.
    """
    try:
        data = parse_value(read_bytes(path, FILE_LIMIT, follow_links=True), any_number=True)
    except Refused as error:
        raise TruthError(f"{path}: cannot be read: {error}; give a JSON document of true pages") from error
    try:
        if isinstance(data, list):
            pages = [_omnidocbench_page(page) for page in data[:PAGE_LIMIT]]
        else:
            pages = [(name, _own_page(page)) for name, page in [*data.items()][:PAGE_LIMIT]]
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise TruthError(
            f"{path}: neither as the samples' ground_truth.json nor as OmniDocBench writes it "
            f"({type(error).__name__}: {str(error)[:80]})"
        ) from error
    return {_file_name(name): page for name, page in pages}


def _own_page(page: Mapping[str, Any]) -> TruePage:
    blocks = (
        TrueBlock(str(block["label"]), _corners(block["box"]), str(block["text"]))
        for block in page["blocks"][:BLOCK_LIMIT]
    )
    return TruePage(_side(page["width"]), _side(page["height"]), tuple(blocks))


def _omnidocbench_page(page: Mapping[str, Any]) -> tuple[str, TruePage]:
    """`layout_dets` with `category_type`, `poly` (eight numbers) and a text; `order` is the reading order."""
    about = page["page_info"]
    found = []
    for number, block in enumerate(page["layout_dets"][:BLOCK_LIMIT]):
        label = OMNIDOCBENCH_LABELS.get(block["category_type"])
        if label is None or block.get("ignore"):
            continue
        poly = [float(value) for value in block["poly"]]
        corners = _corners([min(poly[::2]), min(poly[1::2]), max(poly[::2]), max(poly[1::2])])
        text = next((block[key] for key in ("text", "html", "latex") if block.get(key)), "")
        order = block.get("order")
        rank = (float(order), number) if order is not None else (math.inf, number)
        found.append((rank, TrueBlock(label, corners, str(text))))
    blocks = tuple(block for _, block in sorted(found, key=lambda item: item[0]))
    return str(about["image_path"]), TruePage(_side(about["width"]), _side(about["height"]), blocks)


def _corners(values: Sequence[Any]) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = (float(value) for value in values)
    if not all(map(math.isfinite, (x1, y1, x2, y2))):
        raise ValueError("a box is not finite")
    return x1, y1, x2, y2


def _side(value: Any) -> int:
    if not 0 < int(value) < 1_000_000:
        raise ValueError(f"a page side is {value}")
    return int(value)


def _file_name(name: str) -> str:
    return PureWindowsPath(PurePosixPath(name).name).name


# --- scoring ------------------------------------------------------------------------------------


def page_truth(truth: Truth, page: PageReview) -> TruePage | None:
    """The true answer of a page: by its name, its source or its path's file name, with the same page size."""
    for side, of_run in ((page.a, page.names[0]), (page.b, page.names[1])):
        names = (of_run, side.request.source, name_text(side.request.image)) if side else ()
        for name in (_file_name(name) for name in names if name):
            found = truth.get(name)
            if found is not None and side and side.image_size == (found.width, found.height):
                return found
    return None


def accuracy(side: OcrResult | None, truth: TruePage | None) -> Accuracy | None:
    """Score how a side read a page; None without a text or without the truth."""
    if side is None or truth is None:
        return None
    text = clean_text(side.text_raw)
    spans = () if is_plain(side) else parse(text, side.request.form)
    outside = text[: spans[0].start] if spans else text
    words = [outside.strip(), *(_plain(span.label, block_text(span)) for span in spans)]
    written_text = "\n\n".join(part for part in words if part)[:TEXT_LIMIT]
    true_text = "\n\n".join(block.text for block in truth.blocks if block.text)[:TEXT_LIMIT]
    errors = Levenshtein.distance(written_text, true_text) / len(true_text) if true_text else None
    if not spans:  # a text without boxes: nothing to say about them
        return Accuracy(None, errors, None)
    true = [(block.label, _scaled(block.box, truth)) for block in truth.blocks]
    written = [(box.label, _ordered(box.coordinates)) for box in side.boxes[:BLOCK_LIMIT]]
    found = matched(true, written, same_label=True)
    count = len(true) + len(written)
    found_order = [index for _, index in matched(true, written, same_label=False)]
    order = Levenshtein.distance(found_order, sorted(found_order)) / len(found_order) if found_order else None
    return Accuracy(2 * len(found) / count if count else None, errors, order)


def _plain(label: str, text: str) -> str:
    """A block's words: titles lose their mark."""
    return text.lstrip("#").lstrip() if label in ("title", "sub_title") else text


def _scaled(box: tuple[float, float, float, float], page: TruePage) -> tuple[float, float, float, float]:
    """Pixels as coordinates in 0..999, as the model is to write them."""
    sides = (page.width, page.height, page.width, page.height)
    x1, y1, x2, y2 = (float(int(value / side * SCALE)) for value, side in zip(box, sides, strict=True))
    return x1, y1, x2, y2


def _ordered(box: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    x1, y1, x2, y2 = box
    return min(x1, x2), min(y1, y2), max(x1, x2), max(y1, y2)
