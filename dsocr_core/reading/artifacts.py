"""Files that users of llm-perf-opt know: `viz/<md5 of the image's path>/` a page, and `predictions.jsonl`.

The first backend lies at the top, the vendor's under `vendor/`, any other's under `backends/NAME/`. Text of
the model never becomes a path.
"""

from __future__ import annotations

import colorsys
import hashlib
import os
import shutil
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any

from PIL import Image, ImageDraw, ImageFont

from dsocr_core.base.sanitise import json_bytes, name_text
from dsocr_core.models.stages import INSIDE_PREFILL, Stage
from dsocr_core.reading.fingerprints import files_of
from dsocr_core.reading.markup import Box, Form
from dsocr_core.reading.postprocess import clean_text, crops, result_mmd
from dsocr_core.reading.records import VENDOR, BackendName, OcrResult
from dsocr_core.reading.writing import writing

RESULT_IMAGE, RESULT_MMD = "result_with_boxes.jpg", "result.mmd"
INFO, PREDICTIONS = "info.json", "predictions.jsonl"
_TEXT_NAMES = {"ref": RESULT_MMD, "det": "result.md"}  # by the form of markup, as published
BACKENDS = "backends"
_turn = threading.Lock()  # two pages of a batch may be one file


def folder_key(path: str) -> str:
    """Name of a page's folder: MD5 of its image's resolved path as UTF-8, here or on another machine."""
    return hashlib.md5(os.fsencode(path), usedforsecurity=False).hexdigest()


