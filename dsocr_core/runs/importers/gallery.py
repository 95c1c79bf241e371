"""Pages of a run of llm-perf-opt: `predictions.jsonl` and the folders `viz/<md5>/`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.reading.artifacts import RESULT_IMAGE, RESULT_MMD, folder_key
from dsocr_core.runs.importers.imported import Row
from dsocr_core.runs.importers.reading import (
    PICTURE_LIMIT,
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


@dataclass(frozen=True)
class Page:
    """One reading of one image. Times in ms by their stage names; a stage that is missing was not timed."""

    image: str
    """The image's path as the run had it."""
    text_raw: str | None
    times: dict[str, float]
    tokens: int | None = None
    boxes: tuple[Row, ...] = ()
    folder: str | None = None
    """Name of its folder under `viz/`."""
    error: str | None = None
    """Why it could not be read, where the file says so."""


def _page(data: dict[str, Any], image: str, times: dict[str, Any], **more: Any) -> Page:
    if (path := text_or_none(data.get(image), image)) is None:
        raise InvalidFile("names no image")
    found = {stage: number(times.get(stage), f"time of {stage}") for stage in STAGES}
    return Page(
        path,
        text_or_none(data.get("text_raw"), "text_raw"),
        {stage: value for stage, value in found.items() if value},  # their writer puts 0 where none was timed
        error=text_or_none(data.get("error"), "error"),
        **more,
    )


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
            data = as_json(line)
            times = {stage: data.get(f"{stage}_ms") for stage in STAGES}
            pages.append(_page(data, "image", times, tokens=whole(data.get("tokens"), "tokens") or None))
        except InvalidFile as error:
            left_out.append(f"line {count}: {error}")
    return pages, left_out


def read_gallery(folder: Path) -> tuple[Page, bytes]:
    """A page and the content of its `info.json`. Raises InvalidFile."""
    content = read_bytes(folder / "info.json", TEXT_LIMIT)
    data = as_json(as_text(content))
    boxes = data.get("boxes", [])
    if not isinstance(boxes, list):
        raise InvalidFile("boxes is not a list")
    page = _page(
        data, "source_image", mapping(data.get("timings_ms"), "timings_ms"),
        boxes=tuple(_box(box, index) for index, box in enumerate(boxes)),
    )  # fmt: skip
    # Theirs is the MD5 of the image's path.
    name = folder.name if re.fullmatch(r"[0-9a-f]{32}", folder.name) else folder_key(page.image)
    return replace(page, folder=name), content


def _box(data: Any, index: int) -> Row:
    values = mapping(data, f"box {index}")
    for name in ("x", "y", "w", "h"):
        if isinstance(values.get(name), bool) or not isinstance(values.get(name), int | float):
            raise InvalidFile(f"box {index} has no number {name}")
    x, y, w, h = (float(values[name]) for name in ("x", "y", "w", "h"))
    words = {name: text_or_none(values.get(name), f"{name} of box {index}") for name in ("text", "label")}
    return {"x1": x, "y1": y, "x2": x + w, "y2": y + h, **words}


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
            if file in crops and not re.fullmatch(r"\d{1,6}\.jpg", file.name):
                raise InvalidFile("not a numbered crop")
            content = read_bytes(file, TEXT_LIMIT if file.name == RESULT_MMD else PICTURE_LIMIT)
            if file.name == RESULT_MMD:
                as_text(content)
            elif not content.startswith(b"\xff\xd8\xff"):
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
        same = [
            index
            for index, page in enumerate(pages)
            if page.image == shown.image and page.text_raw in (shown.text_raw, None)
        ]
        if same:
            page = pages[same[-1]]
            pages[same[-1]] = replace(
                shown, times=shown.times | page.times, tokens=page.tokens, error=page.error or shown.error
            )
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
    for depth in range(1, _NAME_DEPTH + 1):
        ends = Counter(each[-depth:] for each in parts.values())
        names = {
            image: "/".join(each[-depth:]) for image, each in parts.items() if ends[each[-depth:]] == 1
        } | names
    result: dict[str, None] = {}
    readings: Counter[str] = Counter()
    for image in images:
        name = names.get(image, image)
        while name in result:
            readings[image] += 1
            name = f"{names.get(image, image)} ({readings[image] + 1})"
        result[name] = None
    return list(result)


def _parts(image: str) -> tuple[str, ...]:
    windows = re.match(r"[A-Za-z]:\\|\\\\", image) is not None
    parts = (PureWindowsPath(image) if windows else PurePosixPath(image)).parts
    return tuple(part for part in parts if part not in ("/", "..")) or (image,)
