"""Pages of a run of llm-perf-opt: `predictions.jsonl` and the folders `viz/<md5>/`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any

from dsocr_core.base.bounded_json import InvalidFile, read_bytes
from dsocr_core.reading.artifacts import INFO, RESULT_IMAGE, RESULT_MMD, folder_key
from dsocr_core.runs.importers.imported import (
    PICTURE_LIMIT,
    TEXT_LIMIT,
    Fields,
    Row,
    RunFiles,
    as_json,
    as_text,
    digest,
)

STAGES = ("prefill", "decode", "vision", "sam", "clip", "projector")
PAGE_LIMIT = 100_000
_NAME_DEPTH = 8
"""Folders of a path that a page's name may need; beyond, it is the whole path."""

Page = dict[str, Any]
"""One reading of one image as a row of `readings`: `page`, its name; `path` as the run had it; text, tokens,
boxes, `error`, and `times` in ms by their stage names; a stage that is missing was not timed.
"""


def _page_of(path: str, **more: Any) -> Page:
    """A page of which nothing else is known."""
    return dict.fromkeys(("text_raw", "new_tokens", "error", "boxes")) | {"path": path, "times": {}} | more


def _page(data: Fields, image: str, times: Fields, suffix: str = "") -> Page:
    if (path := data.text(image)) is None:
        raise InvalidFile("names no image")
    found = {stage: times.number(f"{stage}{suffix}") for stage in STAGES}
    return _page_of(
        path,
        text_raw=data.text("text_raw"),
        new_tokens=data.whole("tokens") or None,
        error=data.text("error"),
        boxes=[{"number": at, **_box(box)} for at, box in enumerate(data.objects("boxes"))] or None,
        times={stage: value for stage, value in found.items() if value},  # their writer puts 0 where none was
    )


def _box(values: Fields) -> Row:
    for name in ("x", "y", "w", "h"):
        if isinstance(values.get(name), bool) or not isinstance(values.get(name), int | float):
            raise InvalidFile(f"{values.name} has no number {name}")
    x, y, w, h = (float(values[name]) for name in ("x", "y", "w", "h"))
    words = {name: values.text(name) for name in ("text", "label")}
    return {"x1": x, "y1": y, "x2": x + w, "y2": y + h, **words}


def read_predictions(text: str) -> tuple[list[Page], list[str]]:
    """The pages of a `predictions.jsonl`, and why lines were left out. Raises InvalidFile for no page."""
    pages: list[Page] = []
    left_out: list[str] = []
    for count, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            if len(pages) >= PAGE_LIMIT:
                raise InvalidFile(f"more than {PAGE_LIMIT:,} pages")
            data = as_json(line)
            pages.append(_page(data, "image", data, "_ms"))
        except InvalidFile as error:
            left_out.append(f"line {count}: {error}")
    if not pages:
        raise InvalidFile(f"no page could be read: {left_out[0]}" if left_out else "empty")
    return pages, left_out


def has_link(directory: Path, place: str) -> bool:
    """Tell whether a folder on the way from a directory to one below it is a link."""
    ways = [PurePath(place), *PurePath(place).parents][:-1]
    return any((directory / folder).is_symlink() for folder in ways)


def read_gallery(run: RunFiles, places: Sequence[str]) -> list[Page]:
    """The pages in the folders of these places."""
    galleries = [run.place / place for place in places if not has_link(run.place, place)]
    folders = [each for gallery in galleries if gallery.is_dir() for each in sorted(gallery.iterdir())]
    whole = [each for each in folders[:PAGE_LIMIT] if not each.is_symlink() and (each / INFO).is_file()]
    return [page for folder in whole if (page := _shown(run, folder)) is not None]


def _shown(run: RunFiles, folder: Path) -> Page | None:
    """A page of the gallery, its files taken as `viz/<md5>/`; None where it is refused."""

    def parsed(text: str) -> Page:
        data = as_json(text)
        return _page(data, "source_image", data.object("timings_ms"))

    page = run.take(str(folder), info := folder / INFO, parsed, TEXT_LIMIT)
    if page is None:
        return None
    # Theirs is the MD5 of the image's path.
    name = folder.name if re.fullmatch(r"[0-9a-f]{32}", folder.name) else folder_key(page["path"])
    found, place = run.digests.pop(str(folder)), f"viz/{name}"
    if f"{place}/{INFO}" in run.digests:
        run.skip(info, "the run has another folder of this page")
        return None
    run.digests[f"{place}/{INFO}"], run.paths[f"{place}/{INFO}"] = found, run.paths.pop(str(folder))
    images = folder / "images"
    crops = [] if images.is_symlink() else sorted(images.glob("*.jpg"))
    for file in (folder / RESULT_MMD, folder / RESULT_IMAGE, *crops):
        if not file.exists() and not file.is_symlink():
            continue
        role = f"{place}/{file.relative_to(folder).as_posix()}"
        run.seen.add(file)
        try:
            run.digests[role], run.paths[role] = _digest_of_picture(file, file in crops), file
        except InvalidFile as error:
            run.skip(file, str(error))
    return page


def _digest_of_picture(file: Path, is_crop: bool) -> str:
    """The digest of what the published `save_results` writes for a page. Raises InvalidFile."""
    if is_crop and not re.fullmatch(r"\d{1,6}\.jpg", file.name):
        raise InvalidFile("not a numbered crop")
    content = read_bytes(file, TEXT_LIMIT if file.name == RESULT_MMD else PICTURE_LIMIT)
    if file.name == RESULT_MMD:
        as_text(content)
    elif not content.startswith(b"\xff\xd8\xff"):
        raise InvalidFile("not a JPEG picture")
    return digest(content)


def join(predictions: list[Page], shown: Iterable[Page], inputs: Iterable[str]) -> list[Page]:
    """Every reading once, named: a page of the gallery is the last prediction of its image with its text.

    A run that cycles over its images reads some of them again, but keeps one folder for each. An input that
    was not read is a page of which nothing else is known.
    """
    pages = list(predictions)
    places = {(page["path"], page["text_raw"]): place for place, page in enumerate(pages)}
    for each in shown:
        of = (places.get((each["path"], text)) for text in (each["text_raw"], None))
        if (place := max((at for at in of if at is not None), default=None)) is None:
            pages.append(each)
            continue
        page = pages[place]
        error, times = page["error"] or each["error"], {**each["times"], **page["times"]}
        pages[place] = each | {"new_tokens": page["new_tokens"], "error": error, "times": times}
    read = {page["path"] for page in pages}
    pages += [_page_of(path) for path in inputs if path not in read]
    names = page_names([page["path"] for page in pages])
    return [page | {"page": name} for page, name in zip(pages, names, strict=True)]


def page_names(images: Sequence[str]) -> list[str]:
    """A name for each image: its file name, longer where two would be equal; its second reading is
    `name (2)`.

    The name pairs the page with the same page of other runs, so it does not hold the folder of a machine
    unless it must.
    """
    parts = {image: _parts(image) for image in images}
    names: dict[str, str] = {}
    for depth in range(1, _NAME_DEPTH + 1):
        ends = Counter(each[-depth:] for each in parts.values())
        for image, each in parts.items():
            if ends[each[-depth:]] == 1:
                names.setdefault(image, "/".join(each[-depth:]))
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
    path: PurePath = PureWindowsPath(image) if windows else PurePosixPath(image)
    return tuple(part for part in path.parts if part not in ("/", "..")) or (image,)
