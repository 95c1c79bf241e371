"""Pages of a run of llm-perf-opt: `predictions.jsonl` and the folders `viz/<md5>/`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.base.errors import one_line
from dsocr_core.reading.artifacts import INFO, RESULT_IMAGE, RESULT_MMD
from dsocr_core.runs.importers.imported import FAULTS, MIB, Row, RunFiles, as_json, shared_folders

STAGES = ("prefill", "decode", "vision", "sam", "clip", "projector")
SIZES = ("bytes", "width", "height")
_PICTURE_LIMIT = 64 * MIB
_TYPES = {"text_raw": str, "error": str, "tokens": int}

Page = dict[str, Any]
"""One reading of one image as a row of `readings`; its name is `path`, as the run had it, until all are."""


def _page(data: Mapping[str, Any], image: str, times: Mapping[str, Any], suffix: str = "") -> Page:
    if not isinstance(path := data.get(image), str) or not path:
        raise InvalidFile("names no image")
    for name, kind in _TYPES.items():
        if data.get(name) is not None and not isinstance(data[name], kind):
            raise InvalidFile(f"{name} is {data[name]!r:.40}, not of type {kind.__name__}")
    found = {stage: times.get(f"{stage}{suffix}") for stage in STAGES}
    if any(value < 0 for value in found.values() if value is not None):
        raise InvalidFile("a time below 0")
    boxes = [
        {"number": number, "text": box.get("text"), "label": box.get("label"), "x1": box["x"], "y1": box["y"],
         "x2": box["x"] + box["w"], "y2": box["y"] + box["h"]}
        for number, box in enumerate(data.get("boxes") or ())
    ]  # fmt: skip
    # Their writer puts 0 where nothing was timed.
    taken = [{"stage": stage, "milliseconds": value} for stage, value in found.items() if value]
    return {
        "page": path, "path": path, "text_raw": data.get("text_raw") or None, "boxes": boxes or None,
        "new_tokens": data.get("tokens") or None, "error": data.get("error") or None, "times": taken or None,
    }  # fmt: skip


def read_predictions(text: str, left_out: list[str]) -> list[Page]:
    """The pages of a `predictions.jsonl`; why lines were left out goes to a list. Raises InvalidFile."""
    pages: list[Page] = []
    for count, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            try:
                pages.append(_page(data := as_json(line), "image", data, "_ms"))
            except FAULTS as error:
                left_out.append(f"line {count}: {one_line(error, 200)}")
    if not pages:
        raise InvalidFile(f"no page could be read: {left_out.pop(0)}" if left_out else "empty")
    return pages


def read_gallery(run: RunFiles, gallery: Path) -> list[Page]:
    """The pages in the folders of a gallery, their files taken as `viz/<md5>/`."""

    def shown(text: str) -> list[Page]:
        data = as_json(text)
        return [_page(data, "source_image", data.get("timings_ms") or {})]

    pages: list[Page] = []
    for info in sorted(gallery.glob(f"{'[0-9a-f]' * 32}/{INFO}")):
        folder, place = info.parent, f"viz/{info.parent.name}"
        if folder.is_symlink() or f"{place}/{INFO}" in run.digests:
            continue
        if (found := run.take(f"{place}/{INFO}", info, shown, "readings")) is None:
            continue
        pages += found
        crops = [] if (folder / "images").is_symlink() else sorted(folder.glob("images/[0-9]*.jpg"))
        for file in (folder / RESULT_MMD, folder / RESULT_IMAGE, *crops):
            role = f"{place}/{file.relative_to(folder).as_posix()}"
            if file.name == RESULT_MMD and file.exists():
                run.take(role, file, str)
            elif file.exists():
                _keep_picture(run, role, file)
    return pages


def _keep_picture(run: RunFiles, role: str, file: Path) -> None:
    try:
        if not (content := read_bytes(file, _PICTURE_LIMIT)).startswith(b"\xff\xd8\xff"):
            raise InvalidFile("not a JPEG picture")
        run.keep(role, file, content)
    except InvalidFile as error:
        run.skip(file, str(error))


def join(predictions: Sequence[Page], shown: Iterable[Page], inputs: Iterable[Row]) -> list[Page]:
    """Every reading once, named: a page of the gallery is the last prediction of its image with its text.

    A run that cycles over its images reads some of them again, but keeps one folder for each. An input that
    was not read is a page of which nothing else is known.
    """
    pages = list(predictions)
    places = {(page["path"], page["text_raw"]): place for place, page in enumerate(pages)}
    for each in shown:
        if (place := places.get((each["path"], each["text_raw"]))) is None:
            pages.append(each)
        else:
            pages[place] = {name: pages[place][name] or value for name, value in each.items()}
    sizes = {each["path"]: each for each in inputs}
    unread = sizes.keys() - {page["path"] for page in pages}
    pages += [
        {**each} for path, each in sizes.items() if path in unread and any(each[name] for name in SIZES)
    ]
    pages = [{**sizes.get(page["path"], {}), **page} for page in pages]
    names = page_names([page["path"] for page in pages])
    return [page | {"page": name} for page, name in zip(pages, names, strict=True)]


def page_names(images: Sequence[str]) -> list[str]:
    """A name for each image: its path in the folder that all have in common; of its second reading
    `name (2)`.

    The name pairs the page with the same page of other runs, so it does not hold the folder of a machine.
    """
    parts = [_parts(image) for image in images]
    shared = shared_folders(each[:-1] for each in parts)
    names: dict[str, None] = {}
    readings: Counter[str] = Counter()
    for each in parts:
        name = first = "/".join(each[shared:])
        while name in names:
            readings[first] += 1
            name = f"{first} ({readings[first] + 1})"
        names[name] = None
    return list(names)


def _parts(image: str) -> tuple[str, ...]:
    kind = PureWindowsPath if re.match(r"[A-Za-z]:\\|\\\\", image) else PurePosixPath
    return tuple(part for part in kind(image).parts if part not in ("/", "..")) or (image,)
