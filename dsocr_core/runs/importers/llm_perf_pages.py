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
    shared_folders,
)

STAGES = ("prefill", "decode", "vision", "sam", "clip", "projector")

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
            data = as_json(line)
            pages.append(_page(data, "image", data, "_ms"))
        except InvalidFile as error:
            left_out.append(f"line {count}: {error}")
    if not pages:
        raise InvalidFile(f"no page could be read: {left_out[0]}" if left_out else "empty")
    return pages, left_out


def read_gallery(run: RunFiles, gallery: Path) -> list[Page]:
    """The pages in the folders of a gallery."""
    folders = sorted(gallery.iterdir()) if gallery.is_dir() else []
    whole = [each for each in folders if not each.is_symlink() and (each / INFO).is_file()]
    return [page for folder in whole if (page := _shown(run, folder)) is not None]


def _shown(run: RunFiles, folder: Path) -> Page | None:
    """A page of the gallery, its files taken as `viz/<md5>/`; None where it is refused."""
    try:
        data = as_json(as_text(content := read_bytes(folder / INFO, TEXT_LIMIT)))
        page = _page(data, "source_image", data.object("timings_ms"))
        # Theirs is the MD5 of the image's path.
        name = folder.name if re.fullmatch(r"[0-9a-f]{32}", folder.name) else folder_key(page["path"])
        if f"viz/{name}/{INFO}" in run.digests:
            raise InvalidFile("the run has another folder of this page")
    except InvalidFile as error:
        run.skip(folder / INFO, str(error))
        return None
    run.keep(f"viz/{name}/{INFO}", folder / INFO, content)
    crops = [] if (folder / "images").is_symlink() else sorted(folder.glob("images/*.jpg"))
    for file in (folder / RESULT_MMD, folder / RESULT_IMAGE, *crops):
        if file.exists() or file.is_symlink():
            try:
                role = f"viz/{name}/{file.relative_to(folder).as_posix()}"
                run.keep(role, file, _picture(file, file in crops))
            except InvalidFile as error:
                run.skip(file, str(error))
    return page


def _picture(file: Path, is_crop: bool) -> bytes:
    """The content of what the published `save_results` writes for a page. Raises InvalidFile."""
    if is_crop and not re.fullmatch(r"\d{1,6}\.jpg", file.name):
        raise InvalidFile("not a numbered crop")
    content = read_bytes(file, TEXT_LIMIT if file.name == RESULT_MMD else PICTURE_LIMIT)
    if file.name == RESULT_MMD:
        as_text(content)
    elif not content.startswith(b"\xff\xd8\xff"):
        raise InvalidFile("not a JPEG picture")
    return content


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
    windows = re.match(r"[A-Za-z]:\\|\\\\", image) is not None
    path: PurePath = PureWindowsPath(image) if windows else PurePosixPath(image)
    return tuple(part for part in path.parts if part not in ("/", "..")) or (image,)
