"""Pages of a run of llm-perf-opt: `predictions.jsonl` and the folders `viz/<md5>/`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.reading.artifacts import RESULT_IMAGE, RESULT_MMD, folder_key
from dsocr_core.runs.importers.imported import Row
from dsocr_core.runs.importers.reading import (
    TEXT_LIMIT,
    as_json,
    as_text,
    mapping,
    number,
    text_or_none,
    whole,
)

STAGES = ("prefill", "decode", "vision", "sam", "clip", "projector")
PAGE_LIMIT = 100_000
_NAME_DEPTH = 8
"""Folders of a path that a page's name may need; beyond, it is the whole path."""

_MD5 = re.compile(r"[0-9a-f]{32}")
_CROP = re.compile(r"\d{1,6}\.jpg")
_JPEG = b"\xff\xd8\xff"
_PICTURE_LIMIT = 64 * 1024 * 1024


@dataclass(frozen=True)
class Page:
    """One reading of one image. Times in ms by their stage names; a stage that is missing was not timed."""

    image: str
    """The image's path as the run had it."""
    text_raw: str | None
    times: dict[str, float]
    tokens: int | None = None
    boxes: tuple[Row, ...] = ()
    """Corners in pixels, text and label of each."""
    folder: str | None = None
    """Name of its folder under `viz/`."""
    error: str | None = None
    """Why it could not be read, where the file says so."""


def read_predictions(text: str) -> tuple[list[Page], list[str]]:
    """The pages of a `predictions.jsonl`, and why lines were left out, one sentence each."""
    pages: list[Page] = []
    left_out: list[str] = []
    for count, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            if len(pages) >= PAGE_LIMIT:
                raise InvalidFile(f"more than {PAGE_LIMIT:,} pages")
            pages.append(_prediction(as_json(line)))
        except InvalidFile as error:
            left_out.append(f"line {count}: {error}")
    return pages, left_out


def _prediction(data: dict[str, Any]) -> Page:
    image = text_or_none(data.get("image"), "image")
    if image is None:
        raise InvalidFile("names no image")
    return Page(
        image=image,
        text_raw=text_or_none(data.get("text_raw"), "text_raw"),
        times=_times({stage: data.get(f"{stage}_ms") for stage in STAGES}),
        tokens=whole(data.get("tokens"), "tokens") or None,
        error=text_or_none(data.get("error"), "error"),
    )


def read_gallery(folder: Path) -> tuple[Page, dict[str, Path], bytes, list[tuple[Path, str]]]:
    """A page, its files by their place, the content of its `info.json`, and files that are refused, with why.

    Raises InvalidFile when `info.json` cannot be taken.
    """
    content = read_bytes(folder / "info.json", TEXT_LIMIT)
    data = as_json(as_text(content))
    image = text_or_none(data.get("source_image"), "source_image")
    if image is None:
        raise InvalidFile("names no source image")
    listed = data.get("boxes", [])
    if not isinstance(listed, list):
        raise InvalidFile("boxes is not a list")
    page = Page(
        image=image,
        text_raw=text_or_none(data.get("text_raw"), "text_raw"),
        times=_times(mapping(data.get("timings_ms"), "timings_ms")),
        boxes=tuple(_box(box, index) for index, box in enumerate(listed)),
        folder=folder_name(folder.name, image),
        error=text_or_none(data.get("error"), "error"),
    )
    files, refused = page_files(folder)
    return page, files, content, refused


def page_files(folder: Path) -> tuple[dict[str, Path], list[tuple[Path, str]]]:
    """The files that the vendor's `save_results` writes for a page, and those among them that are refused."""
    files: dict[str, Path] = {}
    refused: list[tuple[Path, str]] = []
    images = folder / "images"
    crops = sorted(images.glob("*.jpg")) if images.is_dir() and not images.is_symlink() else []
    for file in (folder / RESULT_MMD, folder / RESULT_IMAGE, *crops):
        if not file.exists() and not file.is_symlink():
            continue
        try:
            if file in crops and not _CROP.fullmatch(file.name):
                raise InvalidFile("not a numbered crop")
            content = read_bytes(file, TEXT_LIMIT if file.name == RESULT_MMD else _PICTURE_LIMIT)
            if file.name == RESULT_MMD:
                as_text(content)
            elif not content.startswith(_JPEG):
                raise InvalidFile("not a JPEG picture")
            files[file.relative_to(folder).as_posix()] = file
        except InvalidFile as error:
            refused.append((file, str(error)))
    return files, refused


def join(predictions: list[Page], galleries: Iterable[Page]) -> list[Page]:
    """Every reading once: a page of the gallery is the last prediction of its image with its text.

    A run that cycles over its images reads some of them again, but keeps one folder for each.
    """
    pages = list(predictions)
    for shown in galleries:
        for index in reversed(range(len(pages))):
            page = pages[index]
            if page.image == shown.image and page.text_raw in (shown.text_raw, None):
                pages[index] = replace(
                    page,
                    text_raw=shown.text_raw,
                    times=shown.times | page.times,
                    boxes=shown.boxes,
                    folder=shown.folder,
                    error=page.error or shown.error,
                )
                break
        else:
            pages.append(shown)
    return pages


def page_names(images: Iterable[str]) -> list[str]:
    """A name for each image that tells it from the others: its file name, longer where two would be equal.

    The name pairs the page with the same page of other runs, so it does not hold the folder of a machine
    unless it must. The second reading of an image is `name (2)`.
    """
    images = list(images)
    parts = {image: _parts(image) for image in images}
    names: dict[str, str] = {}
    unnamed = list(parts)
    for depth in range(1, _NAME_DEPTH + 1):
        by_name: dict[str, list[str]] = {}
        for image in unnamed:
            by_name.setdefault("/".join(parts[image][-depth:]), []).append(image)
        names |= {of_name[0]: name for name, of_name in by_name.items() if len(of_name) == 1}
        unnamed = [image for of_name in by_name.values() if len(of_name) > 1 for image in of_name]
    names |= {image: image for image in unnamed}
    taken: set[str] = set()
    readings: dict[str, int] = {}
    result = []
    for image in images:
        name = names[image]
        while name in taken:
            readings[image] = readings.get(image, 1) + 1
            name = f"{names[image]} ({readings[image]})"
        taken.add(name)
        result.append(name)
    return result


def _parts(image: str) -> tuple[str, ...]:
    windows = re.match(r"[A-Za-z]:\\|\\\\", image) is not None
    parts = (PureWindowsPath(image) if windows else PurePosixPath(image)).parts
    return tuple(part for part in parts if part not in ("/", "..")) or (image,)


def folder_name(name: str, image: str) -> str:
    """Name of a page's folder in the history: theirs where it is an MD5, else that of the image's path."""
    if _MD5.fullmatch(name):
        return name
    return folder_key(image)


def _times(data: dict[str, Any]) -> dict[str, float]:
    """Times by stage. Their writer puts 0 where nothing was timed."""
    times = {stage: number(data.get(stage), f"time of {stage}") for stage in STAGES}
    return {stage: value for stage, value in times.items() if value}


def _box(data: Any, index: int) -> Row:
    if not isinstance(data, dict):
        raise InvalidFile(f"box {index} is not an object")
    sides = []
    for name in ("x", "y", "w", "h"):
        value = data.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidFile(f"box {index} has no number {name}")
        sides.append(float(value))
    x, y, w, h = sides
    words = {name: text_or_none(data.get(name), f"{name} of box {index}") for name in ("text", "label")}
    return {"x1": x, "y1": y, "x2": x + w, "y2": y + h, **words}