class Export:
    """The form of llm-perf-opt in a run; `first` is the backend at the top. Raises StorageError."""

    def __init__(self, directory: Path, first: BackendName) -> None:
        self.directory, self._first = directory, first

    def add(self, result: OcrResult, pages: Sequence[Image.Image]) -> None:
        """Write one result on its RGB pages."""
        with writing(self.directory):
            write_page(result, pages, self.folder(result.backend, result.request.image))

    def folder(self, backend: BackendName, image: Path) -> Path:
        """Name the folder of a page's files."""
        return self._root(backend) / "viz" / folder_key(str(image.resolve()))

    def write_lines(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Write every `predictions.jsonl` again from these lines."""
        parts: dict[Path, IO[bytes]] = {}
        with writing(self.directory), ExitStack() as stack:
            for line in lines:
                part = self._root(line["backend"]) / f".part-{PREDICTIONS}"
                if part not in parts:
                    part.parent.mkdir(parents=True, exist_ok=True)
                    parts[part] = stack.enter_context(part.open("wb"))
                parts[part].write(json_bytes(line) + b"\n")
            stack.close()
            for part in parts:
                part.replace(part.with_name(PREDICTIONS))

    def _root(self, backend: BackendName) -> Path:
        if backend == VENDOR:
            return self.directory / VENDOR
        return self.directory if backend == self._first else self.directory / BACKENDS / backend


def write_page(result: OcrResult, pages: Sequence[Image.Image], folder: Path) -> None:
    """Write a reading's files into `folder`, which appears whole or not at all. Raises OSError.

    Pages of one prompt have a picture with boxes each, and crops under names of their own, as published.
    """
    form, several = result.request.form, result.request.form.pages is not None
    files = [
        {"source_image": name_text(image.resolve()), "result_image": result_image(form, number)}
        for number, image in enumerate(result.request.images)
    ]
    info = {
        **files[0],
        "result_mmd": _TEXT_NAMES[form.markup],
        "text_raw": result.text_raw,
        "text_clean": clean_text(result.text_raw),
        "timings_ms": {timing.stage.value: timing.milliseconds for timing in result.timings},
        "boxes": [
            {"x": box.x1, "y": box.y1, "w": box.x2 - box.x1, "h": box.y2 - box.y1, "text": box.text}
            | {"label": box.label, **({"page": box.page} if several else {})}
            for box in result.boxes
        ],
        **({"pages": files, "notes": result.notes} if several else {}),
    }
    temporary = folder.with_name(f".part-{folder.name}-{threading.get_ident()}")
    try:
        (temporary / "images").mkdir(parents=True)
        for number, page in enumerate(pages):
            own = [box for box in result.boxes if box.page == number]
            (draw_boxes(page, own) if own else page).save(temporary / result_image(form, number), quality=92)
            spans = [span for span in result.blocks if span.page == number]
            prefix = f"page_{number}_" if several else ""
            for crop, area in crops(spans, *page.size).items():
                page.crop(area).save(temporary / "images" / f"{prefix}{crop}.jpg", quality=95)
        markdown = result_mmd(result.text_raw, form, result.blocks)
        (temporary / _TEXT_NAMES[form.markup]).write_bytes(markdown.encode(errors="replace"))
        (temporary / INFO).write_bytes(json_bytes(info, indent=1) + b"\n")
        with _turn:
            shutil.rmtree(folder, ignore_errors=True)
            temporary.replace(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def result_image(form: Form, number: int) -> str:
    """Name of a page's picture with its boxes."""
    return RESULT_IMAGE if form.pages is None else RESULT_IMAGE.replace(".", f"_{number}.")


def failure(backend: BackendName, source: str, image: Path | None, error: str) -> dict[str, Any]:
    """The line of a page that a backend could not read."""
    path = name_text((image or Path(source)).resolve())
    return {"image": path, "source": source, "backend": backend, "error": error}


def prediction(result: OcrResult, key: str | None) -> dict[str, Any]:
    """The line of a page. `key` is a name for all that decided it."""
    request, (file, *_) = result.request, files_of(result.request)
    measured = [ms for stage in INSIDE_PREFILL if (ms := result.milliseconds(stage)) is not None]
    return {
        "image": name_text(request.image.resolve()),
        "source": request.name,
        "backend": result.backend,
        "text_raw": result.text_raw,
        "text_clean": clean_text(result.text_raw),
        "prefill_ms": result.milliseconds(Stage.PREFILL),
        "decode_ms": result.milliseconds(Stage.DECODE),
        "vision_ms": sum(measured) if measured else None,
        "tokens": result.new_tokens,
        "finish_reason": result.finish_reason,
        "preset": request.preset,
        "prompt": request.prompt,
        "environment": result.environment,
        "bytes": file and file.bytes,
        "sha256": file and file.sha256,
        **({"key": key} if key else {}),
    }


# --- boxes drawn on the page ----------------------------------------------------------------------

MAX_DRAWN, MAX_FILLED_PAGES = 2000, 16
"""Bounds of a hostile text: boxes, and the area that their fills cover in pages; others have an outline."""


def label_colour(label: str) -> tuple[int, int, int]:
    """The colour of a label: always the same one, on every page and in every run."""
    hue = hashlib.sha256(label.encode(errors="replace")).digest()[0] / 256
    red, green, blue = (round(255 * part) for part in colorsys.hls_to_rgb(hue, 0.40, 0.65))
    return red, green, blue


def draw_boxes(page: Image.Image, boxes: Sequence[Box]) -> Image.Image:
    """A copy of the RGB page with its boxes outlined, lightly filled and labelled; MAX_DRAWN at most."""
    picture = page.copy()
    pen, font = ImageDraw.Draw(picture, "RGBA"), ImageFont.load_default()
    allowance = MAX_FILLED_PAGES * page.width * page.height
    for box in boxes[:MAX_DRAWN]:
        # Far corners are moved near the page: Pillow walks every pixel of a line.
        x1, x2 = (min(max(x, -16), page.width + 16) for x in (box.x1, box.x2))
        y1, y2 = (min(max(y, -16), page.height + 16) for y in (box.y1, box.y2))
        colour = label_colour(box.label)
        allowance -= (x2 - x1) * (y2 - y1)
        fill = (*colour, 20) if allowance >= 0 else None
        pen.rectangle((x1, y1, x2, y2), fill=fill, outline=colour, width=4 if box.label == "title" else 2)
        origin = (x1, max(0, y1 - 15))  # as published
        # One line, in characters that every font of Pillow takes.
        label = " ".join(box.label[:40].split()).encode("latin-1", "replace").decode("latin-1")
        pen.rectangle(pen.textbbox(origin, label, font=font), fill=(255, 255, 255, 30))
        pen.text(origin, label, font=font, fill=colour)
    return picture
