"""A run directory: `viz/<md5 of the image's path>/` a page and one `predictions.jsonl`.

The layout is the one that users of llm-perf-opt know. Our road lies at the top, the vendor's under
`vendor/`. A page's folder appears when it is whole; text of the model never becomes a path.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
from pathlib import Path
from typing import Any

from PIL import Image

from dsocr_core.errors import DsocrError
from dsocr_core.outputs.boxes import page_boxes
from dsocr_core.outputs.markup import parse
from dsocr_core.outputs.postprocess import clean_text, crops, result_mmd
from dsocr_core.outputs.render import draw_boxes
from dsocr_core.records import Box, OcrResult
from dsocr_core.stages import INSIDE_PREFILL, Stage

RESULT_IMAGE, RESULT_MMD, INFO, PREDICTIONS = (
    "result_with_boxes.jpg",
    "result.mmd",
    "info.json",
    "predictions.jsonl",
)


class ArtifactError(DsocrError):
    """Results could not be written; names the path and the cause."""


def page_key(image: Path) -> str:
    """Name of a page's folder: MD5 of the resolved image path as UTF-8."""
    return hashlib.md5(os.fsencode(image.resolve()), usedforsecurity=False).hexdigest()


class RunDirectory:
    """Collects the pages of one run. Made on the first page; each page is written at once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def add(self, result: OcrResult, page: Image.Image) -> Path:
        """Write one result on its RGB page; returns the page's folder. Raises ArtifactError."""
        root = self.directory if result.road == "ours" else self.directory / "vendor"
        folder = root / "viz" / page_key(result.request.image)
        prediction = _prediction(result)
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            again = folder.exists()
            write_page(result, page, folder)
            try:
                if again:
                    _drop_lines(root / PREDICTIONS, prediction["image"])
                _append(root / PREDICTIONS, _json_bytes(prediction) + b"\n")
            except OSError:
                shutil.rmtree(folder, ignore_errors=True)
                raise
        except OSError as error:
            cause = error.strerror or " ".join(str(error).split())
            raise ArtifactError(
                f"{folder}: results could not be written ({cause}); make room or give another directory"
            ) from error
        return folder


def write_page(result: OcrResult, page: Image.Image, folder: Path) -> None:
    """Write a page's files into `folder`, which appears whole or not at all. Raises OSError."""
    temporary = folder.with_name(f".part-{secrets.token_hex(8)}")
    temporary.mkdir()
    try:
        spans = parse(result.text_raw)
        boxes = page_boxes(spans, *page.size)
        draw_boxes(page, boxes).save(temporary / RESULT_IMAGE, quality=92)
        (temporary / RESULT_MMD).write_bytes(result_mmd(result.text_raw).encode(errors="replace"))
        (temporary / "images").mkdir()
        for number, area in crops(spans, *page.size).items():
            page.crop(area).save(temporary / "images" / f"{number}.jpg", quality=95)
        (temporary / INFO).write_bytes(_json_bytes(_info(result, boxes), indent=1) + b"\n")
        if folder.exists():
            # An earlier run of the same page into the same directory: out of the way, then gone.
            shutil.rmtree(folder.rename(temporary / "replaced"))
        temporary.replace(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _info(result: OcrResult, boxes: tuple[Box, ...]) -> dict[str, Any]:
    return {
        "source_image": str(result.request.image.resolve()),
        "result_image": RESULT_IMAGE,
        "result_mmd": RESULT_MMD,
        "text_raw": result.text_raw,
        "text_clean": clean_text(result.text_raw),
        "timings_ms": {timing.stage.value: timing.milliseconds for timing in result.timings},
        "boxes": [
            {
                "x": box.x1,
                "y": box.y1,
                "w": box.x2 - box.x1,
                "h": box.y2 - box.y1,
                "text": box.text,
                "label": box.label,
            }
            for box in boxes
        ],
    }


def _prediction(result: OcrResult) -> dict[str, Any]:
    measured = [ms for stage in INSIDE_PREFILL if (ms := result.milliseconds(stage)) is not None]
    return {
        "image": str(result.request.image.resolve()),
        "source": result.request.name,
        "road": result.road,
        "text_raw": result.text_raw,
        "text_clean": clean_text(result.text_raw),
        "prefill_ms": result.milliseconds(Stage.PREFILL),
        "decode_ms": result.milliseconds(Stage.DECODE),
        "vision_ms": sum(measured) if measured else None,
        "tokens": len(result.token_ids),
        "finish_reason": result.finish_reason,
        "preset": result.request.preset,
        "prompt": result.request.prompt,
        "environment": result.environment,
    }


def _json_bytes(data: Any, indent: int | None = None) -> bytes:
    """UTF-8 JSON; half surrogates, which a worker's message may hold, become question marks."""
    return json.dumps(data, ensure_ascii=False, indent=indent).encode(errors="replace")


def _append(file: Path, line: bytes) -> None:
    """Append a line, or leave the file as it was. Unbuffered: nothing is written after an error."""
    with file.open("ab", buffering=0) as handle:
        end = os.fstat(handle.fileno()).st_size
        try:
            rest = memoryview(line)
            while rest:
                rest = rest[os.write(handle.fileno(), rest) :]
            os.fsync(handle.fileno())
        except OSError:
            os.ftruncate(handle.fileno(), end)
            raise


def _drop_lines(file: Path, image: str) -> None:
    """Rewrite the file without the lines of an image that is read again."""
    if not file.exists():
        return
    temporary = file.with_name(f".part-{secrets.token_hex(8)}")
    try:
        with file.open("rb") as source, temporary.open("wb") as target:
            target.writelines(line for line in source if not _is_about(line, image))
        temporary.replace(file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _is_about(line: bytes, image: str) -> bool:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(data, dict) and data.get("image") == image
