"""Files that users of llm-perf-opt know: `viz/<md5 of the image's path>/` a page, and `predictions.jsonl`.

The first backend lies at the top, the vendor's under `vendor/`, any other's under `backends/NAME/`. A page's
folder appears when it is whole; text of the model never becomes a path. A page that could not be read has its
error in both.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, Any

from PIL import Image

from dsocr_core.base.errors import DsocrError
from dsocr_core.base.sanitise import json_bytes, name_text
from dsocr_core.models.family import inside_prefill
from dsocr_core.models.spec import Markup
from dsocr_core.models.stages import Stage
from dsocr_core.reading.fingerprints import file_of
from dsocr_core.reading.markup import Form
from dsocr_core.reading.postprocess import clean_text, crops, page_prefix, result_mmd
from dsocr_core.reading.records import VENDOR, BackendName, OcrResult
from dsocr_core.reading.render import draw_boxes

RESULT_IMAGE, RESULT_MMD = "result_with_boxes.jpg", "result.mmd"
INFO, PREDICTIONS = "info.json", "predictions.jsonl"
RESULT_NAMES: Mapping[Markup, str] = {"ref": RESULT_MMD, "det": "result.md"}
"""Name of the text by its form, as published."""


class ArtifactError(DsocrError):
    """Results could not be written; names the path and the cause."""


BACKENDS = "backends"
"""Folder of the files of a backend that is neither the first nor the vendor."""


def backend_folder(backend: BackendName, first: BackendName | None = None) -> str:
    """Name the folder of a backend's files: `vendor/`, the top for the first one, else `backends/NAME/`."""
    if backend == VENDOR:
        return VENDOR
    at_top = backend == first or (first is None and backend in ("eager", "fast"))
    return "" if at_top else f"{BACKENDS}/{backend}"


def page_key(image: Path) -> str:
    """Name of a page's folder: MD5 of the resolved image path as UTF-8."""
    return folder_key(str(image.resolve()))


def folder_key(path: str) -> str:
    """`page_key` of a path as it was recorded, here or on another machine."""
    return hashlib.md5(os.fsencode(path), usedforsecurity=False).hexdigest()


class Export:
    """The form of llm-perf-opt beside a run: a page's folder when it was read, all lines at the run's end."""

    def __init__(self, directory: Path, first: BackendName) -> None:
        """`first` is the backend whose files lie at the top."""
        self.directory, self._first = directory, first

    def add(self, result: OcrResult, pages: Sequence[Image.Image]) -> None:
        """Write one result on its RGB pages. Raises ArtifactError."""
        folder = self.folder(result.backend, result.request.image)
        with _writing(folder):
            write_page(result, pages, folder)

    def add_failure(self, backend: BackendName, source: str, image: Path | None, error: str) -> None:
        """Write why a backend could not read a page. Raises ArtifactError."""
        info = failure(backend, source, image, error)
        info["source_image"] = info.pop("image")
        folder = self.folder(backend, image or Path(source))
        with _writing(folder), _appearing(folder) as temporary:
            (temporary / INFO).write_bytes(json_bytes(info, indent=1) + b"\n")

    def clear(self, backends: Iterable[BackendName]) -> None:
        """Remove what a writer that was killed left half written. Raises ArtifactError."""
        with _writing(self.directory):
            for backend in backends:
                for half in (self._root(backend) / "viz").glob(".part-*"):
                    shutil.rmtree(half)

    def folder(self, backend: BackendName, image: Path) -> Path:
        """Name the folder of a page's files."""
        return self._root(backend) / "viz" / page_key(image)

    def write_lines(self, lines: Iterable[Mapping[str, Any]]) -> None:
        """Write every `predictions.jsonl` anew. Raises ArtifactError."""
        files: dict[Path, IO[bytes]] = {}
        with _writing(self.directory), ExitStack() as stack:
            for line in lines:
                root = self._root(line["backend"])
                if root not in files:
                    root.mkdir(parents=True, exist_ok=True)
                    files[root] = stack.enter_context((root / f".part-{PREDICTIONS}").open("wb"))
                files[root].write(json_bytes(line) + b"\n")
            stack.close()
            for root in files:
                (root / f".part-{PREDICTIONS}").replace(root / PREDICTIONS)

    def _root(self, backend: BackendName) -> Path:
        return self.directory / backend_folder(backend, self._first)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        cause = error.strerror or " ".join(str(error).split())
        raise ArtifactError(
            f"{folder}: results could not be written ({cause}); make room or give another directory"
        ) from error


def write_page(result: OcrResult, pages: Sequence[Image.Image], folder: Path) -> None:
    """Write a reading's files into `folder`, which appears whole or not at all. Raises OSError.

    Pages of one prompt have a picture with boxes each, and crops under names of their own, as published.
    """
    form = result.request.form
    with _appearing(folder) as temporary:
        (temporary / "images").mkdir()
        for number, page in enumerate(pages):
            boxes = [box for box in result.boxes if box.page == number]
            draw_boxes(page, boxes).save(temporary / result_image(form, number), quality=92)
            spans = [span for span in result.blocks if span.page == number]
            prefix = "" if form.pages is None else page_prefix(number)
            for crop, area in crops(spans, *page.size).items():
                page.crop(area).save(temporary / "images" / f"{prefix}{crop}.jpg", quality=95)
        markdown = result_mmd(result.text_raw, form, result.blocks)
        (temporary / RESULT_NAMES[form.markup]).write_bytes(markdown.encode(errors="replace"))
        (temporary / INFO).write_bytes(json_bytes(_info(result), indent=1) + b"\n")


def result_image(form: Form, number: int) -> str:
    """Name of a page's picture with its boxes."""
    return RESULT_IMAGE if form.pages is None else RESULT_IMAGE.replace(".", f"_{number}.")


@contextmanager
def _appearing(folder: Path) -> Iterator[Path]:
    """A folder to write into, which replaces `folder` when the block ends well."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".part-{secrets.token_hex(8)}")
    temporary.mkdir()
    try:
        yield temporary
        shutil.rmtree(folder, ignore_errors=True)
        temporary.replace(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _info(result: OcrResult) -> dict[str, Any]:
    form, images = result.request.form, result.request.images
    several = form.pages is not None
    pages = [
        {"source_image": name_text(image.resolve()), "result_image": result_image(form, number)}
        for number, image in enumerate(images)
    ]
    return {
        **pages[0],
        "result_mmd": RESULT_NAMES[form.markup],
        "text_raw": result.text_raw,
        "text_clean": clean_text(result.text_raw),
        "timings_ms": {timing.stage.value: timing.milliseconds for timing in result.timings},
        "boxes": [
            {"x": box.x1, "y": box.y1, "w": box.x2 - box.x1, "h": box.y2 - box.y1}
            | {"text": box.text, "label": box.label}
            | ({"page": box.page} if several else {})
            for box in result.boxes
        ],
        **({"pages": pages, "notes": result.notes} if several else {}),
    }


def failure(backend: BackendName, source: str, image: Path | None, error: str) -> dict[str, Any]:
    """The line of a page that a backend could not read."""
    path = name_text((image or Path(source)).resolve())
    return {"image": path, "source": source, "backend": backend, "error": error}


def prediction(result: OcrResult, key: str | None) -> dict[str, Any]:
    """The line of a page; `key` is a name for all that decided it."""
    file = file_of(result.request)
    measured = [ms for stage in inside_prefill() if (ms := result.milliseconds(stage)) is not None]
    return {
        "image": name_text(result.request.image.resolve()),
        "source": result.request.name,
        "backend": result.backend,
        "text_raw": result.text_raw,
        "text_clean": clean_text(result.text_raw),
        "prefill_ms": result.milliseconds(Stage.PREFILL),
        "decode_ms": result.milliseconds(Stage.DECODE),
        "vision_ms": sum(measured) if measured else None,
        "tokens": result.new_tokens,
        "finish_reason": result.finish_reason,
        "preset": result.request.preset,
        "prompt": result.request.prompt,
        "environment": result.environment,
        "bytes": file and file.bytes,
        "sha256": file and file.sha256,
        **({"key": key} if key else {}),
    }
